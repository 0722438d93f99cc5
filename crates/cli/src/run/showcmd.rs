//! `--showcmd`: job files as the command line that runs the same.

use workload::fio::{Given, Parsed};

use crate::report::quote;

/// The command line. fio, too, has one set of options for all jobs on it; what stands in several `[global]` sections is therefore said
/// with each job.
pub fn line(parsed: &Parsed) -> String {
    let globals = parsed.sections.iter().filter(|section| section.name.is_none()).count();
    let first = globals <= 1 && parsed.sections.first().is_some_and(|section| section.name.is_none());
    let (mut words, mut held) = (vec!["reap run".to_owned()], Vec::new());
    for section in &parsed.sections {
        match &section.name {
            None if first => words.extend(options(section)),
            None => held.extend(options(section)),
            Some(name) => {
                words.push(quote(format!("--name={name}")));
                words.extend(held.iter().cloned().chain(options(section)));
            }
        }
    }
    words.join(" ") + "\n"
}

fn options(section: &Given) -> Vec<String> {
    let word = |(name, value): &(String, Option<String>)| match value {
        Some(value) => quote(format!("--{name}={value}")),
        None => format!("--{name}"),
    };
    section.options.iter().map(word).collect()
}

#[cfg(test)]
mod tests;
