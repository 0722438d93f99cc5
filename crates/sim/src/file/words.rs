//! The values that people write: times, sizes, CPUs, names.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Unexpected, Visitor};
use units::Nanos;

/// A span of time with its unit: `250ns`, `1.5us`, `20ms`, `3s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Nanos);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let no_time = || format!("`{text}` is not a time, such as \"20ms\"");
        if digits.is_empty() {
            return Err(no_time());
        }
        let factor = match unit.trim() {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "" => return Err(format!("`{text}` lacks its unit: ns, us, ms or s")),
            other => return Err(format!("`{other}` is not a unit of time: ns, us, ms or s")),
        };
        let nanos = digits.parse::<f64>().map_err(|_| no_time())? * factor;
        // A year is beyond anything that will be simulated.
        if nanos < 4e16 { Ok(Time(Nanos(nanos.round() as u64))) } else { Err(format!("`{text}` is too long")) }
    }
}

/// A span of time of which there has to be some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lasting(pub(super) Nanos);

impl FromStr for Lasting {
    type Err = String;

    fn from_str(text: &str) -> Result<Lasting, String> {
        match text.parse()? {
            Time(Nanos::ZERO) => Err(format!("`{text}` is no time at all: it has to be more")),
            Time(nanos) => Ok(Lasting(nanos)),
        }
    }
}

/// A number of bytes: `4k`, `64M`, `1G`, in powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            other => return Err(format!("`{other}` is not a unit of size: k, M, G or T")),
        };
        let n = digits.parse::<u64>().map_err(|_| format!("`{text}` is not a size, such as \"64M\""))?;
        n.checked_mul(1 << shift).map(Bytes).ok_or_else(|| format!("`{text}` is too large"))
    }
}

/// CPUs in the order given: `"0-3,8"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cpus(pub(super) Vec<u32>);

/// More CPUs than any machine that can be simulated has.
const MOST_LISTED: usize = 4096;

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim) {
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| format!("`{part}` is not a CPU, such as \"0-3,8\""));
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if last < first {
                return Err(format!("`{part}`: the range ends before it begins"));
            }
            if cpus.len() + (last - first) as usize >= MOST_LISTED {
                return Err(format!("`{text}` lists more than {MOST_LISTED} CPUs"));
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

/// A value that is read from a string: whatever is wrong with it is reported where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Word).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        Word::deserialize(deserializer).map(|Word(time)| time)
    }
}

/// A size as a string, or as a number of bytes.
impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, such as \"64M\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Bytes, E> {
                u64::try_from(n).map(Bytes).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// CPUs as a string, as one number, or as a list of numbers.
impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cpus, D::Error> {
        struct Listed;
        impl<'de> Visitor<'de> for Listed {
            type Value = Cpus;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("CPUs, such as \"0-3,8\" or [0, 1, 2, 3, 8]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cpus, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Cpus, E> {
                u32::try_from(n).map(|n| Cpus(vec![n])).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cpus, A::Error> {
                let mut cpus = Vec::new();
                while let Some(cpu) = list.next_element()? {
                    cpus.push(cpu);
                }
                Ok(Cpus(cpus))
            }
        }
        deserializer.deserialize_any(Listed)
    }
}
