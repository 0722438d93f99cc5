//! The command `reap`: runs fio job files on Reap's devices, and compares completion modes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
