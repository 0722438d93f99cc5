//! Statistics of `adaptive`: counts of its decisions, and the action in force with the measurements
//! behind it.

use std::fmt;

use crate::Nanos;

/// Counts of the decisions of one policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Waits: from an empty poll with commands in flight to the next poll that finds an entry.
    pub waits: u64,
    /// Plans to spin.
    pub spun: u64,
    /// Plans to nap.
    pub napped: u64,
    /// Plans to sleep until notified.
    pub slept: u64,
    /// Naps that gather several completions.
    pub gathered: u64,
    /// Trials of another action.
    pub tried: u64,
    /// Changes of the action in force.
    pub changed: u64,
    /// Sleeps and naps because another thread was runnable on the CPU, or this one left the
    /// library.
    pub gave_way: u64,
}

impl Decisions {
    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("waits", self.waits),
            ("spun", self.spun),
            ("napped", self.napped),
            ("slept", self.slept),
            ("gathered", self.gathered),
            ("tried", self.tried),
            ("changed", self.changed),
            ("gave_way", self.gave_way),
        ]
    }

    /// Adds another policy's counts.
    pub fn add(&mut self, other: &Decisions) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    /// Subtracts the same policy's `earlier` counts.
    pub fn since(mut self, earlier: &Decisions) -> Decisions {
        self.combine(earlier, u64::saturating_sub);
        self
    }

    fn combine(&mut self, other: &Decisions, with: fn(u64, u64) -> u64) {
        let Decisions { waits, spun, napped, slept, gathered, tried, changed, gave_way } = self;
        let mine = [waits, spun, napped, slept, gathered, tried, changed, gave_way];
        for (mine, (_, theirs)) in mine.into_iter().zip(other.named()) {
            *mine = with(*mine, theirs);
        }
    }
}

/// What `adaptive` does on an empty poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Spins.
    #[default]
    Spin,
    /// Spins for as long as a sleep costs, then sleeps (the ski-rental rule).
    Brief,
    /// Sleeps until notified.
    Sleep,
    /// Naps for a quarter of the shortest latency (10 % quantile), to reap several at once.
    Quarter,
    /// Naps for half of the shortest latency.
    Half,
    /// Naps for the 90 % quantile of the latency.
    Whole,
    /// Naps until shortly before the command completes, then spins. For one command in flight.
    Due,
}

impl Action {
    /// Number of actions.
    pub const COUNT: usize = Action::ALL.len();
    /// In the order of their discriminants.
    pub const ALL: [Action; 7] = [
        Action::Spin,
        Action::Brief,
        Action::Sleep,
        Action::Quarter,
        Action::Half,
        Action::Whole,
        Action::Due,
    ];

    /// Whether it naps past the first completion to reap several at once.
    pub(crate) fn gathers(self) -> bool {
        matches!(self, Action::Quarter | Action::Half | Action::Whole)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Action::Spin => "spin",
            Action::Brief => "spin, then sleep",
            Action::Sleep => "sleep",
            Action::Quarter => "nap 1/4",
            Action::Half => "nap 1/2",
            Action::Whole => "nap for 9/10",
            Action::Due => "nap until due",
        })
    }
}

/// Why an action is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    /// It is the initial action.
    #[default]
    Start,
    /// Its estimated cost is the lowest.
    Form,
    /// It was better in trials.
    Trial,
    /// Another thread is runnable on the CPU.
    Crowded,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Start => "the first",
            Why::Form => "expected to be the least",
            Why::Trial => "better in trials",
            Why::Crowded => "another thread wants the CPU",
        })
    }
}

/// The state of `adaptive`. [`Display`](fmt::Display) prints it on one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptiveState {
    /// The action in force.
    pub action: Action,
    /// Why it is in force.
    pub why: Why,
    /// The action that it replaced.
    pub before: Action,
    /// By action: C (CPU time of an I/O) and L (mean latency) of its last stretch, in nanoseconds.
    pub shown: [Option<(Nanos, Nanos)>; Action::COUNT],
    /// Counts since the mode was adopted.
    pub decisions: Decisions,
}

impl AdaptiveState {
    /// An action with its C and L, if they were measured.
    pub fn measured(&self, action: Action) -> String {
        match self.shown[action as usize] {
            Some((cpu, latency)) => format!("{action} C {cpu} L {latency}"),
            None => action.to_string(),
        }
    }
}

impl fmt::Display for AdaptiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.action, self.why)?;
        let shown = Action::ALL.into_iter().filter(|&action| self.shown[action as usize].is_some());
        for (n, action) in shown.enumerate() {
            write!(f, "{} {}", if n == 0 { ";" } else { "," }, self.measured(action))?;
        }
        Ok(())
    }
}
