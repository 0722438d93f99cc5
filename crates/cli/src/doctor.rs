//! `reap doctor`: what this machine can do for Reap, what is missing, and what mends it.

mod checks;
mod facts;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::args::{DoctorArgs, Wanted};
use crate::escape::escape;
use crate::output;
use crate::rows::table::{self, wrap};
use checks::{Check, State};
use facts::Facts;

/// The results for scripts.
#[derive(Serialize)]
struct Document<'a> {
    /// Of [`Wanted`], what is to work here.
    wanted: Vec<Wanted>,
    /// Nothing is missing of what that needs.
    possible: bool,
    checks: &'a [Check],
}

/// Looks, and says it.
///
/// # Errors
/// The results cannot be written.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let facts = Facts::at(Path::new("/"));
    let wanted = wanted(&args.wanted, &facts);
    let mut checks = checks::all(&facts);
    // Where something is asked for, the rest is no part of the answer.
    checks.retain(|check| args.wanted.is_empty() || args.wanted.contains(&check.wanted));
    let missing: Vec<&Check> = missing(&checks, &wanted).collect();
    let possible = missing.is_empty();
    let text = if args.layout.is_json() {
        serde_json::to_string_pretty(&Document { wanted, possible, checks: &checks })? + "\n"
    } else {
        text(&checks, &wanted, table::width().into())
    };
    output::print(&text)?;
    Ok(if possible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was asked for, or what this machine has devices for.
fn wanted(asked: &[Wanted], facts: &Facts) -> Vec<Wanted> {
    let mut wanted = match asked {
        [] if facts.controllers.is_empty() => vec![Wanted::Kernel],
        [] => vec![Wanted::Kernel, Wanted::Pcie],
        asked => asked.to_vec(),
    };
    wanted.sort();
    wanted.dedup();
    wanted
}

fn missing<'a>(checks: &'a [Check], wanted: &'a [Wanted]) -> impl Iterator<Item = &'a Check> {
    checks.iter().filter(|check| check.state == State::Missing && wanted.contains(&check.wanted))
}

/// Columns before what was found.
const INDENT: usize = 32;

/// The results for people, on lines of `width` characters; commands, which are copied, stay whole.
fn text(checks: &[Check], wanted: &[Wanted], width: usize) -> String {
    let below = |line: &str| wrap(line, width.saturating_sub(INDENT).max(30)).trim_end().replace('\n', &format!("\n{:INDENT$}", ""));
    let mut out = String::new();
    let mut before = None;
    for check in checks {
        if before != Some(check.wanted) {
            let heading = match check.wanted {
                Wanted::Kernel => "kernel: (files and block devices, by io_uring)",
                Wanted::Pcie => "pcie: (NVMe drives without the kernel's driver)",
                Wanted::Trace => "reap trace (this machine's kernel)",
                Wanted::Figures => "figures (what they depend on)",
            };
            out += &format!("{}{heading}\n", if before.is_some() { "\n" } else { "" });
            before = Some(check.wanted);
        }
        let state = match check.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "MISSING",
            State::None => "-",
        };
        let (found, why) = (below(&escape(&check.found)), below(check.why));
        out += &format!("  {state:8} {:20} {found}\n{:INDENT$}{why}\n", check.name, "");
        if let Some(command) = &check.command {
            out += &format!("{:INDENT$}→ {}\n", "", escape(command));
        }
    }
    let names: Vec<&str> = missing(checks, wanted).map(|check| check.name).collect();
    let wanted: Vec<String> = wanted.iter().map(|wanted| format!("{wanted:?}").to_lowercase()).collect();
    out + &match names.is_empty() {
        true => format!("\nNothing is missing for {}.\n", wanted.join(", ")),
        false => format!("\nMissing for {}: {}.\n", wanted.join(", "), names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
