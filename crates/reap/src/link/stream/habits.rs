//! How threads keep law 7, as facts that tests can change: what is broken is caught, or the tests prove nothing.

/// How threads keep law 7 where a link sends bytes: nobody leaves a debt. Each habit is lawful (true) unless a test breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebtHabits {
    /// A thread that sleeps on a lane that owes waits until the lane takes bytes, too.
    pub sleepers_wait: bool,
    /// A thread that stops rings the one that sleeps on the lane.
    pub debtors_ring: bool,
    /// A thread that goes back to its caller hands the debt to the housekeeping thread, where nobody sleeps on the lane.
    pub leavers_hand_on: bool,
    /// The housekeeping thread sends what it was handed.
    pub housekeeping_sends: bool,
}

impl Default for DebtHabits {
    fn default() -> DebtHabits {
        DebtHabits { sleepers_wait: true, debtors_ring: true, leavers_hand_on: true, housekeeping_sends: true }
    }
}
