//! Registers and doorbells of a device that another process serves: parts of BAR0 lie in files that it hands over, and it is not trusted.
//!
//! Touching a page that a file no longer has would be a signal that ends this process. So a part is mapped only where its file
//! keeps its pages (`foreign.rs`), or where the caller says that the other process is trusted to take none away. Elsewhere its registers are reached by calls.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, fstat};

use super::VfioError;
use super::registers::{Area, PciRegisters, RegisterCalls};
use crate::foreign::keeps_pages;

/// A part of BAR0 in a file.
#[derive(Debug)]
pub struct SharedArea {
    /// Which part.
    pub range: Range<u64>,
    /// The file that it is a part of.
    pub file: OwnedFd,
    /// Where the part begins there.
    pub at: u64,
}

impl PciRegisters {
    /// BAR0 of `bytes` bytes, of which `areas` lie in files, and everything is reached by calls. `trusted`: the server is believed
    /// to take no pages of a file away where it could. With it, why a part is not mapped: a sentence each.
    ///
    /// # Errors
    /// It has no room for registers and doorbells.
    pub fn shared(
        bytes: u64,
        areas: Vec<SharedArea>,
        rest: Box<dyn RegisterCalls>,
        trusted: bool,
    ) -> Result<(PciRegisters, Vec<String>), VfioError> {
        let (mut mapped, mut notes) = (Vec::<Area>::new(), Vec::new());
        for area in areas {
            let SharedArea { range: Range { start, end }, .. } = area;
            match area.map(bytes, trusted) {
                Ok(area) => mapped.push(area),
                Err(why) => notes.push(format!("bytes {start:#x} to {end:#x} of BAR0 are reached by messages: {why}")),
            }
        }
        PciRegisters::over(mapped, rest, bytes).map(|registers| (registers, notes))
    }

    /// A server has taken the place of the one before: what is mapped of BAR0 is mapped of its files from now on. What else it could have mapped is
    /// left to calls.
    ///
    /// # Errors
    /// Its BAR0 is not the same, or a part cannot be mapped any more: why. The parts before it have been renewed.
    pub fn renew(&self, bytes: u64, areas: Vec<SharedArea>, trusted: bool) -> Result<(), String> {
        let (before, mapped) = self.extent();
        if bytes != before {
            return Err(format!("its BAR0 has {bytes:#x} bytes, and had {before:#x}"));
        }
        let mut areas: BTreeMap<u64, SharedArea> = areas.into_iter().map(|area| (area.range.start, area)).collect();
        for area in mapped {
            let Range { start, end } = area.range();
            let refused = |why: String| format!("bytes {start:#x} to {end:#x} of BAR0 cannot be mapped again: {why}");
            let given = areas.remove(&start).filter(|given| given.range.end == end);
            let given = given.ok_or_else(|| refused("the server does not hand them over".into()))?;
            given.check(bytes, trusted).map_err(refused)?;
            area.renew(given.file.as_fd(), given.at).map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }
}

impl SharedArea {
    fn map(self, bytes: u64, trusted: bool) -> Result<Area, String> {
        self.check(bytes, trusted)?;
        Area::map(self.file.as_fd(), self.at, self.range).map_err(|error| format!("their file cannot be mapped: {error}"))
    }

    /// Whether mapping it is safe.
    fn check(&self, bytes: u64, trusted: bool) -> Result<(), String> {
        let page = rustix::param::page_size() as u64;
        let SharedArea { range, file, at } = self;
        let len = range.end.checked_sub(range.start).filter(|len| *len > 0 && range.end <= bytes && isize::try_from(*len).is_ok());
        let Some(end) = len.and_then(|len| at.checked_add(len)) else { return Err("they are no part of it".into()) };
        if !(range.start | range.end | at).is_multiple_of(page) {
            return Err(format!("they are no whole pages of {page} bytes"));
        }
        // Before its size.
        let pages = keeps_pages(file);
        let stat = fstat(file).map_err(|error| format!("their file cannot be examined: {error}"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("what the server hands over for them is no file".into());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if end > size {
            return Err(format!("their file has {size:#x} bytes, and they would end at {end:#x}"));
        }
        match pages {
            Err(why) if !trusted => Err(format!("their file may lose pages, which would end this process: {why}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
