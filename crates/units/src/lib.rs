//! Types that every crate shares: instants and spans of time, kinds of operation, size classes,
//! lists of CPUs, and suggestions for misspelled names.
//!
//! Crates without I/O read no clock: their callers pass the time as [`Nanos`]. The engine reads its
//! clock once per batch, the simulator passes its virtual time.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds: an instant since an arbitrary origin, or a span. Arithmetic saturates: "never"
/// ([`Nanos::MAX`]) plus a span stays "never", and a clock that steps back yields zero.
///
/// With the feature `serde` it is read and written as a plain number.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize), serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin; also the empty span.
    pub const ZERO: Nanos = Nanos(0);
    /// Never; an unbounded span.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of `n` microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000))
    }

    /// A span of `n` milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000))
    }

    /// A span of `n` seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000_000))
    }

    /// The span in seconds, for rates and reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Nanos {
    type Err = String;

    /// Parses a decimal number and its unit: `30s`, `1.5ms`, `50us`, `100ns`. A fraction of a
    /// nanosecond is an error.
    fn from_str(text: &str) -> Result<Nanos, String> {
        // "s" comes last: it is a suffix of all the others.
        const UNITS: [(&str, u64); 5] =
            [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let span = || {
            let (number, unit) = UNITS
                .into_iter()
                .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // Digits only, as `parse` would accept a sign. At most nine of the fraction: in seconds
            // the ninth is a nanosecond, and `scale` stays within 64 bits.
            if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
                return None;
            }
            let scale = 10u64.pow(fraction.len() as u32);
            let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
            let nanos = whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part / scale)?;
            // 0.5ns is an error rather than rounded.
            part.is_multiple_of(scale).then_some(Nanos(nanos))
        };
        span().ok_or_else(|| format!("`{text}` is not a duration: write a number and its unit, ns, us, ms or s, as in 1.5ms"))
    }
}

impl From<Duration> for Nanos {
    /// A span that does not fit (more than 584 years) becomes [`Nanos::MAX`].
    fn from(span: Duration) -> Nanos {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(rhs.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("never"),
            // Up to four digits of the smaller unit: 9999 ns rather than 10.0 µs.
            n if n < 10_000 => write!(f, "{n} ns"),
            n if n < 10_000_000 => write!(f, "{:.1} µs", n as f64 / 1e3),
            n if n < 10_000_000_000 => write!(f, "{:.1} ms", n as f64 / 1e6),
            n => write!(f, "{:.1} s", n as f64 / 1e9),
        }
    }
}

/// The operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Moves data to the host.
    Read,
    /// Moves data to the device.
    Write,
    /// Moves no data; makes earlier writes durable.
    Flush,
    /// Moves no data; makes blocks read as zeroes.
    WriteZeroes,
    /// Moves no data; hints that the blocks' contents are no longer needed (TRIM).
    Deallocate,
    /// Moves data to the device, which compares it with the blocks' contents. Changes neither.
    Compare,
    /// Moves no data; the device checks that blocks are readable.
    Verify,
    /// Moves no data; makes blocks unreadable until they are written again.
    WriteUncorrectable,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 8] = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::WriteZeroes,
        Op::Deallocate,
        Op::Compare,
        Op::Verify,
        Op::WriteUncorrectable,
    ];

    /// Its name in the NVMe specification.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "Read",
            Op::Write => "Write",
            Op::Flush => "Flush",
            Op::WriteZeroes => "Write Zeroes",
            Op::Deallocate => "Deallocate",
            Op::Compare => "Compare",
            Op::Verify => "Verify",
            Op::WriteUncorrectable => "Write Uncorrectable",
        }
    }

    /// Whether it transfers the contents of blocks: Read and Write. Compare does not: the data that
    /// it moves to the device is only compared with them.
    pub fn transfers_blocks(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Whether it changes the blocks' contents. Executed late, after another write to the same
    /// blocks, it destroys newer data.
    pub fn changes_blocks(self) -> bool {
        matches!(self, Op::Write | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable)
    }
}

/// Commands with similar device times: Reads, or Writes, of one power-of-two band of sizes. Each
/// other operation is one class, for any number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(u8);

impl Class {
    /// Number of classes. Every [`Class::index`] is below it.
    pub const COUNT: usize = Self::SIZELESS + 6;
    const BANDS: usize = 12;
    /// The first of the classes that do not depend on the size.
    const SIZELESS: usize = 2 * Self::BANDS;

    /// The class of a command of `bytes` bytes. Bands: up to 512 B, up to 1 KiB, … up to 512 KiB,
    /// larger. `bytes` is ignored for operations other than Read and Write.
    pub fn new(op: Op, bytes: u32) -> Class {
        if !op.transfers_blocks() {
            return Class((Self::SIZELESS + op as usize - Op::Flush as usize) as u8);
        }
        // Minus 1 so that a power of two belongs to the band that it ends.
        let band = match bytes.saturating_sub(1) >> 9 {
            0 => 0,
            n => ((32 - n.leading_zeros()) as usize).min(Self::BANDS - 1),
        };
        Class((op as usize * Self::BANDS + band) as u8)
    }

    /// The class of an index from [`Class::index`].
    pub fn from_index(index: u8) -> Class {
        // An index out of range must not panic: it comes back from a packed token.
        Class(index.min(Self::COUNT as u8 - 1))
    }

    /// The largest size of the class in bytes. The last band has no upper limit and counts as 1
    /// MiB, a class that does not depend on the size as 512.
    pub fn most_bytes(self) -> u32 {
        if usize::from(self.0) >= Self::SIZELESS {
            // Never 0: callers use it as a weight.
            return 512;
        }
        512 << (usize::from(self.0) % Self::BANDS)
    }

    /// A dense index below [`Class::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Parses a list of CPUs such as `0-3,8,10-11`. Returns them in ascending order without duplicates.
///
/// # Errors
///
/// The text is not such a list; the message says why.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    /// Bounds the result of a range such as 0-4294967295. More than any machine has.
    const MAX_CPUS: u32 = 4096;
    let mut cpus = BTreeSet::new();
    let cpu = |text: &str| match text.trim().parse::<u32>() {
        Ok(n) if n < MAX_CPUS => Ok(n),
        Ok(n) => Err(format!("CPU {n} is too large; the maximum is {}", MAX_CPUS - 1)),
        Err(_) => Err(format!("'{}' is not the number of a CPU", text.trim())),
    };
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, _)) if first.trim().is_empty() => {
                return Err(format!(
                    "'{part}': there is no value before the dash; a dash separates two values, and neither may be negative"
                ));
            }
            Some((first, last)) => {
                let (first, last) = (cpu(first)?, cpu(last)?);
                if first > last {
                    return Err(format!(
                        "'{part}' is not a range of CPUs: it ends before it starts"
                    ));
                }
                cpus.extend(first..=last);
            }
            None => {
                cpus.insert(cpu(part)?);
            }
        }
    }
    Ok(cpus.into_iter().collect())
}

/// Formats ascending `cpus` as a list that [`cpus`] parses.
pub fn cpu_ranges(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|cpu, next| cpu.checked_add(1) == Some(*next));
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        single => single.iter().map(u32::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// The name closest to `given`, ignoring case, if one is close enough: at most four edits (insert,
/// delete, replace, swap), and at most half of the length of `given`, rounded up. `None` for more
/// than 64 bytes: no name is that long, and the distance takes quadratic time.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > 64 {
        return None;
    }
    let given = given.to_lowercase();
    let length = given.chars().count();
    let most = length.div_ceil(2).min(4);
    // To compute a distance takes time in proportion to the product of both lengths. It is at least
    // their difference, so names whose lengths differ by more than `most` are skipped first.
    let near = names.into_iter().filter(|name| name.chars().count().abs_diff(length) <= most);
    let distances = near.map(|name| (strsim::damerau_levenshtein(&given, name), name));
    distances.filter(|&(distance, _)| distance <= most).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
