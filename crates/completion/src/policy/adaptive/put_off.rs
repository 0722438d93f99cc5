//! Leaving what has come where it is until the caller has no room, so that his instants wake nobody.

use units::Nanos;

use super::{Adaptive, LONGEST};
use crate::{LatencySlack, Seen};

impl Adaptive {
    /// Until when to nap and leave what has come where it is. Each entry that is taken gives room, and a caller who has room goes on
    /// at each of his instants, which is what costs wake-ups; when he has none they pass. So it is not looked before then, if
    /// he sends as many while the oldest may still be found that late.
    pub(super) fn put_off(&mut self, now: Nanos, seen: &Seen) -> Option<Nanos> {
        let gap = self.pace.gap();
        if gap == Nanos::ZERO || self.pace.behind() || self.slack == LatencySlack::UNLIMITED {
            return None;
        }
        if seen.pending || seen.urgent_waiting > 0 || seen.leaving || self.explored > 0 {
            return None;
        }
        let (class, since) = (self.flight.class()?, self.flight.since()?);
        let allowed = self.slack.of(self.service.median(class)).min(LONGEST);
        let end = since + self.service.due(class, Nanos::ZERO)? + allowed;
        let Some(goes_on) = seen.goes_on_at else {
            return if self.puts_off { self.wait_for_room(now, seen.in_flight, now, end) } else { None };
        };
        let takes = |commands: u32| Nanos(gap.0.saturating_mul(commands.max(1).into()));
        let more = now + takes(self.room.most.saturating_sub(seen.in_flight)) + self.timers.late();
        if goes_on > now && goes_on.max(more).max(since + takes(self.room.most)) <= end {
            return Some(goes_on);
        }
        if self.puts_off {
            self.room.left(seen.in_flight);
        }
        None
    }
}
