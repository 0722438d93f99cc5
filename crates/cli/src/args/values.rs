//! What options take: numbers, percentages, lists.

use std::ffi::OsStr;
use std::fmt::Display;
use std::ops::RangeInclusive;

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
pub fn once<T: PartialEq + Display>(option: &str, list: &[T]) -> Result<()> {
    match list.iter().enumerate().find_map(|(at, one)| list[..at].contains(one).then_some(one)) {
        Some(twice) => bail!("{option} names {twice} twice: leave one of them out"),
        None => Ok(()),
    }
}
