//! The subcommand as a program of its own, without the rest of `reap`: `cargo run --release -p reap-trace --features ebpf --example trace`.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "trace", about = "What completions cost in this machine's kernel")]
struct Args {
    #[command(flatten)]
    trace: trace::cli::TraceArgs,
}

fn main() -> ExitCode {
    match trace::cli::run(&Args::parse().trace) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reap: {error}");
            ExitCode::FAILURE
        }
    }
}
