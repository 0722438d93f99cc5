//! Scripts of timed changes: plain data, and a text form of a line for each.
//!
//! ```text
//! # Path 0 is pulled out, comes back, and is slow for a while.
//! at 200ms path 1 ana inaccessible
//! at 300ms path 0 lost
//! at 1s    path 0 back
//! at 1.5s  path 0 delay 30ms
//! at 2s    path 1 ana change group 2; at 2.2s path 1 ana optimized group 2
//! at 3s    path 0 lost frozen
//! at 4s    path 0 hold writes
//! at 5s    path 0 release
//! at 6s    path 1 resize 2048; at 6s path 1 resize 1024 namespace 2
//! at 7s    path 0 power-lost
//! at 8s    path 0 fail
//! at 9s    path 0 reset-takes 3s; at 20s path 0 reset-takes forever
//! at 30s   path 0 wrong-status 0x281; at 31s path 0 wrong-status 0x6 times 3
//! at 40s   path 0 wrong-cid; at 41s path 0 lose-message times 2
//! ```

use std::fmt;
use std::str::FromStr;

use nvme::{AnaState, Nsid, Status};
use units::{Nanos, Op};

use super::change::{Change, Loss};

/// What a step can begin with, after its path.
const CHANGES: &str =
    "ana, lost, back, delay, hold, release, resize, power-lost, fail, reset-takes, wrong-status, wrong-cid and lose-message";

/// A change at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When, from the start of the script.
    pub at: Nanos,
    /// Which controller, from 0.
    pub path: usize,
    /// What happens to it.
    pub change: Change,
}

/// What happens to the controllers of a subsystem, and when. Steps at one instant happen in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The steps, in any order of time.
    pub steps: Vec<Timed>,
}

/// A script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ScriptError {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What is wrong there, and what could stand there.
    pub what: String,
}

impl Script {
    /// The script with one more step.
    #[must_use]
    pub fn with(mut self, at: Nanos, path: usize, change: Change) -> Script {
        self.steps.push(Timed { at, path, change });
        self
    }

    /// When the last step happens, from the start; zero if there is none.
    pub fn end(&self) -> Nanos {
        self.steps.iter().map(|step| step.at).fold(Nanos::ZERO, Nanos::max)
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Script, ScriptError> {
        let mut steps = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line_without_comment = line.split('#').next().unwrap_or_default();
            let mut start = 0;
            for step in line_without_comment.split(';') {
                let mut words = Words { line: n + 1, before: start, rest: step };
                start += step.chars().count() + 1;
                if !words.is_over() {
                    steps.push(words.step()?);
                }
            }
        }
        Ok(Script { steps })
    }
}

impl FromStr for Change {
    type Err = ScriptError;

    /// What stands in a step after the path: `lost`, `ana non-optimized`, `delay 30ms`.
    fn from_str(text: &str) -> Result<Change, ScriptError> {
        let mut words = Words { line: 1, before: 0, rest: text };
        let change = words.change()?;
        words.end()?;
        Ok(change)
    }
}

/// The words of one step, and where they stand.
struct Words<'a> {
    line: usize,
    /// Characters before `rest`.
    before: usize,
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn skip_spaces(&mut self) {
        let rest = self.rest.trim_start();
        self.before += self.rest.chars().count() - rest.chars().count();
        self.rest = rest;
    }

    fn is_over(&mut self) -> bool {
        self.skip_spaces();
        self.rest.is_empty()
    }

    /// The next word, with the error that it is, should it be wrong.
    fn next(&mut self, expected: &str) -> Result<(&'a str, impl Fn(String) -> ScriptError + use<>), ScriptError> {
        self.skip_spaces();
        let (line, column) = (self.line, self.before + 1);
        let error = move |what| ScriptError { line, column, what };
        if self.rest.is_empty() {
            return Err(error(format!("{expected} is missing")));
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.before += word.chars().count();
        self.rest = rest;
        Ok((word, error))
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), ScriptError> {
        match self.next(&format!("`{keyword}`"))? {
            (word, _) if word == keyword => Ok(()),
            (word, error) => Err(error(format!("`{word}` should be `{keyword}`: a step reads `at TIME path NUMBER CHANGE`"))),
        }
    }

    fn step(&mut self) -> Result<Timed, ScriptError> {
        self.keyword("at")?;
        let at = self.time()?;
        self.keyword("path")?;
        let (word, error) = self.next("the number of a path")?;
        let path = word.parse().map_err(|_| error(format!("`{word}` is no path: they are numbers, from 0")))?;
        let change = self.change()?;
        self.end()?;
        Ok(Timed { at, path, change })
    }

    fn end(&mut self) -> Result<(), ScriptError> {
        if self.is_over() {
            return Ok(());
        }
        let (word, error) = self.next("nothing")?;
        Err(error(format!("`{word}` is more than the step needs; steps end at the end of the line or at a `;`")))
    }

    fn time(&mut self) -> Result<Nanos, ScriptError> {
        let (word, error) = self.next("a time")?;
        parse_time(word).ok_or_else(|| error(format!("`{word}` is no time: write a number and its unit, ns, us, ms or s, as in 1.5ms")))
    }

    fn change(&mut self) -> Result<Change, ScriptError> {
        let (word, error) = self.next(&format!("a change ({CHANGES})"))?;
        Ok(match word {
            "ana" => self.ana()?,
            "lost" if self.is_over() => Change::Lost(Loss::Gone),
            "lost" => match self.next("`frozen`")? {
                ("frozen", _) => Change::Lost(Loss::Frozen),
                (word, error) => return Err(error(format!("`{word}` is no way to be lost: write `lost`, or `lost frozen`"))),
            },
            "back" => Change::Back,
            "delay" => Change::Delay(self.time()?),
            "hold" if self.is_over() => Change::Hold(None),
            "hold" => match self.next("a kind of command")? {
                ("reads", _) => Change::Hold(Some(Op::Read)),
                ("writes", _) => Change::Hold(Some(Op::Write)),
                ("flushes", _) => Change::Hold(Some(Op::Flush)),
                ("zeroes", _) => Change::Hold(Some(Op::WriteZeroes)),
                ("deallocates", _) => Change::Hold(Some(Op::Deallocate)),
                ("compares", _) => Change::Hold(Some(Op::Compare)),
                ("verifies", _) => Change::Hold(Some(Op::Verify)),
                ("uncorrectables", _) => Change::Hold(Some(Op::WriteUncorrectable)),
                (word, error) => {
                    let kinds = "reads, writes, flushes, zeroes, deallocates, compares, verifies or uncorrectables";
                    return Err(error(format!("`{word}` cannot be held: write {kinds}, or nothing for all")));
                }
            },
            "release" => Change::Release,
            "resize" => self.resize()?,
            "power-lost" => Change::PowerLost,
            "fail" => Change::Fail,
            "reset-takes" => Change::ResetTakes(self.time_or_forever()?),
            "wrong-status" => Change::WrongStatus { status: self.status()?, times: self.times()? },
            "wrong-cid" => Change::WrongCid(self.times()?),
            "lose-message" => Change::LoseMessage(self.times()?),
            _ => return Err(error(format!("`{word}` is no change: there are {CHANGES}"))),
        })
    }

    fn time_or_forever(&mut self) -> Result<Nanos, ScriptError> {
        self.skip_spaces();
        match self.rest.split_whitespace().next() {
            Some("forever") => self.next("").map(|_| Nanos::MAX),
            _ => self.time(),
        }
    }

    /// A status as `nvme` and the kernel print it: Status Code Type and Status Code, and maybe Do Not Retry.
    fn status(&mut self) -> Result<Status, ScriptError> {
        let (word, error) = self.next("a status")?;
        let number = word.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
        number.map(Status).filter(|status| status.0 <= 0x7fff && !status.is_success()).ok_or_else(|| {
            error(format!(
                "`{word}` is no status of a failure: write its type and code in hexadecimal, as 0x281, with 0x4000 for Do Not Retry"
            ))
        })
    }

    /// How often something happens: once, unless it says.
    fn times(&mut self) -> Result<u32, ScriptError> {
        if self.is_over() {
            return Ok(1);
        }
        self.keyword("times")?;
        Ok(u32::try_from(self.number("a number of times", 1)?).unwrap_or(u32::MAX))
    }

    fn resize(&mut self) -> Result<Change, ScriptError> {
        let blocks = self.number("a number of logical blocks", 0)?;
        if self.is_over() {
            return Ok(Change::Resize { nsid: Nsid(1), blocks });
        }
        self.keyword("namespace")?;
        let nsid = self.number("a namespace identifier", 1)?;
        Ok(Change::Resize { nsid: Nsid(u32::try_from(nsid).unwrap_or(u32::MAX)), blocks })
    }

    /// A whole number, `least` at least.
    fn number(&mut self, what: &str, least: u64) -> Result<u64, ScriptError> {
        let (word, error) = self.next(what)?;
        word.parse()
            .ok()
            .filter(|&n| n >= least)
            .ok_or_else(|| error(format!("`{word}` is not {what}: write a whole number, from {least}")))
    }

    fn ana(&mut self) -> Result<Change, ScriptError> {
        let (word, error) = self.next("an ANA state")?;
        let state = AnaState::ALL.into_iter().find(|state| state.name() == Some(word)).ok_or_else(|| {
            let names: Vec<_> = AnaState::ALL.iter().filter_map(|state| state.name()).collect();
            error(format!("`{word}` is no ANA state: there are {}", names.join(", ")))
        })?;
        if self.is_over() {
            return Ok(Change::Ana { group: None, state });
        }
        self.keyword("group")?;
        let (word, error) = self.next("the number of an ANA group")?;
        match word.parse() {
            Ok(group) if group > 0 => Ok(Change::Ana { group: Some(group), state }),
            _ => Err(error(format!("`{word}` is no ANA group: they are numbers, from 1"))),
        }
    }
}

/// A decimal number and its unit, exactly; `None` if it is none, or has a fraction of a nanosecond.
fn parse_time(word: &str) -> Option<Nanos> {
    const UNITS: [(&str, u64); 5] = [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (number, unit) = UNITS.into_iter().find_map(|(name, unit)| Some((word.strip_suffix(name)?, unit)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(fraction.len() as u32);
    let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
    let nanos = whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part / scale)?;
    part.is_multiple_of(scale).then_some(Nanos(nanos))
}

/// The shortest way to write a time that reads back the same.
fn write_time(time: Nanos) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let whole = units.into_iter().find(|(_, unit)| time.0 > 0 && time.0.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{}ns", time.0), |(name, unit)| format!("{}{name}", time.0 / unit))
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} path {} {}", write_time(self.at), self.path, self.change)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Ana { group: None, state } => write!(f, "ana {state}"),
            Change::Ana { group: Some(group), state } => write!(f, "ana {state} group {group}"),
            Change::Lost(Loss::Gone) => f.write_str("lost"),
            Change::Lost(Loss::Frozen) => f.write_str("lost frozen"),
            Change::Back => f.write_str("back"),
            Change::Delay(by) => write!(f, "delay {}", write_time(*by)),
            Change::Hold(None) => f.write_str("hold"),
            Change::Hold(Some(Op::Read)) => f.write_str("hold reads"),
            Change::Hold(Some(Op::Write)) => f.write_str("hold writes"),
            Change::Hold(Some(Op::Flush)) => f.write_str("hold flushes"),
            Change::Hold(Some(Op::WriteZeroes)) => f.write_str("hold zeroes"),
            Change::Hold(Some(Op::Deallocate)) => f.write_str("hold deallocates"),
            Change::Hold(Some(Op::Compare)) => f.write_str("hold compares"),
            Change::Hold(Some(Op::Verify)) => f.write_str("hold verifies"),
            Change::Hold(Some(Op::WriteUncorrectable)) => f.write_str("hold uncorrectables"),
            Change::Release => f.write_str("release"),
            Change::Resize { nsid: Nsid(1), blocks } => write!(f, "resize {blocks}"),
            Change::Resize { nsid, blocks } => write!(f, "resize {blocks} namespace {nsid}"),
            Change::PowerLost => f.write_str("power-lost"),
            Change::Fail => f.write_str("fail"),
            Change::ResetTakes(Nanos::MAX) => f.write_str("reset-takes forever"),
            Change::ResetTakes(time) => write!(f, "reset-takes {}", write_time(*time)),
            Change::WrongStatus { status, times } => write!(f, "wrong-status {:#x}{}", status.0, Times(*times)),
            Change::WrongCid(times) => write!(f, "wrong-cid{}", Times(*times)),
            Change::LoseMessage(times) => write!(f, "lose-message{}", Times(*times)),
        }
    }
}

/// How often, unless it is once.
struct Times(u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1 { Ok(()) } else { write!(f, " times {}", self.0) }
    }
}

#[cfg(test)]
mod tests;
