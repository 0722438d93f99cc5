//! Groups of options that make one value together.

use super::fill;
use super::values::{self, Bad};
use crate::job::{Contents, FillPattern, Strided, Think};
use units::Nanos;

/// `zonemode`, `zonesize`, `zonerange`, `zoneskip`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ZoneDraft {
    pub is_strided: bool,
    pub size: u64,
    pub range: Option<u64>,
    pub skip: u64,
}

impl ZoneDraft {
    pub fn strided(self, whole: bool, errors: &mut Vec<Bad>) -> Option<Strided> {
        if !self.is_strided {
            return None;
        }
        if self.size == 0 {
            errors.push("zonemode=strided needs zonesize=".into());
            return None;
        }
        let range = self.range.unwrap_or(self.size);
        if range < self.size {
            errors.push(format!("zonerange {range} is less than zonesize {}", self.size));
        }
        Some(Strided { size: self.size, range: range.max(self.size), skip: self.skip, whole })
    }
}

/// `thinktime` and its kin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThinkDraft {
    pub time: Nanos,
    pub spin: Nanos,
    pub blocks: Option<u64>,
    pub every: Option<Nanos>,
}

impl ThinkDraft {
    pub fn finish(self) -> Option<Think> {
        let ThinkDraft { time, spin, blocks, every } = self;
        let every = every.filter(|every| *every > Nanos::ZERO);
        // With a time between pauses, I/Os count only if they are given as well.
        let blocks = blocks.unwrap_or(if every.is_some() { u64::MAX } else { 1 }).max(1);
        (time > Nanos::ZERO).then_some(Think { time, spin: spin.min(time), blocks, every })
    }
}

/// `buffer_pattern` and its kin.
#[derive(Clone, Debug, Default)]
pub(super) struct ContentsDraft {
    pub pattern: Option<FillPattern>,
    pub zeroes: bool,
    pub compress: Option<u32>,
    pub chunk: Option<u32>,
}

impl ContentsDraft {
    pub fn finish(self) -> Contents {
        match self {
            ContentsDraft { compress: Some(percent), chunk, pattern, .. } => {
                Contents::Compressible { percent, chunk: chunk.unwrap_or(512), pattern }
            }
            ContentsDraft { pattern: Some(pattern), .. } => Contents::Pattern(pattern),
            ContentsDraft { zeroes: true, .. } => Contents::Zeroes,
            _ => Contents::Random,
        }
    }
}

/// Reads `buffer_pattern`.
pub(super) fn contents(text: &str) -> Result<FillPattern, Bad> {
    let pattern = fill::pattern(text)?;
    if pattern.offsets.is_empty() { Ok(pattern) } else { Err("%o stands in verify_pattern only".into()) }
}

/// The errnos that `continue_on_error` means: I/O error, and data that are not what was written.
pub(super) const NON_FATAL: [i32; 2] = [5, 84];

/// `ignore_error`: errors of one operation, by name or number, separated by colons.
pub(super) fn errnos(text: &str) -> Result<Vec<i32>, Bad> {
    const NAMES: [(&str, i32); 12] = [
        ("EPERM", 1),
        ("EIO", 5),
        ("EAGAIN", 11),
        ("ENOMEM", 12),
        ("EBUSY", 16),
        ("EINVAL", 22),
        ("ENOSPC", 28),
        ("EREMOTEIO", 121),
        ("EDQUOT", 122),
        ("EOPNOTSUPP", 95),
        ("EILSEQ", 84),
        ("ETIMEDOUT", 110),
    ];
    let one = |text: &str| {
        let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, code)| *code);
        let code = named
            .or_else(|| values::number(text, 1024).ok().and_then(|code| i32::try_from(code).ok()).filter(|code| (1..4096).contains(code)));
        code.ok_or_else(|| format!("'{text}' is no error: a name such as EIO, or a number"))
    };
    text.split(':').map(|part| one(part.trim())).collect()
}
