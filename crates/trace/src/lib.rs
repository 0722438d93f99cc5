//! Measures what completions of block requests cost in this machine's kernel: the subcommand `reap
//! trace`.
//!
//! - [`cli`] is the subcommand: its arguments and how it runs;
//! - [`histogram`] collects and draws histograms in the format of bcc's tools; `reap run
//!   --histograms` uses it too.
//!
//! ```text
//! kernel:  tracepoints -> trace.bpf.c -> per-CPU maps
//!                                            | read once per interval
//! user:    ebpf/tracer -> counts -> report (tables, histograms, JSON)
//! ```
//!
//! The tracer is an eBPF program that CO-RE (relocation at load time, from the kernel's BTF) adapts
//! to the running kernel; it is built with the feature `ebpf`. This crate needs nothing else of
//! Reap, and the data path of Reap needs nothing of this crate.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]
// Without the tracer, `machine` and `report` are unused; they are compiled anyway, for their tests.
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

pub use preflight::missing_requirements;

/// Why tracing failed. The text of each error is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Built without the feature `ebpf`.
    #[error(
        "this `reap` was built without eBPF: install clang, make, pkg-config and the headers of libelf and zlib (Debian: `apt-get install \
         clang make pkg-config libelf-dev zlib1g-dev`), then run `cargo run --release --features ebpf -- trace`"
    )]
    NotBuilt,
    /// An argument is invalid by itself, together with others, or on this machine.
    #[error("{0}")]
    Usage(String),
    /// The user is not root and lacks CAP_BPF or CAP_PERFMON.
    #[error(
        "tracing the kernel needs root, or the capabilities CAP_BPF and CAP_PERFMON: run it with sudo"
    )]
    NoPrivilege,
    /// The kernel lacks a feature, or refused a program or a map.
    #[error("{0}")]
    Kernel(String),
    /// The output could not be written, or a signal handler could not be installed.
    #[error("cannot {what}: {source}")]
    Output {
        /// What could not be done.
        what: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}
