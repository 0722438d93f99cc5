//! What `adaptive` does and has decided: its counts, and its state.

use std::fmt;

use units::Nanos;

/// Counts of one policy's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Waits: empty polls with commands in flight, up to the next look that found something.
    pub waits: u64,
    /// Stretches of spinning.
    pub spun: u64,
    /// Naps.
    pub napped: u64,
    /// Sleeps until notified.
    pub slept: u64,
    /// Those of the naps that were for several completions.
    pub gathered: u64,
    /// Stretches in which another action was tried.
    pub tried: u64,
    /// Times that another action has come into force.
    pub changed: u64,
    /// Sleeps because another thread wanted the CPU, or this one left.
    pub gave_way: u64,
}

impl Decisions {
    /// Each count by its name.
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

    /// Another policy's counts on top.
    pub fn add(&mut self, other: &Decisions) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    /// What has been counted since the same policy's counts were `earlier`.
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
    /// Spins for as long as a sleep costs, then sleeps.
    Brief,
    /// Sleeps until notified.
    Sleep,
    /// Naps for a quarter of the least latency.
    Quarter,
    /// Naps for a half of it.
    Half,
    /// Naps until nine tenths are there.
    Whole,
    /// Naps until the command is due, then spins.
    Due,
}

impl Action {
    /// How many there are.
    pub const COUNT: usize = Action::ALL.len();
    /// In the order of their numbers.
    pub const ALL: [Action; 7] = [
        Action::Spin,
        Action::Brief,
        Action::Sleep,
        Action::Quarter,
        Action::Half,
        Action::Whole,
        Action::Due,
    ];

    /// Whether it waits although one may have completed, for several.
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
    /// It is the first.
    #[default]
    Start,
    /// The closed form expects the least of it.
    Form,
    /// Trials have shown it to be better.
    Trial,
    /// Another thread wants the CPU.
    Crowded,
}

/// The state of `adaptive`. Its text is one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In force.
    pub action: Action,
    /// Why.
    pub why: Why,
    /// By action: C and L of its last stretch.
    pub shown: [Option<(Nanos, Nanos)>; Action::COUNT],
    /// By action: trials lost since the last change.
    pub lost: [u32; Action::COUNT],
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Start => "the first",
            Why::Form => "expected to be the least",
            Why::Trial => "better in trials",
            Why::Crowded => "another thread wants the CPU",
        };
        write!(f, "{} ({why})", self.action)?;
        let shown =
            Action::ALL.iter().zip(self.shown).filter_map(|(action, shown)| Some((action, shown?)));
        for (n, (action, (cpu, latency))) in shown.enumerate() {
            write!(f, "{} {action} C {cpu} L {latency}", if n == 0 { ";" } else { "," })?;
        }
        Ok(())
    }
}
