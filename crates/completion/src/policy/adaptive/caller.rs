//! The caller: whether a clock drives it, how often it goes on, and how far it is behind.

use units::Nanos;

use super::forecast::{MEMORY, STRETCH};
use crate::Seen;

#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    /// Waits without an instant at which the caller goes on by itself.
    closed: u32,
    /// From one command to the next.
    gap: f32,
    sent: Nanos,
    /// For how many times as long the caller's oldest command has waited for room, at most, lately.
    behind: f32,
    /// How long it is away from the library, and for how much of that it has the CPU.
    away: f32,
    computes: f32,
}

fn track(average: &mut f32, seen: f32) {
    *average += (seen - *average) / MEMORY as f32;
}

impl Caller {
    pub(super) fn sent(&mut self, now: Nanos, commands: u32) {
        let gap = (now - self.sent).0 as f32 / commands.max(1) as f32;
        track(&mut self.gap, gap);
        self.sent = now;
    }

    /// When a clock drives the caller next. An instant far beyond what is in flight is none: a time-out, a status line, a look for Ctrl-C.
    pub(super) fn clock(now: Nanos, seen: &Seen, typical: f32) -> Option<Nanos> {
        let soon = now + Nanos((typical * STRETCH as f32) as u64);
        seen.goes_on_at.filter(|&at| at > now && at < soon)
    }

    #[inline]
    pub(super) fn waits(&mut self, now: Nanos, seen: &Seen, typical: f32) {
        let open = Caller::clock(now, seen, typical).is_some() || seen.next_due.is_some();
        self.closed = if open { 0 } else { self.closed.saturating_add(1) };
        if let Some(due) = seen.next_due {
            self.behind = self.behind.max((now - due).0 as f32 / typical.max(1.0));
        }
    }

    /// It was away for so long, and had the CPU for so much of it, if that was measured.
    pub(super) fn was_away(&mut self, away: Nanos, cpu: Option<Nanos>) {
        if let Some(cpu) = cpu {
            track(&mut self.away, away.0 as f32);
            track(&mut self.computes, cpu.min(away).0 as f32);
        }
    }

    /// How long a caller that goes now computes, if it does hardly anything else while it is away.
    pub(super) fn computes(&self) -> Option<Nanos> {
        let mostly = self.computes > self.away * (1.0 - 1.0 / STRETCH as f32);
        mostly.then_some(Nanos(self.computes as u64)).filter(|&span| span > Nanos::ZERO)
    }

    /// No clock drives the caller: it sends when it has found.
    pub(super) fn is_closed(&self) -> bool {
        self.closed >= STRETCH
    }

    /// The caller's commands in a span of time.
    pub(super) fn commands_in(&self, span: f32) -> f32 {
        if self.gap > 0.0 { span / self.gap } else { 0.0 }
    }

    /// How many times more a delay counts: a command that waits for room is delayed as well, and so are those after it. That counts as
    /// far as the thread's own `delay` holds them up, and not the device.
    pub(super) fn behind(&mut self, delay: f32, typical: f32) -> f32 {
        let own = 2.0 * delay / (typical + delay).max(1.0);
        let behind = self.behind * own;
        // The caller is hurried until it has caught up.
        self.behind -= self.behind / (MEMORY * 4) as f32;
        behind
    }
}
