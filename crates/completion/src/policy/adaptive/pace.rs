//! Whether a clock drives the caller: a rate, a timer. He then goes on by himself at instants that [`Seen::goes_on_at`]
//! names, unless all that he may have in flight is: then the instants pass, and a look that comes later finds several
//! of them gone by at once, which have cost no wake-up of their own.
//!
//! [`Seen::goes_on_at`]: crate::Seen::goes_on_at

use units::Nanos;

/// Waits in a row without an instant of his after which the caller is behind his clock, or has none.
const PATIENCE: u32 = 16;

/// Batches over which the average forgets.
const MEMORY: u64 = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Waits until he is believed to have no clock.
    patience: u32,
    sent: Option<Nanos>,
    /// From one command to the next, on average.
    gap: u64,
}

impl Pace {
    /// The caller says when he goes on by himself.
    #[inline]
    pub(super) fn clocked(&mut self) {
        self.patience = PATIENCE;
    }

    /// A wait begins.
    #[inline]
    pub(super) fn waits(&mut self) {
        self.patience = self.patience.saturating_sub(1);
    }

    #[inline]
    pub(super) fn sent(&mut self, now: Nanos, commands: u32) {
        if self.patience == 0 {
            return;
        }
        let gap = (now - self.sent.unwrap_or(now)).0 / u64::from(commands.max(1));
        self.sent = Some(now);
        self.gap = if self.gap == 0 { gap } else { self.gap - self.gap / MEMORY + gap / MEMORY };
    }

    /// He has a clock, and has not been ahead of it for long.
    #[inline]
    pub(super) fn behind(&self) -> bool {
        self.patience == 0 && self.sent.is_some()
    }

    /// What not waking for the caller in this span is worth, if a wake-up costs `wake`: at most one. Nothing where no
    /// clock drives him.
    pub(super) fn spares(&self, span: Nanos, wake: Nanos) -> Nanos {
        match self.gap {
            _ if self.patience == 0 => Nanos::ZERO,
            0 => Nanos::ZERO,
            gap if gap <= span.0 => wake,
            gap => Nanos(wake.0.saturating_mul(span.0) / gap),
        }
    }

    /// In which time he goes on so often.
    pub(super) fn of(&self, times: u32) -> Nanos {
        Nanos(self.gap.saturating_mul(u64::from(times)))
    }
}
