//! How many the caller has room for.

/// How many the caller may have in flight, as far as that was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// At least so many.
    pub(super) most: u32,
    /// With so many he had no room: it is no guess.
    certain: bool,
}

impl Room {
    /// With so many in flight he has no room.
    pub(super) fn full(&mut self, in_flight: u32) {
        (self.most, self.certain) = (in_flight, true);
    }

    /// With so many he had some when time was up: it is tried again when more fit into it.
    pub(super) fn left(&mut self, in_flight: u32) {
        if !self.certain {
            self.most = self.most.max(in_flight + in_flight / 4 + 1);
        }
    }
}
