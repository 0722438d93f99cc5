//! How often `adaptive` decided what.

/// Counts of one policy's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Looks, because an entry was known to be there or the thread had woken.
    pub looks: u64,
    /// Waits: empty polls with commands in flight, up to the next look that found something.
    pub waits: u64,
    /// Stretches of spinning, because something was due sooner than a sleep is worth.
    pub spun: u64,
    /// Naps, those to gather included.
    pub napped: u64,
    /// Sleeps, because nothing was expected for longer than a sleep costs.
    pub slept: u64,
    /// Naps that go on although one is expected sooner, to gather several.
    pub gathered: u64,
    /// Waits that were looked at all the way, to learn.
    pub explored: u64,
    /// Sleeps because another thread wanted the CPU, or this one left.
    pub gave_way: u64,
    /// Commands found long after their time, of which no notification had told.
    pub missed_notifications: u64,
}

impl Decisions {
    /// Each count by its name.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("looks", self.looks),
            ("waits", self.waits),
            ("spun", self.spun),
            ("napped", self.napped),
            ("slept", self.slept),
            ("gathered", self.gathered),
            ("explored", self.explored),
            ("gave_way", self.gave_way),
            ("missed_notifications", self.missed_notifications),
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
        let Decisions { looks, waits, spun, napped, slept, gathered, explored, gave_way, missed_notifications } = self;
        let mine = [looks, waits, spun, napped, slept, gathered, explored, gave_way, missed_notifications];
        for (mine, (_, theirs)) in mine.into_iter().zip(other.named()) {
            *mine = with(*mine, theirs);
        }
    }
}
