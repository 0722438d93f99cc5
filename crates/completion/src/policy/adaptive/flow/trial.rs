//! What stretches in one way have shown, and whether the other is worth as much.

use crate::policy::adaptive::forecast::{MEMORY, STRETCH, UNSEEN};

/// What is known of one way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// Completions in a nanosecond.
    pub(super) rate: f32,
    /// How long the thread had the CPU for each, and what waiting has cost: CPU time + λ · lateness.
    pub(super) busy: f32,
    pub(super) cost: f32,
    /// This many stretches have shown it.
    pub(super) stretches: u32,
}

/// By how much of itself a figure differs from one stretch to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    last: Option<f32>,
    mean: f32,
}

impl Noise {
    /// Nothing is known yet, and everything may be chance.
    pub(super) const UNKNOWN: Noise = Noise { last: None, mean: f32::INFINITY };

    /// The figure of one more stretch.
    pub(super) fn see(&mut self, figure: f32) {
        if let Some(last) = self.last.replace(figure) {
            let differs = (figure / last - 1.0).abs();
            self.mean = if self.mean.is_finite() { self.mean + (differs - self.mean) / STRETCH as f32 } else { differs };
        }
    }

    /// Those that follow are not of the same.
    pub(super) fn begins_anew(&mut self) {
        self.last = None;
    }

    /// By so much two means may differ by chance, of this many stretches each: two standard errors, nearly.
    pub(super) fn between(&self, stretches: u32, others: u32) -> f32 {
        2.0 * self.mean * (1.0 / stretches as f32 + 1.0 / others as f32).sqrt()
    }
}

impl Shown {
    /// Whether to stay awake costs less, more surely than stretches differ by chance.
    pub(super) fn pays_beside(&self, planned: &Shown, noise: &Noise) -> bool {
        self.is_known() && self.cost < planned.cost * (1.0 - UNSEEN / 2.0 - noise.between(self.stretches, planned.stretches))
    }

    /// Trials in this way until this many stretches of the other are due: as many as keep what that takes longer, and what it costs more, to a
    /// small part of the whole.
    pub(super) fn until(&self, other: &Shown, stretches: u32) -> u32 {
        let more = (self.rate / other.rate).max(other.busy / self.busy.max(1.0)) - 1.0;
        ((more * (MEMORY / STRETCH * stretches) as f32) as u32 + 1).max(stretches)
    }

    /// Trials in this way until one stretch awake is a small part of the whole, of which nothing is known: the thread has the CPU all the time.
    pub(super) fn until_guess(&self) -> u32 {
        (1.0 / (self.rate * self.busy.max(1.0))) as u32
    }

    pub(super) fn is_known(&self) -> bool {
        self.rate > 0.0
    }
}

/// The stretches of the trial under way. The middle half of them counts: others may have had the machine in some, and how many complete in
/// one is a matter of chance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    stretches: [Shown; STRETCH as usize],
    len: usize,
}

impl Trial {
    pub(super) fn add(&mut self, stretch: Shown) {
        self.stretches[self.len] = stretch;
        self.len += 1;
    }

    /// One stretch alone.
    pub(super) fn is_guess(&self) -> bool {
        self.len == 1
    }

    pub(super) fn is_over(&self) -> bool {
        self.len == self.stretches.len()
    }

    pub(super) fn shown(&self) -> Shown {
        let middle = |of: fn(&Shown) -> f32| {
            let mut all = self.stretches.map(|stretch| of(&stretch));
            let known = &mut all[..self.len];
            known.sort_unstable_by(f32::total_cmp);
            let half = &known[self.len / 4..self.len - self.len / 4];
            half.iter().sum::<f32>() / half.len() as f32
        };
        let stretches = (self.len - self.len / 4 * 2) as u32;
        Shown { rate: middle(|shown| shown.rate), busy: middle(|shown| shown.busy), cost: middle(|shown| shown.cost), stretches }
    }
}
