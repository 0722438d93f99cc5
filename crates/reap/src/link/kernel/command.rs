//! One request to the kernel, from when it is posted until its last byte has moved.

use hw::uring::{Entry, File, RwFlags, Span};
use nvme::Status;
use units::{Nanos, Op};

use crate::request::ERRNO;

/// EINTR and EAGAIN: the same request again.
const AGAIN: [i32; 2] = [4, 11];

/// EIO, for what ends before its end.
const EIO: i32 = 5;

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub token: u64,
    pub posted_at: Nanos,
    pub op: Op,
    pub fua: bool,
    /// First byte of the file.
    pub offset: u64,
    /// What is still to be moved; nothing of a Flush.
    pub rest: Option<Span>,
    /// It is out: the kernel has it, or will.
    pub open: bool,
    /// Cancelling it has been asked for.
    pub cancelled: bool,
}

/// What the kernel's answer means.
pub(super) enum Answer {
    /// The request is over: success, or [`ERRNO`] with the number.
    Over(Status, u32),
    /// It goes on: the entry is to be pushed again.
    Again,
}

impl Command {
    /// None.
    pub(super) const NONE: Command =
        Command { token: 0, posted_at: Nanos::ZERO, op: Op::Flush, fua: false, offset: 0, rest: None, open: false, cancelled: false };

    /// What asks the kernel for what is left of it.
    #[inline]
    pub(super) fn entry(&self, file: File) -> Entry {
        match (self.op, self.rest) {
            (Op::Read, Some(span)) => Entry::read(file, self.offset, span, RwFlags::NONE),
            (Op::Write, Some(span)) => Entry::write(file, self.offset, span, if self.fua { RwFlags::DSYNC } else { RwFlags::NONE }),
            _ => Entry::fsync(file, true),
        }
    }

    /// Takes note of the kernel's answer.
    #[inline]
    pub(super) fn answered(&mut self, result: i32) -> Answer {
        match self.rest {
            None if result >= 0 => Answer::Over(Status::SUCCESS, 0),
            Some(span) if result as u32 == span.len() => Answer::Over(Status::SUCCESS, 0),
            _ => self.odd(result),
        }
    }

    /// Fewer bytes than asked for, or an error.
    #[cold]
    fn odd(&mut self, result: i32) -> Answer {
        let error = |errno: i32| Answer::Over(ERRNO, errno.unsigned_abs());
        match (self.rest, result) {
            (_, errno) if errno < 0 && AGAIN.contains(&-errno) && !self.cancelled => Answer::Again,
            (_, errno) if errno < 0 => error(errno),
            // The file has become shorter than it was when it was opened.
            (_, 0) => error(EIO),
            (Some(span), moved) => {
                self.offset += u64::from(moved.unsigned_abs());
                self.rest = span.after(moved.unsigned_abs());
                Answer::Again
            }
            (None, _) => Answer::Over(Status::SUCCESS, 0),
        }
    }
}
