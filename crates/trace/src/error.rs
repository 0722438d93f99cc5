//! What can go wrong, each in one sentence for the person at the terminal.

use std::path::PathBuf;

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The feature `ebpf` is off.
    #[error(
        "this `reap` was built without eBPF: install clang, make, pkg-config and the headers of libelf and zlib (Debian: `apt-get install \
         clang make pkg-config libelf-dev zlib1g-dev`), then run `cargo run --release --features ebpf -- trace`"
    )]
    NotBuilt,
    /// An argument makes no sense, alone or with the others.
    #[error("{0}")]
    Usage(String),
    /// `-d` names nothing that this machine has.
    #[error("no block device `{name}` on this machine: it has {known}")]
    UnknownDevice {
        /// As given.
        name: String,
        /// What could have been given.
        known: String,
    },
    /// `-d` names a partition.
    #[error("`{name}` is a partition, and requests complete on whole devices: use `-d {disk}`")]
    Partition {
        /// As given.
        name: String,
        /// The device that it is a part of.
        disk: String,
    },
    /// `-d` names a device that passes its I/O on to others (device mapper, md, NVMe multipath without paths).
    #[error("`{0}` has no hardware queue: it passes its I/O on to other devices, so trace those")]
    NoQueues(String),
    /// `--line` names nothing that this machine has.
    #[error("no interrupt line `{name}` on this machine: its block devices have {known}")]
    UnknownLine {
        /// As given.
        name: String,
        /// What could have been given.
        known: String,
    },
    /// Neither root nor the two capabilities.
    #[error("tracing the kernel needs root, or the capabilities CAP_BPF and CAP_PERFMON: run it with sudo")]
    NoPrivilege,
    /// No `/sys/kernel/btf/vmlinux`.
    #[error("this kernel does not describe its types: {0} is missing; it needs a kernel 5.15 or newer built with CONFIG_DEBUG_INFO_BTF")]
    NoBtf(PathBuf),
    /// A tracepoint that the mode stands on is not there.
    #[error(
        "this kernel has no tracepoint `{hook}`, which `{mode}` needs; kernels from 5.15 on have it, with CONFIG_TRACEPOINTS and CONFIG_BLOCK"
    )]
    NoHook {
        /// The tracepoint.
        hook: &'static str,
        /// The mode of `reap trace`.
        mode: &'static str,
    },
    /// The kernel refused a program or a map.
    #[error("the kernel refused {what}: {why}")]
    Refused {
        /// The program, map or hook.
        what: String,
        /// What libbpf or the kernel said.
        why: String,
    },
    /// The output could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Output {
        /// What it was.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
