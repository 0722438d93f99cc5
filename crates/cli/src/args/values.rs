//! What options take: numbers, percentages, lists, modes; and jobs on the command line, as fio has them: `--name=x --rw=randread --bs=4k`.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use completion::Mode;
use workload::fio::{self, Argument};

/// A whole number of this range, or what to give instead.
pub fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match range.end() {
            &u64::MAX => format!("give a whole number, {} or more", range.start()),
            most => format!("give a whole number from {} to {most}", range.start()),
        })
    }
}

/// Every mode: those that are also the kernel's own where `kernels`.
pub fn modes(kernels: bool) -> impl Iterator<Item = Mode> {
    Mode::ALL.into_iter().chain(Mode::registered()).chain(Mode::KERNELS.into_iter().filter(move |_| kernels))
}

/// A percentage of this range, whole, with its sign or without.
pub fn percent<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    let whole = whole(range);
    move |text| whole(without_sign(text)).map_err(|what| format!("{what}, in per cent"))
}

/// A load in per cent, with its sign or without.
pub fn load(text: &str) -> Result<f64, String> {
    match without_sign(text).parse::<f64>() {
        Ok(load) if load > 0.0 && load <= 100.0 => Ok(load),
        _ => Err("a load is a percentage above 0 and at most 100".to_owned()),
    }
}

fn without_sign(text: &str) -> &str {
    text.strip_suffix('%').unwrap_or(text)
}

/// Refuses a list that names something twice: nothing would be learnt from it a second time.
pub fn once<T: PartialEq + Display>(option: &str, list: &[T]) -> Result<()> {
    match list.iter().enumerate().find_map(|(at, one)| list[..at].contains(one).then_some(one)) {
        Some(twice) => bail!("{option} names {twice} twice: leave one of them out"),
        None => Ok(()),
    }
}

/// Options of fio's command line that are no options of jobs, and that `reap run` does not have.
const FIOS_OWN: [&str; 10] =
    ["bandwidth-log", "client", "debug", "eta", "eta-newline", "minimal", "server", "showcmd", "status-interval", "terse-version"];

/// Takes the options of jobs out of the words behind `reap run`. What is left, for clap, and the job file that the others make: those
/// before the first `--name` hold for all jobs. One dash does for two, as in fio. `own` says which options are the command's.
pub fn take_jobs(words: Vec<OsString>, own: impl Fn(&str) -> bool) -> Result<(Vec<OsString>, Option<String>), String> {
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
            (None, Argument::Required) => {
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
            // Among the job's options, too, which fio echoes in its results.
            let value = value.unwrap_or_default();
            file += &format!("[{value}]\nname={value}\n");
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
