//! What the kernel must have and the user must be allowed, asked before anything is loaded, so that each lack is said by its name.

use crate::Error;
use crate::settings::Mode;
use std::fs;

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Bits of `CapEff` (capabilities(7)).
const CAP_SYS_ADMIN: u64 = 21;
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;

/// The tracepoints that each mode stands on.
pub(crate) fn hooks(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Completions | Mode::Delay | Mode::Rate => {
            &["softirq_exit", "softirq_entry", "softirq_raise", "irq_handler_exit", "block_rq_complete", "irq_handler_entry"]
        }
        Mode::Latency => &["block_rq_complete", "block_rq_issue"],
    }
}

/// Everything that keeps this `reap` from tracing this kernel, for this user; nothing: each mode can be had.
pub fn lacks() -> Vec<Error> {
    lacks_for(&Mode::ALL)
}

/// The same for some modes alone.
pub(crate) fn lacks_for(modes: &[Mode]) -> Vec<Error> {
    let built = (!cfg!(feature = "ebpf")).then_some(Error::NotBuilt);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = (!may_trace(&status)).then_some(Error::NoPrivilege);
    let kernel = modes.iter().find_map(|mode| has_hooks(*mode).err());
    built.into_iter().chain(allowed).chain(kernel).collect()
}

fn has_hooks(mode: Mode) -> Result<(), Error> {
    let no_types = "it needs a kernel 5.15 or newer built with CONFIG_DEBUG_INFO_BTF";
    let types =
        fs::read(BTF).map_err(|_| Error::Kernel(format!("this kernel does not describe its types: {BTF} is missing; {no_types}")))?;
    let Some(hook) = hooks(mode).iter().find(|hook| !has_hook(&types, hook)) else { return Ok(()) };
    Err(Error::Kernel(format!(
        "this kernel has no tracepoint `{hook}`, which `{}` needs; kernels from 5.15 on have it, with CONFIG_TRACEPOINTS and CONFIG_BLOCK",
        mode.name()
    )))
}

/// Whether `/proc/self/status` grants what BPF_PROG_LOAD of tracing programs asks for.
fn may_trace(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u64| effective >> bit & 1 == 1;
    has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON)
}

/// A tracepoint NAME is described in BTF as a type `btf_trace_NAME`; its strings are separated by zeros.
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
