//! Parses the files of `read_iolog`, fio's I/O logs of versions 2 and 3 (fio's manual, section
//! *Trace file format*). blktrace files are not supported.

use super::values::ValueError;
use crate::job::{Iolog, IologStep};
use units::{Nanos, Op};

/// Maximum number of I/Os and waits, which limits the memory of a log.
const MAX_STEPS: usize = 4 << 20;
/// In microseconds; fio ignores shorter waits.
const MIN_WAIT: u64 = 100;

/// Parses the log `name` with the contents `text`. `no_stall`: times and waits are dropped
/// (`replay_no_stall`).
///
/// # Errors
/// The first error, with its line.
pub fn read_iolog(name: &str, text: &[u8], no_stall: bool) -> Result<Iolog, String> {
    let text = std::str::from_utf8(text).map_err(|_| {
        format!("{name} is not an fio iolog: it is not text (blktrace files are not supported)")
    })?;
    let mut lines = text.lines().zip(1u32..);
    let timed = match lines.next().map(|(line, _)| line.trim()) {
        Some("fio version 2 iolog") => false,
        Some("fio version 3 iolog") => true,
        Some("fio version 1 iolog") => {
            return Err(format!(
                "{name} is an iolog of version 1; only versions 2 and 3 are supported"
            ));
        }
        _ => {
            return Err(format!(
                "{name} is not an fio iolog: its first line is not 'fio version 2 iolog' or 'fio version 3 iolog'"
            ));
        }
    };
    let mut list = Iolog { name: name.to_owned(), steps: Vec::new(), files: Vec::new() };
    for (line, number) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        step(&mut list, &words, timed, no_stall)
            .map_err(|why| format!("{name}:{number}: {why}"))?;
        if list.steps.len() > MAX_STEPS {
            return Err(format!("{name} has more than {MAX_STEPS} I/Os and waits"));
        }
    }
    if list.steps.iter().any(|step| matches!(step, IologStep::Io { .. })) {
        Ok(list)
    } else {
        Err(format!("{name} has no I/O"))
    }
}

/// Parses one line into `list`.
///
/// # Errors
/// What is wrong with the line.
fn step(list: &mut Iolog, words: &[&str], timed: bool, no_stall: bool) -> Result<(), ValueError> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
    let (at, words) = match words.split_first() {
        Some((at, rest)) if timed => (Some(number(at)?), rest),
        _ => (None, words),
    };
    let at = at.filter(|_| !no_stall).map(|micros| Nanos::from_micros(micros.min(u64::MAX / 2000)));
    let (name, action, rest) = match words {
        [name, action, rest @ ..] => (*name, *action, rest),
        _ => return Err("a line needs a file name and an action".into()),
    };
    if action == "add" {
        // The files of a log have the same limit as filename=.
        if list.files.len() >= 1024 {
            return Err("more than 1024 files".into());
        }
        if !list.files.iter().any(|known| known == name) {
            list.files.push(name.to_owned());
        }
        return Ok(());
    }
    // Version 3 has time stamps instead of waits.
    if let (false, "wait", [span, ..]) = (timed, action, rest) {
        let micros = number(span)?;
        if micros >= MIN_WAIT && !no_stall {
            list.steps.push(IologStep::Wait(Nanos::from_micros(micros.min(u64::MAX / 2000))));
        }
        return Ok(());
    }
    let file = list
        .files
        .iter()
        .position(|known| known == name)
        .ok_or_else(|| format!("no line before this one adds the file '{name}'"))?
        as u16;
    let op = match action {
        // Devices are open for the whole run.
        "open" | "close" => return Ok(()),
        "read" => Op::Read,
        "write" => Op::Write,
        "trim" => Op::Deallocate,
        "sync" | "datasync" => Op::Flush,
        _ => {
            return Err(format!(
                "'{action}' is not one of add, open, close, read, write, trim, sync, datasync, wait"
            ));
        }
    };
    let (offset, len) = match (op, rest) {
        // fio writes an offset and a length for sync, which have no meaning.
        (Op::Flush, _) => (0, 0),
        (_, [offset, len]) => (number(offset)?, number(len)?),
        _ => return Err(format!("'{action}' needs an offset and a length")),
    };
    list.steps.push(IologStep::Io { op, file, offset, len, at });
    Ok(())
}

#[cfg(test)]
mod tests;
