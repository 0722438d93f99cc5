//! Parsers for values of options, and for fio jobs on the command line, as
//! `--name=x --rw=randread --bs=4k`.

use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use completion::Mode;
use workload::fio::{self, Argument};

/// Parses an integer in this range.
pub fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match range.end() {
            &u64::MAX => format!("give a whole number, {} or more", range.start()),
            max => format!("give a whole number from {} to {max}", range.start()),
        })
    }
}

/// Parses an IP address and a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port, such as 127.0.0.1:4420 or [::1]:4420; names are not looked up"
            .to_owned()
    })
}

/// All modes; with `kernels` also those of the kernel.
pub fn modes(kernels: bool) -> impl Iterator<Item = Mode> {
    Mode::ALL
        .into_iter()
        .chain(Mode::registered())
        .chain(Mode::KERNELS.into_iter().filter(move |_| kernels))
}

/// Parses an integer percentage in this range, with or without `%`.
pub fn percent<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    let whole = whole(range);
    move |text| whole(without_sign(text)).map_err(|what| format!("{what}, in per cent"))
}

/// Parses a load in per cent, with or without `%`.
pub fn load(text: &str) -> Result<f64, String> {
    match without_sign(text).parse::<f64>() {
        Ok(load) if load > 0.0 && load <= 100.0 => Ok(load),
        _ => Err("a load is a percentage above 0 and at most 100".to_owned()),
    }
}

fn without_sign(text: &str) -> &str {
    text.strip_suffix('%').unwrap_or(text)
}

/// Returns an error if a list has duplicates.
pub fn once<T: PartialEq + Display>(option: &str, list: &[T]) -> Result<()> {
    match list.iter().enumerate().find_map(|(at, one)| list[..at].contains(one).then_some(one)) {
        Some(twice) => bail!("{option} has {twice} twice; leave one of them out"),
        None => Ok(()),
    }
}

/// Options of fio's command line, not of jobs, that are not supported.
const FIOS_OWN: [&str; 10] = [
    "bandwidth-log",
    "client",
    "debug",
    "eta",
    "eta-newline",
    "minimal",
    "server",
    "showcmd",
    "status-interval",
    "terse-version",
];

/// Splits the words after `reap run` into those for clap, and a job file made of the job options.
/// Options before the first `--name` go to its section `[global]`. As in fio one dash is the same
/// as two. `own`: whether an option is one of `reap run` itself.
pub fn take_jobs(
    words: Vec<OsString>,
    own: impl Fn(&str) -> bool,
) -> Result<(Vec<OsString>, Option<String>), String> {
    let (mut left, mut file) = (Vec::new(), String::new());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let option = word.to_str().and_then(|text| {
            text.strip_prefix("--").or(text.strip_prefix('-').filter(|rest| rest.len() > 1))
        });
        let Some(option) = option.filter(|option| !option.is_empty()) else {
            // Words after `--` are file names.
            let end = word == "--";
            left.push(word);
            if end {
                left.extend(words.by_ref());
            }
            continue;
        };
        let (name, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value.to_owned())));
        // Normalized to two dashes, which clap requires.
        if own(name) {
            left.push(format!("--{option}").into());
            continue;
        }
        if FIOS_OWN.contains(&name) {
            return Err(format!(
                "`reap run` does not support fio's --{name}; see docs/fio-jobs.md"
            ));
        }
        let Some(follows) = fio::option(name) else {
            // Left to clap, which reports it.
            left.push(word);
            continue;
        };
        let value =
            match (value, follows) {
                (None, Argument::Required) => {
                    // A value may begin with one dash (`--offset -1` is refused later), but `--x`
                    // is an option.
                    let next = words.next_if(|next| !next.to_string_lossy().starts_with("--"));
                    let next =
                        next.ok_or_else(|| format!("--{name} needs a value, as --{name}=VALUE"))?;
                    Some(next.into_string().map_err(|next| {
                        format!("--{name}: {} is not UTF-8 text", next.display())
                    })?)
                }
                (value, _) => value,
            };
        // The options become lines of a job file, in which these characters have a meaning.
        if let Some(odd) = value
            .as_deref()
            .and_then(|value| value.chars().find(|c| matches!(c, '#' | ';' | '\n' | '\r')))
        {
            return Err(format!(
                "--{name}: {odd:?} would begin a comment or a line of a job file; give this value in a job file instead"
            ));
        }
        if name == "name" {
            // fio's results show `name` among the job's options.
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
