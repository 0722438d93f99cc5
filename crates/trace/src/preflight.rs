//! Checks what the kernel must have and what the user must be allowed to do, before anything is
//! loaded, so that each error names what is missing.

use crate::Error;
use crate::settings::Mode;
use std::fs;

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Bits of `CapEff` (capabilities(7)).
const CAP_SYS_ADMIN: u64 = 21;
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;

/// The tracepoints that a mode needs.
pub(crate) fn tracepoints(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Completions | Mode::Delay | Mode::Rate => &[
            "softirq_exit",
            "softirq_entry",
            "softirq_raise",
            "irq_handler_exit",
            "block_rq_complete",
            "irq_handler_entry",
        ],
        Mode::Latency => &["block_rq_complete", "block_rq_issue"],
    }
}

/// Why this `reap` cannot trace this kernel as this user: the build, the privileges, and the first
/// thing that the kernel lacks. Empty: every mode is available.
pub fn missing_requirements() -> Vec<Error> {
    missing_for(&Mode::ALL)
}

/// [`missing_requirements`] for some modes only.
pub(crate) fn missing_for(modes: &[Mode]) -> Vec<Error> {
    let not_built = (!cfg!(feature = "ebpf")).then_some(Error::NotBuilt);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let no_privilege = (!may_trace(&status)).then_some(Error::NoPrivilege);
    // Only the first missing tracepoint is reported: modes share most tracepoints.
    let kernel_lacks = modes.iter().find_map(|mode| check_kernel(*mode).err());
    not_built.into_iter().chain(no_privilege).chain(kernel_lacks).collect()
}

/// Checks that the kernel has BTF and the mode's tracepoints.
fn check_kernel(mode: Mode) -> Result<(), Error> {
    let no_types = "it needs a kernel 5.15 or newer built with CONFIG_DEBUG_INFO_BTF";
    let types = fs::read(BTF).map_err(|_| {
        Error::Kernel(format!(
            "this kernel has no type information (BTF): {BTF} is missing; {no_types}"
        ))
    })?;
    let mut needed = tracepoints(mode).iter();
    let Some(missing) = needed.find(|name| !has_tracepoint(&types, name)) else { return Ok(()) };
    Err(Error::Kernel(format!(
        "this kernel has no tracepoint `{missing}`, which `{}` needs; kernels from 5.15 on have it, with CONFIG_TRACEPOINTS and CONFIG_BLOCK",
        mode.name()
    )))
}

/// Whether `/proc/self/status` grants what BPF_PROG_LOAD requires for tracing programs.
fn may_trace(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    // If the mask cannot be read, assume no privilege.
    let effective =
        effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u64| effective >> bit & 1 == 1;
    // Linux 5.8 split CAP_BPF and CAP_PERFMON off CAP_SYS_ADMIN, which still includes both.
    has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON)
}

/// BTF describes a tracepoint NAME as a type `btf_trace_NAME`; its strings are NUL-terminated.
fn has_tracepoint(types: &[u8], name: &str) -> bool {
    let wanted = format!("btf_trace_{name}");
    types.split(|&byte| byte == 0).any(|string| string == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_or_two_capabilities_suffice() {
        assert!(may_trace("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(may_trace("CapEff:\t000000c000000000\n"));
        assert!(!may_trace("CapEff:\t0000008000000000\n"));
        assert!(!may_trace("CapEff:\t0000000000000000\n"));
        assert!(!may_trace("CapEff:\tnonsense\n"));
        assert!(!may_trace(""));
    }

    #[test]
    fn tracepoint_needs_its_whole_name() {
        let types = b"\0int\0btf_trace_softirq_entry\0btf_trace_block_rq_completed\0";
        assert!(has_tracepoint(types, "softirq_entry"));
        assert!(!has_tracepoint(types, "softirq_ent"));
        assert!(!has_tracepoint(types, "block_rq_complete"));
        assert!(!has_tracepoint(b"", "softirq_entry"));
    }
}
