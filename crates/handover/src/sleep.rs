//! Arm, look, wake: the steps of a thread that goes to sleep on a queue, in their order.

use crate::Bell;

/// What a thread has of a queue that it is about to sleep on. Each method is one step, and [`arm`], [`look`] and [`wake`] are the
/// order of the steps. The library's threads and drain threads take them here, and so do the models.
///
/// | step | must come | or else |
/// | --- | --- | --- |
/// | own bell | before the look role | a thread that names this one its heir finds the bell masked |
/// | look role | before the notification | the thread touches a mask that is another's |
/// | notification | before the look | an entry that came in between has sent no message |
/// | look | last | whatever came before the steps above was told to nobody |
pub trait LightSleeper {
    /// Names a thread to the look role.
    type Thread;

    /// The thread's own bell.
    fn bell(&self) -> &Bell;

    /// Takes the look role, if the thread sleeps on a queue that it shares, or hands it on, if not: the thread to be woken.
    fn register(&mut self) -> Option<Self::Thread>;

    /// Allows the queue's notification, where that is masked and this thread's.
    fn allow(&mut self);

    /// Wakes another thread, if it sleeps.
    fn tell(&self, thread: Self::Thread);

    /// Whether arming found a posted message. It is said once.
    fn was_posted(&mut self) -> bool;

    /// Whether the queue has an entry that no message tells of.
    fn has_entry(&mut self) -> bool;

    /// Whether another thread has left, or ended, something for this one.
    fn has_mail(&mut self) -> bool;

    /// Whether another thread wants something of this one.
    fn is_wanted(&mut self) -> bool;

    /// Forbids the notification, where that is the policy's way and it is this thread's.
    fn mask(&mut self);
}

/// The arming half: from now on a thread or device that has something for this one tells it. [`look`] follows.
#[inline]
pub fn arm(me: &mut impl LightSleeper) {
    me.bell().arm();
    let heir = me.register();
    me.allow();
    if let Some(heir) = heir {
        me.tell(heir);
    }
}

/// The look between arming and blocking: whether there is a reason not to block. [`wake`] follows in any case.
#[inline]
pub fn look(me: &mut impl LightSleeper) -> bool {
    // Each is asked in any case: some are told once, and some note for the policy what they have seen.
    let posted = me.was_posted();
    let entry = me.has_entry();
    let mail = me.has_mail();
    posted | entry | mail || me.is_wanted()
}

/// Awake again: what was armed is masked.
#[inline]
pub fn wake(me: &mut impl LightSleeper) {
    me.bell().mask();
    me.mask();
}

#[cfg(test)]
mod tests;
