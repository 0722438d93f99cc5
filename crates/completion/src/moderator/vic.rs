//! `vic`: hold back by how many commands are in flight.
//!
//! After Ahmad, Gulati and Mashtizadeh, "vIC: Interrupt Coalescing for Virtual Machine Storage Device IO" (USENIX ATC
//! 2011): as long as enough commands are in flight, another completion is sure to come soon, so that holding one back
//! starves nobody. With few in flight, or few completions per second, every completion is announced. The ratio of messages
//! to completions then falls with the number in flight. Theirs has fractions (four messages for five completions); NVMe's
//! threshold is a whole number of entries, so between one and two there is nothing.

use crate::{Coalesce, Rates};

/// Commands in flight below which nothing is held back.
const ENOUGH_IN_FLIGHT: u32 = 4;

/// Completions per second below which nothing is.
const ENOUGH_IOPS: u64 = 2_000;

/// One message for so many times [`ENOUGH_IN_FLIGHT`] in flight.
const DEPTH_PER_ENTRY: u32 = 2 * ENOUGH_IN_FLIGHT;

pub(super) fn setting(rates: &Rates) -> Coalesce {
    if rates.in_flight < ENOUGH_IN_FLIGHT || rates.iops() < ENOUGH_IOPS {
        return Coalesce::OFF;
    }
    let entries = (rates.in_flight / DEPTH_PER_ENTRY).min(256) as u16;
    Coalesce::new(entries, 1)
}
