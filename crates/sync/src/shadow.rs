//! Shadow doorbells (Base §5.2.5, Doorbell Buffer Config): the host writes a doorbell to memory,
//! and writes the register only if the controller has asked for it.

use std::convert::Infallible;

use crate::atomic::{Ordering, fence};

/// One shadow doorbell: a word that the host writes, and its EventIdx, which the controller writes.
/// Each side writes its own word, fences, and reads the other side's word, so at least one side
/// sees the other's write:
///
/// ```text
///   controller:  arm (EventIdx = last value seen; fence; read the shadow)   no new value: sleep
///   host:        announce (shadow = new value; fence; read EventIdx)        EventIdx passed: ring the register
/// ```
///
/// A register write wakes a sleeping controller, and costs a VM exit or a message. While the
/// controller polls the shadow doorbell it does not update EventIdx, so the host writes no
/// register.
pub trait ShadowDoorbell {
    /// The error when a word cannot be accessed.
    type Fault;

    /// The value that the host wrote last, loaded with acquire ordering: entries that the value
    /// announces can be loaded afterwards.
    fn value(&self) -> Result<u32, Self::Fault>;

    /// Host: stores the doorbell with release ordering.
    fn set_value(&self, value: u32) -> Result<(), Self::Fault>;

    /// EventIdx: the host rings the register when the doorbell passes this value.
    fn event(&self) -> Result<u32, Self::Fault>;

    /// Controller: stores EventIdx.
    fn set_event(&self, value: u32) -> Result<(), Self::Fault>;
}

/// All shadow doorbells of a host.
pub trait ShadowDoorbells {
    /// One doorbell. The host's own memory is always accessible.
    type Doorbell<'a>: ShadowDoorbell<Fault = Infallible>
    where
        Self: 'a;

    /// The n-th doorbell: the tail of queue 0, its head, the tail of queue 1, and so on. `None`:
    /// the page has no room for it.
    fn doorbell(&self, n: usize) -> Option<Self::Doorbell<'_>>;
}

/// Controller, before it sleeps: sets EventIdx to `seen`, so that the host rings the register once
/// the doorbell passes `seen`. Returns the doorbell's value. If the value is not `seen`, the host
/// may not have seen the new EventIdx, and the controller must not sleep.
///
/// # Errors
///
/// A word cannot be accessed.
#[inline]
pub fn arm<D: ShadowDoorbell>(doorbell: &D, seen: u32) -> Result<u32, D::Fault> {
    doorbell.set_event(seen)?;
    fence(Ordering::SeqCst);
    doorbell.value()
}

/// Host: moves the doorbell from `old` to `new`. Returns whether it must ring the register.
///
/// # Errors
///
/// A word cannot be accessed.
#[inline]
pub fn announce<D: ShadowDoorbell>(doorbell: &D, old: u32, new: u32) -> Result<bool, D::Fault> {
    doorbell.set_value(new)?;
    // The fence of the pair: without it `event` may be read before `set_value` is visible, and a
    // controller that armed in between sleeps with entries pending.
    fence(Ordering::SeqCst);
    Ok(passes(doorbell.event()?, old, new))
}

/// Whether a doorbell that moves from `old` to `new` passes `event`. Doorbell values wrap at the
/// ring's size, which is at most 2^16.
#[inline]
pub fn passes(event: u32, old: u32, new: u32) -> bool {
    // The virtio rule (`vring_need_event`): distances modulo 2^16, back from `new`. The rule holds
    // for smaller rings too: a doorbell that wraps from `old` to `new` covers the range from `old`
    // through 2^16 to `new`.
    let from = |start: u32| (new as u16).wrapping_sub(start as u16);
    from(event).wrapping_sub(1) < from(old)
}

#[cfg(test)]
#[path = "../tests/unit/shadow.rs"]
mod tests;
