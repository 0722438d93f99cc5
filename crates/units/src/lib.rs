//! Types that all crates share. [`Nanos`], [`Op`] and [`Class`] are re-exported from `completion`,
//! which defines them because it depends on no other crate. Lists of CPUs are defined here.
//!
//! Crates without I/O read no clock: their callers pass the time as [`Nanos`]. The library `reap`
//! reads its clock once per batch, the simulator passes its virtual time.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

pub use completion::{Class, Nanos, Op, nearest_name};

/// Parses a list of CPUs such as `0-3,8,10-11`. Returns them in ascending order without duplicates.
///
/// # Errors
///
/// The text is not such a list; the message says why.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    /// A limit, so that a range such as 0-4294967295 does not fill the memory.
    const MAX_CPUS: u32 = 4096;
    let mut cpus = BTreeSet::new();
    let cpu = |text: &str| match text.trim().parse::<u32>() {
        Ok(n) if n < MAX_CPUS => Ok(n),
        Ok(n) => Err(format!("CPU {n} is too large; the maximum is {}", MAX_CPUS - 1)),
        Err(_) => Err(format!("'{}' is not the number of a CPU", text.trim())),
    };
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, _)) if first.trim().is_empty() => {
                return Err(format!(
                    "'{part}': there is no value before the dash; a dash separates two values, and neither may be negative"
                ));
            }
            Some((first, last)) => {
                let (first, last) = (cpu(first)?, cpu(last)?);
                if first > last {
                    return Err(format!(
                        "'{part}' is not a range of CPUs: it ends before it starts"
                    ));
                }
                cpus.extend(first..=last);
            }
            None => {
                cpus.insert(cpu(part)?);
            }
        }
    }
    Ok(cpus.into_iter().collect())
}

/// Formats ascending `cpus` as a list that [`cpus`] parses.
pub fn cpu_ranges(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|cpu, next| cpu.checked_add(1) == Some(*next));
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        single => single.iter().map(u32::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
