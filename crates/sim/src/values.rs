//! Parsing of values with units in scenario files.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use toml::Value;
use units::Nanos;

/// A value that is parsed from a string. Errors name the string's line and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word<T>(pub(crate) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Word).map_err(de::Error::custom)
    }
}

/// A time with its unit: `250ns`, `1.5us`, `20ms`, `3s`. Below a year, which no run reaches.
pub(crate) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let Word(time) = Word::<Nanos>::deserialize(deserializer)?;
    if time < Nanos::from_secs(40_000_000) {
        Ok(time)
    } else {
        Err(de::Error::custom(format!("{time} is too long")))
    }
}

/// A time that is not zero.
pub(crate) fn nonzero_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    match time(deserializer)? {
        Nanos::ZERO => Err(de::Error::custom("it must be more than 0")),
        time => Ok(time),
    }
}

pub(crate) fn some_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Nanos>, D::Error> {
    time(deserializer).map(Some)
}

pub(crate) fn some_nonzero_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Nanos>, D::Error> {
    nonzero_time(deserializer).map(Some)
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Bytes::deserialize(deserializer).map(|Bytes(bytes)| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// A number of bytes: `4k`, `64M`, `1G`, in powers of 1024, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let no_size = |text: &dyn fmt::Display| {
            de::Error::custom(format!("`{text}` is not a size; write it as \"64M\""))
        };
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            Value::Integer(n) if n >= 0 => return Ok(Bytes(n as u64)),
            other => return Err(no_size(&other)),
        };
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            other => {
                return Err(de::Error::custom(format!(
                    "`{other}` is not a unit of size: k, M, G or T"
                )));
            }
        };
        let n = digits.parse::<u64>().map_err(|_| no_size(&text))?;
        n.checked_mul(1 << shift)
            .map(Bytes)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is too large")))
    }
}
