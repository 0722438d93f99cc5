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
mod tests {
    use workload::fio::{self, Input};

    use super::*;

    fn line_of(text: &str) -> String {
        line(&fio::parse(&[Input { name: "t", text: text.as_bytes() }], &fio::Nothing).unwrap())
    }

    #[test]
    fn a_file_becomes_a_line() {
        assert_eq!(
            line_of("[global]\nbs=4k\ntime_based\nruntime=1\n[a b]\nrw=randread\n[c]\n"),
            "reap run --bs=4k --time_based --runtime=1 '--name=a b' --rw=randread --name=c\n"
        );
        // A second [global] holds for what follows it.
        assert_eq!(line_of("[a]\n[global]\nbs=8k\n[b]\nrw=read\n"), "reap run --name=a --name=b --bs=8k --rw=read\n");
    }
}
