//! The subcommand as a stand-alone program: `cargo run --release -p reap-trace --features ebpf
//! --example trace`.

use anyhow::{Context, Result};
use clap::Parser;
use std::fs::File;
use std::io;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "trace", about = "What completions cost in this machine's kernel")]
struct Args {
    #[command(flatten)]
    trace: trace::cli::TraceArgs,
}

fn main() -> ExitCode {
    match run(&Args::parse().trace) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reap: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &trace::cli::TraceArgs) -> Result<()> {
    let json = args
        .json
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())))
        .transpose()?;
    let document = trace::cli::run(args, &mut io::stdout())?;
    json.map_or(Ok(()), |json| Ok(serde_json::to_writer_pretty(json, &document)?))
}
