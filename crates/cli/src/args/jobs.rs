//! Jobs on the command line, as fio has them: `--name=x --rw=randread --bs=4k`.

use std::ffi::OsString;

use workload::fio::{self, Follows};

/// Options of fio's command line that are no options of jobs, and that `reap run` does not have.
const FIOS_OWN: [&str; 10] =
    ["bandwidth-log", "client", "debug", "eta", "eta-newline", "minimal", "server", "showcmd", "status-interval", "terse-version"];

/// Takes the options of jobs out of the words behind `reap run`. What is left, for clap, and the job file that the others make: those
/// before the first `--name` hold for all jobs. One dash does for two, as in fio. `own` says which options are the command's.
pub fn take(words: Vec<OsString>, own: impl Fn(&str) -> bool) -> Result<(Vec<OsString>, Option<String>), String> {
    let (mut left, mut file) = (Vec::new(), String::new());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let option = word.to_str().and_then(|text| text.strip_prefix("--").or(text.strip_prefix('-').filter(|rest| rest.len() > 1)));
        let Some(option) = option.filter(|option| !option.is_empty()) else {
            // What follows `--` are files.
            let end = word == "--";
            left.push(word);
            if end {
                left.extend(words.by_ref());
            }
            continue;
        };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value.to_owned())));
        if own(name) {
            left.push(format!("--{option}").into());
            continue;
        }
        if FIOS_OWN.contains(&name) {
            return Err(format!("`reap run` does not support fio's --{name}; see docs/fio-jobs.md"));
        }
        let Some(follows) = fio::option(name) else {
            left.push(word);
            continue;
        };
        let value = match (value, follows) {
            (None, Follows::Value) => {
                let next = words.next_if(|next| !next.to_string_lossy().starts_with("--"));
                let next = next.ok_or_else(|| format!("--{name} needs a value, as --{name}=VALUE"))?;
                Some(next.into_string().map_err(|next| format!("--{name}: {} is not UTF-8 text", next.display()))?)
            }
            (value, _) => value,
        };
        if let Some(odd) = value.as_deref().and_then(|value| value.chars().find(|c| matches!(c, '#' | ';' | '\n' | '\r'))) {
            return Err(format!("--{name}: {odd:?} begins a comment or a line in job files; give such a value in a file"));
        }
        if name == "name" {
            file += &format!("[{}]\n", value.unwrap_or_default());
            continue;
        }
        if file.is_empty() {
            file += "[global]\n";
        }
        file += &value.map_or_else(|| format!("{name}\n"), |value| format!("{name}={value}\n"));
    }
    Ok((left, Some(file).filter(|file| !file.is_empty())))
}

#[cfg(test)]
mod tests;
