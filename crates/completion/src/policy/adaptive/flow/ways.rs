//! The two ways to wait, tried by turns: to follow the forecast, and to stay awake.

use super::trial::{Noise, Shown, Trial};
use crate::policy::adaptive::forecast::STRETCH;

#[derive(Clone, Debug)]
pub(super) struct Ways {
    /// What the last trial of each has shown.
    pub(super) awake: Shown,
    pub(super) planned: Shown,
    noise: Noise,
    /// The trial under way.
    pub(super) trial: Trial,
    /// Being awake is the cheaper way.
    pub(super) stays: bool,
    /// Trials from the last try of the other way to the next, and those that are over.
    pause: u32,
    passed: u32,
}

impl Ways {
    pub(super) fn new() -> Ways {
        Ways {
            awake: Shown::default(),
            planned: Shown::default(),
            noise: Noise::UNKNOWN,
            trial: Trial::default(),
            stays: false,
            pause: 1,
            passed: 0,
        }
    }

    /// Whether this trial is spent awake: because that is the cheaper way, or to see what it costs.
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.stays != self.tries()
    }

    /// Whether this trial is of the other way.
    fn tries(&self) -> bool {
        self.passed >= self.pause
    }

    /// The other way is tried again after this many trials.
    fn pauses(&mut self, trials: u32) {
        (self.passed, self.pause) = (0, trials);
    }

    /// One more stretch of the trial under way. Whether that was its last.
    pub(super) fn add(&mut self, shown: Shown) -> bool {
        let awake = self.is_awake();
        if awake {
            self.noise.begins_anew();
        } else {
            self.noise.see(shown.cost);
        }
        self.trial.add(shown);
        let way = if awake { &mut self.awake } else { &mut self.planned };
        let first = !way.is_known();
        let over = first || self.trial.is_over();
        if over {
            *way = std::mem::take(&mut self.trial).shown();
            self.compare(first);
        } else if self.tries() && self.trial.is_guess() && !self.promises(&shown) {
            self.trial = Trial::default();
            self.pauses(if awake { self.planned.until(&shown, 1) } else { self.awake.until(&shown, 1) });
        }
        over
    }

    /// What the device was seen to do where none was found late; `gathers`: the forecast's way finds some late.
    pub(super) fn full(&self, before: &Shown, gathers: bool) -> Shown {
        // What a single stretch awake has shown may be chance: the device does at least what it was seen to do.
        let seen = if gathers && before.rate > self.planned.rate { *before } else { self.planned };
        if self.awake.stretches > 1 || self.awake.rate > seen.rate { self.awake } else { seen }
    }

    /// Whether a first stretch in the other way says that it is the cheaper one.
    fn promises(&self, guess: &Shown) -> bool {
        let noise = &self.noise;
        if self.stays { !self.awake.pays_beside(guess, noise) } else { guess.pays_beside(&self.planned, noise) }
    }

    /// A trial is over. The `first` of either way is one stretch: a guess.
    fn compare(&mut self, first: bool) {
        let pays = self.awake.pays_beside(&self.planned, &self.noise);
        let stayed = std::mem::replace(&mut self.stays, pays && !first);
        let (way, other) = if self.stays { (&self.awake, &self.planned) } else { (&self.planned, &self.awake) };
        self.passed += 1;
        if !self.awake.is_known() {
            // As cheap as this way is by now.
            self.pause = way.until_guess();
        } else if first && pays {
            // A guess is worth a trial if it was a good one.
            self.pause = 0;
        } else if first || self.stays != stayed || self.passed > self.pause {
            self.pauses(way.until(other, if first { 1 } else { STRETCH }));
        }
    }
}
