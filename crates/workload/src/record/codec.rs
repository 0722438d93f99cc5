//! Submissions as bytes: a byte of flags, then varints. A block of them can be read without the ones before it.

use super::{Cause, Service, Submission};
use units::{Nanos, Op};

const OP: u8 = 0b11;
const ENDS_BATCH: u8 = 1 << 2;
const BOUND: u8 = 1 << 3;
const AFTER: u8 = 1 << 4;
const AT: u8 = 1 << 5;
/// A varint with the wait follows.
const WAITED: u8 = 1 << 6;
/// Target or length are not those of the submission before: both follow.
const OTHER: u8 = 1 << 7;

/// Three days: no recording is as long. And no I/O takes five hours.
const LONGEST_RUN: Nanos = Nanos(1 << 48);
const LONGEST_SPAN: Nanos = Nanos(1 << 44);

trait Bounded: Sized {
    /// Sums of what passes this do not overflow.
    fn at_most(self, limit: Nanos, what: &'static str) -> Result<Self, &'static str>;
}

impl Bounded for Nanos {
    fn at_most(self, limit: Nanos, what: &'static str) -> Result<Nanos, &'static str> {
        if self <= limit { Ok(self) } else { Err(what) }
    }
}

/// What the next submission of a block is written against.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    target: u16,
    len: u32,
    /// Where the last one ended.
    end: u64,
    at: u64,
}

/// Appends the submission of this number.
pub(super) fn encode(context: &mut Context, number: u64, s: &Submission, out: &mut Vec<u8>) {
    let other = s.target != context.target || s.len != context.len;
    let mut flags = match s.op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2,
        // No job issues them; who reads such a submission is told that there is none.
        Op::WriteZeroes | Op::Deallocate | Op::Compare | Op::Verify | Op::WriteUncorrectable => OP,
    };
    for (set, bit) in [(s.ends_batch, ENDS_BATCH), (s.service.bound, BOUND), (s.wait > 0, WAITED), (other, OTHER)] {
        flags |= if set { bit } else { 0 };
    }
    flags |= match s.cause {
        Cause::Start => 0,
        Cause::After(_) => AFTER,
        Cause::At(_) => AT,
    };
    out.push(flags);
    if other {
        put(out, s.target.into());
        put(out, s.len.into());
    }
    put_signed(out, s.offset.wrapping_sub(context.end) as i64);
    match s.cause {
        Cause::Start => {}
        Cause::After(before) => put(out, number.wrapping_sub(before)),
        Cause::At(at) => {
            put_signed(out, at.0.wrapping_sub(context.at) as i64);
            context.at = at.0;
        }
    }
    if s.wait > 0 {
        put(out, s.wait.into());
    }
    for span in [s.think, s.service.queued, s.service.service, s.service.late] {
        put(out, span.min(LONGEST_SPAN).0);
    }
    (context.target, context.len, context.end) = (s.target, s.len, s.offset.wrapping_add(s.len.into()));
}

/// Takes the submission of this number off the front of `bytes`.
pub(super) fn decode(context: &mut Context, number: u64, bytes: &mut &[u8]) -> Result<Submission, &'static str> {
    let flags = take_byte(bytes)?;
    let op = match flags & OP {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Flush,
        _ => return Err("an operation that there is not"),
    };
    if flags & OTHER != 0 {
        context.target = take(bytes)?.try_into().map_err(|_| "a target beyond 65535")?;
        context.len = take(bytes)?.try_into().map_err(|_| "a length beyond 4 GiB")?;
    }
    let offset = context.end.wrapping_add(take_signed(bytes)? as u64);
    let cause = match (flags & AFTER != 0, flags & AT != 0) {
        (false, false) => Cause::Start,
        (true, false) => {
            let back = take(bytes)?;
            let before = number.checked_sub(back).filter(|before| *before < number);
            Cause::After(before.ok_or("a cause that is no earlier submission")?)
        }
        (false, true) => {
            context.at = context.at.wrapping_add(take_signed(bytes)? as u64);
            Cause::At(Nanos(context.at).at_most(LONGEST_RUN, "an instant days after the start")?)
        }
        (true, true) => return Err("two causes"),
    };
    let wait = if flags & WAITED != 0 { take(bytes)?.try_into().map_err(|_| "a wait beyond 2^32")? } else { 0 };
    let mut span = || Nanos(take(bytes)?).at_most(LONGEST_SPAN, "a span of hours");
    let (think, queued, service, late) = (span()?, span()?, span()?, span()?);
    context.end = offset.checked_add(context.len.into()).ok_or("an offset beyond 2^64")?;
    let service = Service { queued, service, late, bound: flags & BOUND != 0 };
    let (target, len) = (context.target, context.len);
    Ok(Submission { op, target, offset, len, cause, wait, think, ends_batch: flags & ENDS_BATCH != 0, service })
}

/// Seven bits to a byte, the lowest first; the top bit says that more follow (LEB128).
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small either way: the sign in the lowest bit.
fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, (value << 1 ^ value >> 63) as u64);
}

fn take(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(bytes)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number beyond 2^64")
}

fn take_signed(bytes: &mut &[u8]) -> Result<i64, &'static str> {
    take(bytes).map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8, &'static str> {
    let (&first, rest) = bytes.split_first().ok_or("a submission that is not whole")?;
    *bytes = rest;
    Ok(first)
}
