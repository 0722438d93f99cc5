//! Lists of I/Os: `read_iolog`, versions 2 and 3, as fio's manual has them (section *Trace file format*).

use super::values::Bad;
use crate::job::{Iolog, IologStep};
use units::{Nanos, Op};

/// Most I/Os of a list.
const MOST: usize = 4 << 20;
/// Shorter waits are nothing.
const LEAST_WAIT: u64 = 100;

/// Reads the list `name`, whose bytes are `text`; `no_stall`: it is replayed as fast as it goes.
///
/// # Errors
/// What is wrong with it, with the line.
pub fn read_iolog(name: &str, text: &[u8], no_stall: bool) -> Result<Iolog, String> {
    let text =
        std::str::from_utf8(text).map_err(|_| format!("{name} is no list of fio's: it is not text (blktrace's files are not read)"))?;
    let mut lines = text.lines().zip(1u32..);
    let timed = match lines.next().map(|(line, _)| line.trim()) {
        Some("fio version 2 iolog") => false,
        Some("fio version 3 iolog") => true,
        Some("fio version 1 iolog") => return Err(format!("{name} is a list of version 1; Reap reads versions 2 and 3")),
        _ => return Err(format!("{name} is no list of fio's: its first line is not 'fio version 2 iolog' or 'fio version 3 iolog'")),
    };
    let mut list = Iolog { name: name.to_owned(), steps: Vec::new(), files: Vec::new() };
    for (line, number) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        step(&mut list, &words, timed, no_stall).map_err(|why| format!("{name}:{number}: {why}"))?;
        if list.steps.len() > MOST {
            return Err(format!("{name} has more than {MOST} I/Os"));
        }
    }
    if list.steps.iter().any(|step| matches!(step, IologStep::Io { .. })) { Ok(list) } else { Err(format!("{name} has no I/O")) }
}

fn step(list: &mut Iolog, words: &[&str], timed: bool, no_stall: bool) -> Result<(), Bad> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no number"));
    let (at, words) = match words.split_first() {
        Some((at, rest)) if timed => (Some(number(at)?), rest),
        _ => (None, words),
    };
    let at = at.filter(|_| !no_stall).map(|micros| Nanos::from_micros(micros.min(u64::MAX / 2000)));
    let (name, action, rest) = match words {
        [name, action, rest @ ..] => (*name, *action, rest),
        _ => return Err("a line has a file and what is done with it".into()),
    };
    if action == "add" {
        if list.files.len() >= 1024 {
            return Err("more than 1024 files".into());
        }
        if !list.files.iter().any(|known| known == name) {
            list.files.push(name.to_owned());
        }
        return Ok(());
    }
    if let (false, "wait", [span, ..]) = (timed, action, rest) {
        let micros = number(span)?;
        if micros >= LEAST_WAIT && !no_stall {
            list.steps.push(IologStep::Wait(Nanos::from_micros(micros.min(u64::MAX / 2000))));
        }
        return Ok(());
    }
    let file = list.files.iter().position(|known| known == name).ok_or_else(|| format!("the file '{name}' was not added"))? as u16;
    let op = match action {
        "open" | "close" => return Ok(()),
        "read" => Op::Read,
        "write" => Op::Write,
        "trim" => Op::Deallocate,
        "sync" | "datasync" => Op::Flush,
        _ => return Err(format!("'{action}' is none of add, open, close, read, write, trim, sync, datasync, wait")),
    };
    let (offset, len) = match (op, rest) {
        (Op::Flush, _) => (0, 0),
        (_, [offset, len]) => (number(offset)?, number(len)?),
        _ => return Err(format!("'{action}' needs an offset and a length")),
    };
    list.steps.push(IologStep::Io { op, file, offset, len, at });
    Ok(())
}

#[cfg(test)]
mod tests;
