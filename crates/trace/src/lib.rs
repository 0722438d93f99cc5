//! What completions of block requests cost in this machine's kernel: the subcommand `reap trace`.
//!
//! - [`cli`] is the subcommand: its arguments and its run;
//! - [`histogram`] counts and draws, as bcc's tools do; it is also what `reap run --histograms` draws with.
//!
//! The tracing itself, an eBPF program that CO-RE fits to the running kernel, is built with the feature `ebpf`. Nothing else of Reap is
//! needed here, and Reap's data path needs nothing of this crate.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]
// Without the tracer nobody looks at the machine or reports; that code and its tests compile all the same.
#![cfg_attr(not(feature = "ebpf"), allow(dead_code))]

pub mod cli;
mod counts;
#[cfg(feature = "ebpf")]
mod ebpf;
pub mod histogram;
mod machine;
mod preflight;
mod report;
mod settings;

pub use preflight::lacks;

/// What can go wrong, each in one sentence for the person at the terminal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The feature `ebpf` is off.
    #[error(
        "this `reap` was built without eBPF: install clang, make, pkg-config and the headers of libelf and zlib (Debian: `apt-get install \
         clang make pkg-config libelf-dev zlib1g-dev`), then run `cargo run --release --features ebpf -- trace`"
    )]
    NotBuilt,
    /// An argument makes no sense: alone, with the others, or on this machine.
    #[error("{0}")]
    Usage(String),
    /// Neither root nor the two capabilities.
    #[error("tracing the kernel needs root, or the capabilities CAP_BPF and CAP_PERFMON: run it with sudo")]
    NoPrivilege,
    /// The kernel lacks something, or refused a program or a map.
    #[error("{0}")]
    Kernel(String),
    /// The output could not be written, or no signal handler be set.
    #[error("cannot write {what}: {source}")]
    Output {
        /// What it was.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
