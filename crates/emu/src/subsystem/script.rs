//! Changes to running controllers (faults, resets, ANA states) and scripts of timed changes, with a
//! text form of one step per line.
//!
//! ```text
//! # Path 0 is removed, comes back, and is slow for a while.
//! at 200ms path 1 ana inaccessible
//! at 300ms path 0 lost
//! at 1s    path 0 back
//! at 1.5s  path 0 delay 30ms
//! at 2s    path 1 ana change group 2; at 2.2s path 1 ana optimized group 2
//! at 4s    path 0 hold writes
//! at 5s    path 0 release
//! at 6s    path 1 resize 1024 namespace 2
//! at 9s    path 0 reset-takes 3s; at 20s path 0 reset-takes forever
//! at 31s   path 0 wrong-status 0x6 times 3; at 41s path 0 lose-message
//! ```

use std::fmt;
use std::str::FromStr;

use nvme::{AnaState, Nsid, Status};
use units::{Nanos, Op};

use crate::{Fault, MediaFault};

/// How the connection to a controller is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Registers read as all ones: the link is down, or the device was removed.
    Gone,
    /// Registers keep their values: to the host the controller seems to hang.
    Frozen,
}

/// A change of a running controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the ANA state of a group, or of all groups (Base 8.1.1). The Change state lasts until
    /// the next change; ANATT is not enforced.
    Ana {
        /// The group; `None`: all.
        group: Option<u32>,
        /// The new state.
        state: AnaState,
    },
    /// Disconnects host and controller. The controller fetches nothing, completes nothing, and does
    /// not access host memory. Writes that were fetched are executed when they are due, until the
    /// Keep Alive Timer has expired and the Command Quiesce Time has passed.
    Lost(Loss),
    /// Reconnects host and controller. A controller that was enabled reports CSTS.CFS and needs a
    /// reset; until then it may still execute writes fetched before.
    Back,
    /// If true, fetched writes of a lost path are executed even after the Keep Alive Timeout and
    /// the Command Quiesce Time (CQT), within which a controller has to stop (Base 9.6).
    ExceedCqt(bool),
    /// Adds this time to every command.
    Delay(Nanos),
    /// Holds commands of this kind, or of any if `None`, that are fetched from now on.
    Hold(Option<Op>),
    /// Releases the held commands and stops holding.
    Release,
    /// Changes the size of a namespace, in logical blocks, up to that of its medium, and raises a
    /// Namespace Attribute Changed event. Other controllers keep the old size.
    Resize {
        /// The namespace.
        nsid: Nsid,
        /// The new size in logical blocks.
        blocks: u64,
    },
    /// Power loss: commands in service are dropped, the path is lost, and the health log counts the
    /// power cycle. The content of the medium is lost only as far as a cache fault
    /// ([`MediaFault::Cache`]) holds it.
    PowerLost,
    /// Sets CSTS.CFS until the host resets the controller.
    Fail,
    /// Applies a fault to the TCP connections of a fabrics controller.
    Wire(Wire),
    /// Injects a fault into the medium of a namespace, for all controllers.
    Media {
        /// The namespace.
        nsid: Nsid,
        /// The fault.
        fault: MediaFault,
    },
    /// Time from a change of CC.EN to CSTS.RDY, in both directions; [`Nanos::MAX`]: never. CAP.TO
    /// is not changed.
    ResetTakes(Nanos),
    /// Injects a fault into the next `times` commands, entries or messages (whichever the fault
    /// concerns) of the I/O queues.
    Fault {
        /// The fault.
        fault: Fault,
        /// Number of occurrences.
        times: u32,
    },
}

/// A fault of NVMe/TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Closes all connections by RST.
    Drop,
    /// Closes the connections of I/O queues by RST after this many more bytes were sent.
    Cut(u64),
    /// Receives nothing from any connection for this time.
    Stall(Nanos),
    /// True: completions that are ready at the same time are sent in reverse order. False: in order
    /// again.
    Reorder(bool),
    /// Terminates all connections by C2HTermReq with this FES.
    Terminate(u16),
    /// Makes this number of header digests on I/O queues wrong.
    HeaderDigest(u32),
    /// Makes this number of data digests on I/O queues wrong.
    DataDigest(u32),
    /// Makes this number of R2Ts request data beyond those of their command.
    R2t(u32),
}

/// A change at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Time from the start of the script.
    pub at: Nanos,
    /// Index of the controller, from 0.
    pub path: usize,
    /// The change.
    pub change: Change,
}

/// Timed changes to the controllers of a subsystem. Steps with equal times are applied in the order
/// given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The steps, in any order.
    pub steps: Vec<Timed>,
}

/// A script that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and what is allowed there.
    pub what: String,
}

/// A command at a control socket, as `reap ctl` sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// `fault CHANGE`: applies a change now, in the syntax of a [`Script`].
    Fault(Change),
    /// `status`: reports the state of the controller.
    Status,
}

/// Kinds of commands that can be held.
const KINDS: [(&str, Op); 8] = [
    ("reads", Op::Read),
    ("writes", Op::Write),
    ("flushes", Op::Flush),
    ("zeroes", Op::WriteZeroes),
    ("deallocates", Op::Deallocate),
    ("compares", Op::Compare),
    ("verifies", Op::Verify),
    ("uncorrectables", Op::WriteUncorrectable),
];

/// Syntax of all changes, for error messages.
const CHANGES: &str = "ana STATE [group N], lost [frozen], back, exceed-cqt, keep-cqt, delay TIME, hold [KIND], release, resize BLOCKS [namespace N], power-lost, fail, \
    reset-takes TIME, reset-takes forever, drop, cut BYTES, stall TIME, reorder, in-order, terminate FES, rot LBA, volatile-cache, lying-flush, \
    honest-flush (the last four with [namespace N]), and, each with [times N]: wrong-status STATUS, wrong-cid, stale-cid, double-entry, wrong-phase, \
    swallow-entry, swallow-command, fatal, lose-message, double-message, delay-message TIME, wrong-header-digest, wrong-data-digest, wrong-r2t, \
    misdirected-write, phantom-write";

impl Script {
    /// Adds a step.
    #[must_use]
    pub fn with(mut self, at: Nanos, path: usize, change: Change) -> Script {
        self.steps.push(Timed { at, path, change });
        self
    }

    /// Time of the last step from the start; zero for an empty script.
    pub fn end(&self) -> Nanos {
        self.steps.iter().map(|step| step.at).fold(Nanos::ZERO, Nanos::max)
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Script, ScriptError> {
        let mut steps = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default();
            for step in text.split(';').map(words).filter(|words| !words.is_empty()) {
                steps.push(timed(&step).map_err(|what| ScriptError { line, what })?);
            }
        }
        Ok(Script { steps })
    }
}

impl FromStr for Change {
    type Err = ScriptError;

    /// Parses the part of a step after the path: `lost`, `ana non-optimized`, `delay 30ms`.
    fn from_str(text: &str) -> Result<Change, ScriptError> {
        change(&words(text)).map_err(|what| ScriptError { line: 1, what })
    }
}

impl FromStr for ControlCommand {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<ControlCommand, ScriptError> {
        match *words(text) {
            ["status"] => Ok(ControlCommand::Status),
            ["fault", ref rest @ ..] => change(rest).map(ControlCommand::Fault),
            _ => Err(format!(
                "`{}` is not a control command; the commands are `status` and `fault CHANGE`",
                text.trim()
            )),
        }
        .map_err(|what| ScriptError { line: 1, what })
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn timed(words: &[&str]) -> Result<Timed, String> {
    let ["at", at, "path", path, rest @ ..] = words else {
        return Err(format!(
            "`{}` is not a step; a step is `at TIME path NUMBER CHANGE`",
            words.join(" ")
        ));
    };
    let path =
        path.parse().map_err(|_| format!("`{path}` is not a path; paths are numbers, from 0"))?;
    Ok(Timed { at: at.parse()?, path, change: change(rest)? })
}

fn change(words: &[&str]) -> Result<Change, String> {
    Ok(match *words {
        ["ana", state] => Change::Ana { group: None, state: ana_state(state)? },
        ["ana", state, "group", group] => {
            Change::Ana { group: Some(number(group, 1)?), state: ana_state(state)? }
        }
        ["lost"] => Change::Lost(Loss::Gone),
        ["lost", "frozen"] => Change::Lost(Loss::Frozen),
        ["back"] => Change::Back,
        ["exceed-cqt"] => Change::ExceedCqt(true),
        ["keep-cqt"] => Change::ExceedCqt(false),
        ["delay", by] => Change::Delay(by.parse()?),
        ["hold"] => Change::Hold(None),
        ["hold", kind] => match KINDS.iter().find(|(name, _)| *name == kind) {
            Some(&(_, op)) => Change::Hold(Some(op)),
            None => {
                return Err(format!(
                    "`{kind}` cannot be held: write {}, or nothing for all",
                    KINDS.map(|(name, _)| name).join(", ")
                ));
            }
        },
        ["release"] => Change::Release,
        ["resize", blocks] => Change::Resize { nsid: Nsid(1), blocks: number(blocks, 0)? },
        ["resize", blocks, "namespace", nsid] => {
            Change::Resize { nsid: Nsid(number(nsid, 1)?), blocks: number(blocks, 0)? }
        }
        ["power-lost"] => Change::PowerLost,
        ["fail"] => Change::Fail,
        ["reset-takes", "forever"] => Change::ResetTakes(Nanos::MAX),
        ["reset-takes", span] => Change::ResetTakes(span.parse()?),
        ["drop"] => Change::Wire(Wire::Drop),
        ["cut", bytes] => Change::Wire(Wire::Cut(number(bytes, 0)?)),
        ["stall", time] => Change::Wire(Wire::Stall(time.parse()?)),
        ["reorder"] => Change::Wire(Wire::Reorder(true)),
        ["in-order"] => Change::Wire(Wire::Reorder(false)),
        ["terminate", fes] => Change::Wire(Wire::Terminate(number(fes, 1)?)),
        [ref fault @ .., "namespace", nsid] if let Some(fault) = media_fault(fault)? => {
            Change::Media { nsid: Nsid(number(nsid, 1)?), fault }
        }
        ref fault if let Some(fault) = media_fault(fault)? => {
            Change::Media { nsid: Nsid(1), fault }
        }
        ref fault if let Some(wire) = wire_fault(fault)? => Change::Wire(wire),
        [ref fault @ .., "times", times] => {
            Change::Fault { fault: self::fault(fault)?, times: number(times, 1)? }
        }
        ref fault => Change::Fault { fault: self::fault(fault)?, times: 1 },
    })
}

/// Splits off `times N`, if present.
fn with_times<'a>(words: &'a [&'a str]) -> Result<(&'a [&'a str], u32), String> {
    match words {
        [fault @ .., "times", times] => Ok((fault, number(times, 1)?)),
        fault => Ok((fault, 1)),
    }
}

/// Parses a fault of a medium; `None` if the words are something else.
fn media_fault(words: &[&str]) -> Result<Option<MediaFault>, String> {
    let (words, times) = with_times(words)?;
    Ok(Some(match *words {
        ["rot", lba] => MediaFault::Rot(number(lba, 0)?),
        ["misdirected-write"] => MediaFault::Misdirected(times),
        ["phantom-write"] => MediaFault::Phantom(times),
        ["volatile-cache"] => MediaFault::Cache,
        ["lying-flush"] => MediaFault::LyingFlush,
        ["honest-flush"] => MediaFault::HonestFlush,
        _ => return Ok(None),
    }))
}

/// Parses a protocol error of a connection; `None` if the words are something else.
fn wire_fault(words: &[&str]) -> Result<Option<Wire>, String> {
    let (words, times) = with_times(words)?;
    Ok(Some(match *words {
        ["wrong-header-digest"] => Wire::HeaderDigest(times),
        ["wrong-data-digest"] => Wire::DataDigest(times),
        ["wrong-r2t"] => Wire::R2t(times),
        _ => return Ok(None),
    }))
}

/// Writes `times N` after a fault.
fn write_times(f: &mut fmt::Formatter<'_>, fault: &str, times: u32) -> fmt::Result {
    f.write_str(fault)?;
    if times == 1 { Ok(()) } else { write!(f, " times {times}") }
}

fn fault(words: &[&str]) -> Result<Fault, String> {
    Ok(match *words {
        ["wrong-status", status] => Fault::Status(self::status(status)?),
        ["wrong-cid"] => Fault::UnknownCid,
        ["stale-cid"] => Fault::StaleCid,
        ["double-entry"] => Fault::DoubleEntry,
        ["wrong-phase"] => Fault::WrongPhase,
        ["swallow-entry"] => Fault::SwallowEntry,
        ["swallow-command"] => Fault::SwallowCommand,
        ["fatal"] => Fault::Fatal,
        ["lose-message"] => Fault::LoseMessage,
        ["double-message"] => Fault::DoubleMessage,
        ["delay-message", by] => Fault::DelayMessage(by.parse()?),
        _ => {
            return Err(format!(
                "`{}` is not a change; the changes are {CHANGES}",
                words.join(" ")
            ));
        }
    })
}

/// Parses a whole number of at least `least`.
fn number<N: FromStr + PartialOrd + From<u8> + fmt::Display>(
    word: &str,
    least: u8,
) -> Result<N, String> {
    let number = word.parse().ok().filter(|number| *number >= N::from(least));
    number.ok_or_else(|| match word.parse::<u64>() {
        Ok(number) if number >= least.into() => format!("`{word}` is too large"),
        _ => format!("`{word}` is not a whole number from {least}"),
    })
}

fn ana_state(word: &str) -> Result<AnaState, String> {
    AnaState::ALL.into_iter().find(|state| state.name() == Some(word)).ok_or_else(|| {
        let names: Vec<_> = AnaState::ALL.iter().filter_map(|state| state.name()).collect();
        format!("`{word}` is not an ANA state; the states are {}", names.join(", "))
    })
}

/// Parses a status as `nvme` and the kernel print it: Status Code Type and Status Code, optionally
/// Do Not Retry.
fn status(word: &str) -> Result<Status, String> {
    let number = word.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
    number.map(Status).filter(|status| status.0 <= 0x7fff && !status.is_success()).ok_or_else(|| {
        format!("`{word}` is not an error status: write its type and code in hexadecimal, as 0x281, with 0x4000 for Do Not Retry")
    })
}

/// The shortest notation of a time that parses to the same value.
fn write_time(time: Nanos) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let whole = units.into_iter().find(|(_, unit)| time.0 > 0 && time.0.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{}ns", time.0), |(name, unit)| format!("{}{name}", time.0 / unit))
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |Timed { at, path, change }: &Timed| {
            writeln!(f, "at {} path {path} {change}", write_time(*at))
        };
        self.steps.iter().try_for_each(write)
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
            Change::ExceedCqt(true) => f.write_str("exceed-cqt"),
            Change::ExceedCqt(false) => f.write_str("keep-cqt"),
            Change::Delay(by) => write!(f, "delay {}", write_time(*by)),
            Change::Hold(None) => f.write_str("hold"),
            Change::Hold(Some(op)) => write!(
                f,
                "hold {}",
                KINDS.iter().find(|(_, of)| of == op).map_or("", |(name, _)| name)
            ),
            Change::Release => f.write_str("release"),
            Change::Resize { nsid: Nsid(1), blocks } => write!(f, "resize {blocks}"),
            Change::Resize { nsid, blocks } => write!(f, "resize {blocks} namespace {nsid}"),
            Change::PowerLost => f.write_str("power-lost"),
            Change::Fail => f.write_str("fail"),
            Change::ResetTakes(Nanos::MAX) => f.write_str("reset-takes forever"),
            Change::ResetTakes(time) => write!(f, "reset-takes {}", write_time(*time)),
            Change::Wire(wire) => match wire {
                Wire::Drop => f.write_str("drop"),
                Wire::Cut(bytes) => write!(f, "cut {bytes}"),
                Wire::Stall(time) => write!(f, "stall {}", write_time(*time)),
                Wire::Reorder(true) => f.write_str("reorder"),
                Wire::Reorder(false) => f.write_str("in-order"),
                Wire::Terminate(fes) => write!(f, "terminate {fes}"),
                Wire::HeaderDigest(times) => write_times(f, "wrong-header-digest", *times),
                Wire::DataDigest(times) => write_times(f, "wrong-data-digest", *times),
                Wire::R2t(times) => write_times(f, "wrong-r2t", *times),
            },
            Change::Media { nsid, fault } => {
                match fault {
                    MediaFault::Rot(lba) => write!(f, "rot {lba}"),
                    MediaFault::Misdirected(times) => write_times(f, "misdirected-write", *times),
                    MediaFault::Phantom(times) => write_times(f, "phantom-write", *times),
                    MediaFault::Cache => f.write_str("volatile-cache"),
                    MediaFault::LyingFlush => f.write_str("lying-flush"),
                    MediaFault::HonestFlush => f.write_str("honest-flush"),
                }?;
                if *nsid == Nsid(1) { Ok(()) } else { write!(f, " namespace {nsid}") }
            }
            Change::Fault { fault, times } => {
                match fault {
                    Fault::Status(status) => write!(f, "wrong-status {:#x}", status.0)?,
                    Fault::UnknownCid => f.write_str("wrong-cid")?,
                    Fault::StaleCid => f.write_str("stale-cid")?,
                    Fault::DoubleEntry => f.write_str("double-entry")?,
                    Fault::WrongPhase => f.write_str("wrong-phase")?,
                    Fault::SwallowEntry => f.write_str("swallow-entry")?,
                    Fault::SwallowCommand => f.write_str("swallow-command")?,
                    Fault::Fatal => f.write_str("fatal")?,
                    Fault::LoseMessage => f.write_str("lose-message")?,
                    Fault::DoubleMessage => f.write_str("double-message")?,
                    Fault::DelayMessage(by) => write!(f, "delay-message {}", write_time(*by))?,
                }
                if *times == 1 { Ok(()) } else { write!(f, " times {times}") }
            }
        }
    }
}

#[cfg(test)]
mod tests;
