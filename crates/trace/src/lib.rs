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
mod error;
pub mod histogram;
mod machine;
mod preflight;
mod report;
mod settings;

pub use error::Error;
pub use preflight::lacks;
