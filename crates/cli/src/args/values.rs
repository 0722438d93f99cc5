//! What options take: numbers, percentages, lists.

use std::ffi::OsStr;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use completion::Mode;

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

/// What `parse` takes, with names that a shell offers for it. It need not be one of these.
#[derive(Clone)]
pub struct Offering<F> {
    parse: F,
    names: Vec<String>,
}

/// See [`Offering`].
pub fn offering<F>(parse: F, names: impl IntoIterator<Item = impl ToString>) -> Offering<F> {
    Offering { parse, names: names.into_iter().map(|name| name.to_string()).collect() }
}

impl<T, E, F> TypedValueParser for Offering<F>
where
    F: Fn(&str) -> Result<T, E> + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        TypedValueParser::parse_ref(&self.parse, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// Every mode: those that are also the kernel's own where `kernels`.
pub fn modes(kernels: bool) -> impl Iterator<Item = Mode> {
    Mode::ALL.into_iter().chain(Mode::registered()).chain(Mode::KERNELS.into_iter().filter(move |_| kernels))
}

/// CPUs by number, as `cpus_allowed` of a job has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<u32>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        workload::fio::cpus(text).map(Cpus)
    }
}

/// How many seeds, or which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first, if it is named.
    pub first: Option<u64>,
    /// How many.
    pub count: u32,
}

/// `8`, or `9-16`.
impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let counted = whole::<u32>(1..=10_000);
        let Some((first, last)) = text.split_once('-') else {
            return counted(text).map(|count| Seeds { first: None, count }).map_err(|what| format!("{what}, or a range like 9-16"));
        };
        let ends = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
        let (first, last) = ends.filter(|(first, last)| first <= last).ok_or("give a range of seeds like 9-16")?;
        let count = (last - first).checked_add(1).and_then(|count| counted(&count.to_string()).ok());
        Ok(Seeds { first: Some(first), count: count.ok_or("a range has at most 10000 seeds")? })
    }
}

/// A percentage of this range, whole, with its sign or without.
pub fn percent<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    let whole = whole(range);
    move |text| whole(without_sign(text)).map_err(|what| format!("{what}, in per cent"))
}

/// A completion mode, at no setting of its own.
pub fn mode(text: &str) -> Result<Mode, String> {
    if text.contains('@') {
        return Err("only `compare` takes a setting for each mode: a scenario's `latency_price` is that of all its runs".to_owned());
    }
    text.parse().map_err(|error: completion::ModeError| error.to_string())
}

/// A completion mode, of Reap's or the kernel's own.
pub fn any_mode(text: &str) -> Result<Mode, String> {
    Mode::parse_any(text).map_err(|error| error.to_string())
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
///
/// # Errors
/// It does.
pub fn once<T: PartialEq + Display>(option: &str, list: &[T]) -> Result<()> {
    match list.iter().enumerate().find_map(|(at, one)| list[..at].contains(one).then_some(one)) {
        Some(twice) => bail!("{option} names {twice} twice: leave one of them out"),
        None => Ok(()),
    }
}
