//! The `main` of the command `reap`: parses the command line, runs the subcommand, prints errors.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::error::ErrorKind;
use completion::{Mode, RegisterError};
use rustix::process::Signal;
use signal_hook::flag;
use trace::cli::TraceArgs;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Subcommand};
use crate::output::OptionalOutput;
use crate::{
    bind, calibrate, compare, discover, doctor, id, install, list, output, run, serve, sim, stop,
};

/// Runs the command `reap`; a program's `main` need only call this.
pub fn main() -> ExitCode {
    main_with([])
}

/// As [`main`], with custom policies ([`Mode::register`]): their names can be given wherever the
/// name of a mode can.
pub fn main_with(policies: impl IntoIterator<Item = Result<Mode, RegisterError>>) -> ExitCode {
    if let Some(error) = policies.into_iter().find_map(Result::err) {
        output::say(format_args!("error: {error}"));
        return ExitCode::FAILURE;
    }
    let cli = match Cli::parse_words(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // clap reports --help and --version as errors, but the exit status has to be 0.
            _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if asked { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    log_to_stderr();
    // With a handler for SIGXFSZ a write beyond `ulimit -f` fails with EFBIG instead of killing the
    // program (setrlimit(2)). The library does not install signal handlers.
    if let Err(error) = flag::register(Signal::XFSZ.as_raw(), Arc::default()) {
        output::say(format_args!(
            "warning: a write beyond `ulimit -f` will end this program: {error}"
        ));
    }
    let done = match cli.command {
        Subcommand::Run(args) => run::run(&args),
        Subcommand::Compare(args) => compare::compare(&args),
        Subcommand::Sim(args) => sim::sim(&args),
        Subcommand::Install(args) => install::run(&args),
        Subcommand::Calibrate(args) => calibrate::run(&args),
        Subcommand::List(args) => list::list(&args),
        Subcommand::Id(args) => id::id(&args),
        Subcommand::Discover(args) => discover::discover(&args),
        Subcommand::Doctor(args) => doctor::doctor(&args),
        Subcommand::Bind(args) => bind::bind(&args),
        Subcommand::Unbind(args) => bind::unbind(&args),
        Subcommand::Serve(args) => serve::serve(&args),
        Subcommand::Ctl(args) => serve::ctl(&args),
        Subcommand::Trace(args) => trace(&args),
    };
    match done {
        Ok(code) => stop::status().map_or(code, ExitCode::from),
        Err(error) => {
            for line in explain(&error).lines() {
                output::say(format_args!("error: {line}"));
            }
            stop::status().map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// `reap trace`: prints counts while it runs, and writes all of them to `--json` at the end.
fn trace(args: &TraceArgs) -> Result<ExitCode> {
    stop::record_signals()?;
    let json = OptionalOutput::open(args.json.as_deref())?;
    let document = trace::cli::run(args, &mut output::for_people().0)?;
    json.write(|| Ok(serde_json::to_string_pretty(&document)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// An error and its causes in one line. A cause with which the line ends already is left out.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said {
        said if said.is_empty() => cause,
        said if said.ends_with(&cause) => said,
        said => format!("{said}: {cause}"),
    })
}

/// Prints the library's warnings on stderr, or what `REAP_LOG` selects. NVMe commands that fail are
/// not logged by default, because the results report them.
fn log_to_stderr() {
    const DEFAULT_FILTER: &str = "warn,device=error";
    let asked = std::env::var_os("REAP_LOG").map(|words| words.to_string_lossy().into_owned());
    let filter = match asked.as_deref().map(EnvFilter::try_new) {
        None => DEFAULT_FILTER.into(),
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            let asked = asked.unwrap_or_default();
            output::say(format_args!(
                "warning: REAP_LOG={asked} is invalid: {error}; using {DEFAULT_FILTER}. REAP_LOG=debug shows more"
            ));
            DEFAULT_FILTER.into()
        }
    };
    // If stderr cannot be written, an error about it cannot be printed either.
    let plain = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .log_internal_errors(false);
    plain.with_env_filter(filter).init();
}
