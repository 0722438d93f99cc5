//! `reap doctor`: what this machine can do for Reap, what is missing, and what mends it.

mod checks;
mod facts;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::args::{DoctorArgs, Wanted};
use crate::harmless::harmless;
use crate::output;
use crate::rows::fit::wrap;
use crate::rows::table;
use checks::{Check, State, name_of};
use facts::Facts;

/// The results for scripts.
#[derive(Serialize)]
struct Document<'a> {
    /// Of [`Wanted`], what is to work here.
    wanted: Vec<&'static str>,
    /// Nothing is missing of what that needs.
    possible: bool,
    checks: &'a [Check],
}

/// Looks, and says it.
///
/// # Errors
/// The results cannot be written.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let facts = Facts::here();
    let wanted = wanted(&args.wanted, &facts);
    let mut checks = checks::all(&facts);
    // Where something is asked for, the rest is no part of the answer.
    let names: Vec<&str> = args.wanted.iter().map(|wanted| name_of(*wanted)).collect();
    checks.retain(|check| names.is_empty() || names.contains(&check.wanted));
    let missing: Vec<&Check> = missing(&checks, &wanted).collect();
    let possible = missing.is_empty();
    let text = if args.layout.is_json() {
        let wanted = wanted.iter().map(|wanted| name_of(*wanted)).collect();
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

fn missing<'a>(checks: &'a [Check], wanted: &[Wanted]) -> impl Iterator<Item = &'a Check> {
    let names: Vec<&str> = wanted.iter().map(|wanted| name_of(*wanted)).collect();
    checks.iter().filter(move |check| check.state == State::Missing && names.contains(&check.wanted))
}

/// Columns before what was found.
const INDENT: usize = 32;

/// The results for people, on lines of `width` characters; commands, which are copied, stay whole.
fn text(checks: &[Check], wanted: &[Wanted], width: usize) -> String {
    let below = |line: &str| wrap(line, width.saturating_sub(INDENT).max(30)).trim_end().replace('\n', &format!("\n{:INDENT$}", ""));
    let mut out = String::new();
    let mut before = "";
    for check in checks {
        if check.wanted != before {
            out += &format!("{}{}\n", if before.is_empty() { "" } else { "\n" }, heading(check.wanted));
            before = check.wanted;
        }
        let state = match check.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "MISSING",
            State::None => "-",
        };
        let (found, why) = (below(&harmless(&check.found)), below(check.why));
        out += &format!("  {state:8} {:20} {found}\n{:INDENT$}{why}\n", check.name, "");
        if let Some(command) = &check.command {
            out += &format!("{:INDENT$}→ {}\n", "", harmless(command));
        }
    }
    let names: Vec<&str> = missing(checks, wanted).map(|check| check.name).collect();
    let wanted: Vec<&str> = wanted.iter().map(|wanted| name_of(*wanted)).collect();
    out + &match names.is_empty() {
        true => format!("\nNothing is missing for {}.\n", wanted.join(", ")),
        false => format!("\nMissing for {}: {}.\n", wanted.join(", "), names.join(", ")),
    }
}

fn heading(wanted: &str) -> &'static str {
    match wanted {
        "kernel" => "kernel: (files and block devices, by io_uring)",
        "pcie" => "pcie: (NVMe drives without the kernel's driver)",
        "trace" => "reap trace (this machine's kernel)",
        _ => "figures (what they depend on)",
    }
}

#[cfg(test)]
mod tests;
