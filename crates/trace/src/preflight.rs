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
pub(crate) fn hooks(mode: Mode) -> &'static [&'static str] {
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

/// All reasons why this `reap` cannot trace this kernel as this user. Empty: every mode is
/// available.
pub fn missing_requirements() -> Vec<Error> {
    lacks_for(&Mode::ALL)
}

/// [`missing_requirements`] for some modes only.
pub(crate) fn lacks_for(modes: &[Mode]) -> Vec<Error> {
    let built = (!cfg!(feature = "ebpf")).then_some(Error::NotBuilt);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = (!may_trace(&status)).then_some(Error::NoPrivilege);
    // One missing tracepoint is enough: modes share most of them.
    let kernel = modes.iter().find_map(|mode| has_hooks(*mode).err());
    built.into_iter().chain(allowed).chain(kernel).collect()
}

fn has_hooks(mode: Mode) -> Result<(), Error> {
    let no_types = "it needs a kernel 5.15 or newer built with CONFIG_DEBUG_INFO_BTF";
    let types = fs::read(BTF).map_err(|_| {
        Error::Kernel(format!(
            "this kernel has no type information (BTF): {BTF} is missing; {no_types}"
        ))
    })?;
    let Some(hook) = hooks(mode).iter().find(|hook| !has_hook(&types, hook)) else { return Ok(()) };
    Err(Error::Kernel(format!(
        "this kernel has no tracepoint `{hook}`, which `{}` needs; kernels from 5.15 on have it, with CONFIG_TRACEPOINTS and CONFIG_BLOCK",
        mode.name()
    )))
}

/// Whether `/proc/self/status` grants what BPF_PROG_LOAD requires for tracing programs.
fn may_trace(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    // Unreadable: assume no privilege.
    let effective =
        effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u64| effective >> bit & 1 == 1;
    // CAP_BPF and CAP_PERFMON are what CAP_SYS_ADMIN included before 5.8.
    has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON)
}

/// BTF describes a tracepoint NAME as a type `btf_trace_NAME`; its strings are NUL-terminated.
fn has_hook(types: &[u8], hook: &str) -> bool {
    let wanted = format!("btf_trace_{hook}");
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
    fn hook_needs_its_whole_name() {
        let types = b"\0int\0btf_trace_softirq_entry\0btf_trace_block_rq_completed\0";
        assert!(has_hook(types, "softirq_entry"));
        assert!(!has_hook(types, "softirq_ent"));
        assert!(!has_hook(types, "block_rq_complete"));
        assert!(!has_hook(b"", "softirq_entry"));
    }
}
