//! Jobs on the command line, as fio has them: `--name=x --rw=randread --bs=4k`.

use std::ffi::OsString;

use workload::fio::{self, Follows};

/// Takes the options of jobs out of the words behind `reap run`, for which clap has no names. What is left, and the job file that the
/// others make: those before the first `--name` hold for all jobs. `own` says which options are the command's.
pub fn take(words: Vec<OsString>, own: impl Fn(&str) -> bool) -> Result<(Vec<OsString>, Option<String>), String> {
    let (mut left, mut file) = (Vec::new(), String::new());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some((name, value, follows)) = option(&word, &own) else {
            // What follows `--` are files.
            let end = word == "--";
            left.push(word);
            if end {
                left.extend(words.by_ref());
            }
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

/// Why there is nothing to run, or options that nothing is run by: `files` says whether files are named, `line` is what options made.
pub fn lacking(files: bool, line: Option<&str>) -> Option<String> {
    if line.is_some_and(|line| line.lines().any(|line| line.starts_with('[') && line != "[global]")) {
        return None;
    }
    if !files {
        return Some("there is no job: name a job file, or give one on the command line, as --name=mine --rw=randread --bs=4k".to_owned());
    }
    // fio takes such options, and runs the files as if they were not there.
    let idle = line?.lines().find(|line| !line.starts_with('['))?;
    Some(format!("--{idle} is for jobs that --name begins, and there is none: write it into the job file, or begin a job with --name"))
}

/// A word as an option of a job: its name, what stands behind its equals sign, and what may follow it.
fn option(word: &OsString, own: &impl Fn(&str) -> bool) -> Option<(String, Option<String>, Follows)> {
    let text = word.to_str()?.strip_prefix("--")?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let follows = fio::option(name).filter(|_| !own(name))?;
    Some((name.to_owned(), value, follows))
}

#[cfg(test)]
mod tests;
