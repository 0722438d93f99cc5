//! What the command `reap` is made of as far as its benches need it too: the job threads that `run` and `compare` put on
//! open devices, and the machine that they run on.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bench;
pub mod machine;
