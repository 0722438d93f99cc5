//! The command `reap` as a library. [`main_with`] is the whole `main` of a program with its own
//! completion policies. The other public items are for benchmarks: job threads on open devices, and
//! the CPUs that they run on.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![forbid(unsafe_code)]
// print! and eprint! panic if the stream is closed; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bind;
mod calibrate;
mod command;
mod compare;
mod discover;
mod disk_util;
mod doctor;
mod id;
mod install;
mod jobs;
mod list;
mod output;
mod report;
mod rows;
mod run;
mod serve;
mod sim;
mod stop;

pub mod bench;
pub mod machine;

pub use command::{main, main_with};

/// Name and version in results.
pub const PROGRAM: &str = concat!("reap-", env!("CARGO_PKG_VERSION"));
