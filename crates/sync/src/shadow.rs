//! Doorbells in memory: when a host that has written one has to write the register as well.

use std::convert::Infallible;

use crate::atomic::{Ordering, fence};

/// One doorbell of a host that writes it to memory (Base 5.2.5, Doorbell Buffer Config): its shadow, which the host writes, and its EventIdx,
/// which the controller does. Each side writes its own word, fences, and reads the other's, so at least one of them sees the other:
///
/// ```text
///   controller:  arm (EventIdx = what it has seen; fence; read the shadow)   nothing new: sleep
///   host:        announce (shadow = the new value; fence; read EventIdx)     passed it: ring the register
/// ```
///
/// A register that is rung is a trap, or a message, and wakes a controller that sleeps. So a controller that is awake costs its host none.
pub trait ShadowDoorbell {
    /// Why a word cannot be reached.
    type Fault;

    /// What the host wrote last. An acquire: entries that it announces can be loaded afterwards.
    fn value(&self) -> Result<u32, Self::Fault>;

    /// Host: a release.
    fn set_value(&self, value: u32) -> Result<(), Self::Fault>;

    /// After which value the host is to ring the register.
    fn event(&self) -> Result<u32, Self::Fault>;

    /// Controller.
    fn set_event(&self, value: u32) -> Result<(), Self::Fault>;
}

/// All doorbells of a host that are kept in memory.
pub trait ShadowDoorbells {
    /// One of them. The host's own memory is always within its reach.
    type Doorbell<'a>: ShadowDoorbell<Fault = Infallible>
    where
        Self: 'a;

    /// The n-th: the tail of queue 0, its head, the tail of queue 1, and so on. `None`: there is no place for it.
    fn doorbell(&self, n: usize) -> Option<Self::Doorbell<'_>>;
}

/// Controller, before it sleeps: has the host ring the register once it goes on from `seen`. What the doorbell says now: if that is not `seen`
/// the host may not have known, and the controller must not sleep.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn arm<D: ShadowDoorbell>(doorbell: &D, seen: u32) -> Result<u32, D::Fault> {
    doorbell.set_event(seen)?;
    fence(Ordering::SeqCst);
    doorbell.value()
}

/// Host: moves the doorbell from `old` to `new`. Whether it has to ring the register.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn announce<D: ShadowDoorbell>(doorbell: &D, old: u32, new: u32) -> Result<bool, D::Fault> {
    doorbell.set_value(new)?;
    fence(Ordering::SeqCst);
    Ok(passes(doorbell.event()?, old, new))
}

/// Whether a doorbell that moves from `old` to `new` goes on from `event`. Doorbells have 16 bits, and go round before that.
#[inline]
pub fn passes(event: u32, old: u32, new: u32) -> bool {
    let from = |start: u32| (new as u16).wrapping_sub(start as u16);
    from(event).wrapping_sub(1) < from(old)
}

#[cfg(test)]
#[path = "../tests/unit/shadow.rs"]
mod tests;
