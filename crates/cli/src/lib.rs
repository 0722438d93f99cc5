//! The command `reap` as a library: [`main_with`] is the whole `main` of a program that brings completion policies of its own. Its benches
//! use what else is public: the job threads that `run` and `compare` put on open devices, and the machine that they run on.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![forbid(unsafe_code)]
// They panic where nobody reads: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bind;
mod calibrate;
mod command;
mod compare;
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

/// Name and version, where fio's results say `fio-3.33`.
pub const PROGRAM: &str = concat!("reap-", env!("CARGO_PKG_VERSION"));
