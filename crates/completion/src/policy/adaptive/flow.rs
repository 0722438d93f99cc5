//! What goes through the device: what each stretch has shown, and what follows from that for the next.

use units::Nanos;

use super::forecast::{MEMORY, STRETCH, UNSEEN};

/// Rates and costs closer than that are equal: a device that does so much of what it does without gathering is as quick.
const AS_QUICK: f32 = 1.0 - UNSEEN;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// How long a command takes until it is found.
    typical: f32,
    /// What the last trial has shown that was spent awake, and the last that followed the forecast.
    awake: Shown,
    planned: Shown,
    trial: Trial,
    stretch: Stretch,
    in_flight: InFlight,
    /// Completions in a nanosecond awake, or else where none is gathered.
    full: f32,
    /// So many may be found late.
    spare: f32,
    window: Window,
    /// How many entries the device is asked to hold back.
    holds: u16,
    /// Being awake is the cheaper way; and trials until the other way is tried.
    stays: bool,
    left: u32,
}

/// What is in flight, since when, and how long all commands have been until then, together.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    commands: u32,
    since: Nanos,
    waited: u64,
}

/// The stretch under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    since: Nanos,
    sent: u32,
    /// In flight when it began, and at most.
    first: u32,
    most: u32,
    /// CPU time that waiting had cost, and how long commands had been in flight together, when it began.
    spent: u64,
    waited: u64,
    /// Naps and sleeps in it, and how long they have lasted.
    slept: u32,
    asleep: u64,
}

/// What is so at the end of a stretch in a closed loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) in_flight: u32,
    /// CPU time that waiting has cost in all.
    pub(super) spent: u64,
    pub(super) lambda: f32,
    pub(super) delay: Nanos,
    /// A clock drives the caller: no lateness is to spare.
    pub(super) open: bool,
}

/// What is known of one way.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// Completions in a nanosecond.
    rate: f32,
    /// How long the thread had the CPU for each, and what waiting has cost: CPU time + λ · lateness.
    busy: f32,
    cost: f32,
}

impl Shown {
    /// Whether to stay awake costs less.
    fn pays_beside(&self, planned: &Shown) -> bool {
        self.is_known() && self.cost < planned.cost * (1.0 - UNSEEN / 2.0)
    }

    /// Trials in this way until so many stretches of the other are due: as many as keep what that takes longer, and what it costs more, to a
    /// small part of the whole.
    fn until(&self, other: &Shown, stretches: u32) -> u32 {
        let more = (self.rate / other.rate).max(other.busy / self.busy.max(1.0)) - 1.0;
        ((more * (MEMORY / STRETCH * stretches) as f32) as u32 + 1).clamp(stretches, MEMORY * STRETCH)
    }

    /// A thread that stays awake has the CPU all the time, and is as quick at least.
    fn awake_at_most(&self) -> Shown {
        Shown { busy: 1.0 / self.rate, ..*self }
    }

    fn is_known(&self) -> bool {
        self.rate > 0.0
    }
}

/// The stretches of the trial under way. The middle half of them counts: others may have had the machine in some, and how many complete in
/// one is a matter of chance.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    stretches: [Shown; STRETCH as usize],
    len: usize,
}

impl Trial {
    fn add(&mut self, stretch: Shown) {
        self.stretches[self.len] = stretch;
        self.len += 1;
    }

    fn is_over(&self) -> bool {
        self.len == self.stretches.len()
    }

    fn shown(&self) -> Shown {
        let middle = |of: fn(&Shown) -> f32| {
            let mut all = self.stretches.map(|stretch| of(&stretch));
            let known = &mut all[..self.len];
            known.sort_unstable_by(f32::total_cmp);
            let half = &known[self.len / 4..self.len - self.len / 4];
            half.iter().sum::<f32>() / half.len() as f32
        };
        Shown { rate: middle(|shown| shown.rate), busy: middle(|shown| shown.busy), cost: middle(|shown| shown.cost) }
    }
}

/// Which part of what is in flight may be found late, as a window is found in TCP: twice as much each time, until the device does less for it;
/// from then on half of that, and slowly more.
#[derive(Clone, Copy, Debug)]
struct Window {
    part: f32,
    /// The device does as much with several found late: it is at its limit.
    limit: bool,
    /// It has once been too large; and stretches until a larger one is tried.
    met: bool,
    pause: u32,
    /// Stretches in this window, their rate as a share of what the device does, that of the last, and by how much it differs from one to the
    /// next.
    stretches: u32,
    share: f32,
    last: f32,
    noise: f32,
}

impl Window {
    fn new() -> Window {
        Window { part: UNSEEN * STRETCH as f32, limit: false, met: false, pause: 0, stretches: 0, share: 0.0, last: 0.0, noise: 0.0 }
    }

    /// A stretch is over, at this share of what the device does where none is found late; `several` may have been.
    fn judge(&mut self, share: f32, several: bool) {
        if self.stretches > 0 {
            let differs = (share - self.last).abs();
            self.noise += (differs - self.noise) / if self.noise > 0.0 { STRETCH as f32 } else { 1.0 };
        }
        self.stretches = (self.stretches + 1).min(MEMORY);
        self.share += (share - self.share) / self.stretches as f32;
        (self.last, self.pause) = (share, self.pause.saturating_sub(1));
        let error = 2.0 * self.noise / (self.stretches as f32).sqrt();
        if self.noise == 0.0 {
            return;
        }
        if self.share + error < AS_QUICK {
            // What is tried in vain costs a small part of the whole.
            let pause = ((1.0 - self.share) * (MEMORY * STRETCH) as f32) as u32;
            *self = Window { part: self.part / 2.0, limit: self.limit && several, met: true, pause, stretches: 0, ..*self };
        } else if self.share - error >= AS_QUICK {
            self.limit |= several;
            if self.pause == 0 && self.part < 1.0 {
                let more = if self.met { 1.0 + 1.0 / STRETCH as f32 } else { 2.0 };
                *self = Window { part: (self.part * more).min(1.0), stretches: 0, ..*self };
            }
        }
    }
}

impl Flow {
    pub(super) fn new() -> Flow {
        Flow {
            typical: 0.0,
            awake: Shown::default(),
            planned: Shown::default(),
            trial: Trial::default(),
            stretch: Stretch::default(),
            in_flight: InFlight::default(),
            full: 0.0,
            spare: 0.0,
            window: Window::new(),
            holds: 0,
            stays: false,
            left: 1,
        }
    }

    /// Others have had the device meanwhile: the stretch under way tells nothing. Those before it do.
    pub(super) fn resumes(self) -> Flow {
        Flow { stretch: Stretch::default(), ..self }
    }

    /// A command was found at this age.
    pub(super) fn took(&mut self, age: Nanos) {
        self.typical += (age.0 as f32 - self.typical) / MEMORY as f32;
    }

    /// How long a command takes until it is found.
    pub(super) fn typical(&self) -> f32 {
        self.typical
    }

    /// The thread has napped or slept for so long.
    pub(super) fn slept(&mut self, asleep: Nanos) {
        self.stretch.slept += 1;
        self.stretch.asleep += asleep.0;
    }

    /// So many are in flight from now on.
    #[inline]
    pub(super) fn in_flight(&mut self, now: Nanos, commands: u32) {
        let InFlight { commands: before, since, waited } = self.in_flight;
        self.in_flight = InFlight { commands, since: now, waited: waited + (now - since).0 * u64::from(before) };
    }

    /// So many are sent, and so many are in flight then: in a closed loop as many have completed. The stretch, if it is over.
    pub(super) fn sent(&mut self, now: Nanos, commands: u32, in_flight: u32, spent: u64) -> Option<Stretch> {
        self.in_flight(now, in_flight);
        let waited = self.in_flight.waited;
        let stretch = &mut self.stretch;
        (stretch.sent, stretch.most) = (stretch.sent + commands, stretch.most.max(in_flight));
        let begins = stretch.since == Nanos::ZERO;
        if !begins && stretch.sent < stretch.most.max(MEMORY) * STRETCH {
            return None;
        }
        let next = Stretch { since: now, first: in_flight, most: in_flight, spent, waited, ..Stretch::default() };
        let over = std::mem::replace(stretch, next);
        (!begins).then_some(over)
    }

    /// A stretch is over: what it has cost, and at the end of a trial what is done in the next.
    pub(super) fn judge(&mut self, now: Nanos, over: &Stretch, around: &Around) {
        // What was found and not made up for yet counts too: a thread that sends one at a time may be in the midst of that.
        let done = (over.sent + over.first).saturating_sub(around.in_flight).max(1) as f32;
        let (in_flight, rate) = (over.most as f32, done / ((now - over.since).0 as f32).max(1.0));
        let cpu = around.spent.saturating_sub(over.spent) as f32 / done;
        // By Little's law each has taken so long.
        let took = self.in_flight.waited.saturating_sub(over.waited) as f32 / done;
        let cost = cpu + around.lambda * took;
        let awake = self.is_awake();
        if awake && over.slept * MEMORY > over.sent {
            // It does not say what the device can do.
            (self.trial.len, self.left) = (0, if self.stays { self.left } else { STRETCH });
            return self.spares(in_flight, around);
        }
        let shown = Shown { rate, busy: 1.0 / rate - over.asleep as f32 / done, cost };
        if !awake && self.full > 0.0 {
            self.window.judge(rate / self.full, self.spare > 1.0);
        }
        self.trial.add(shown);
        let way = if awake { &mut self.awake } else { &mut self.planned };
        let first = !way.is_known();
        if first || self.trial.is_over() {
            *way = std::mem::take(&mut self.trial).shown();
            self.compare(awake, first);
        } else if self.left == 0 && self.trial.len == 1 && !self.promises(&shown) {
            self.trial.len = 0;
            self.left = if awake { self.planned.until(&shown, 1) } else { self.awake.until(&shown, 1) };
        }
        self.spares(in_flight, around);
        if std::env::var_os("DBG").is_some() { eprintln!("awake {awake} rate {:.6} cost {:.0} busy {:.0} took {:.0} full {:.6} noise {:.3} spare {:.1} part {:.3} pause {} holds {} left {} stays {}", rate, cost, shown.busy, took, self.full, self.window.noise, self.spare, self.window.part, self.window.pause, self.holds, self.left, self.stays); }
    }

    /// Whether a first stretch in the other way says that it is the cheaper one.
    fn promises(&self, guess: &Shown) -> bool {
        if self.stays { !self.awake.pays_beside(guess) } else { guess.pays_beside(&self.planned) }
    }

    /// A trial is over. The `first` of either way is one stretch: a guess, made before it was known what is to spare.
    fn compare(&mut self, awake: bool, first: bool) {
        // The device may have become quicker meanwhile.
        self.full = match self.planned.rate {
            _ if self.awake.is_known() => self.awake.rate,
            rate if self.spare > 1.0 => self.full.max(rate),
            rate => rate,
        };
        let pays = self.awake.pays_beside(&self.planned);
        let stayed = std::mem::replace(&mut self.stays, pays && !first);
        let at_most = self.planned.awake_at_most();
        let (way, other) = match self.stays {
            true => (&self.awake, &self.planned),
            false => (&self.planned, if self.awake.is_known() { &self.awake } else { &at_most }),
        };
        self.left = match self.left {
            _ if self.stays != stayed => way.until(other, STRETCH),
            // A guess is worth a trial if it was a good one.
            _ if first => {
                if pays {
                    0
                } else {
                    way.until(other, 1)
                }
            }
            0 => way.until(other, STRETCH),
            // What it costs at most shows while it is not tried.
            left if !self.awake.is_known() => way.until(other, 1).min(left - 1),
            left => left - 1,
        };
    }

    /// So many of those in flight may be found late.
    fn spares(&mut self, in_flight: f32, around: &Around) {
        self.spare = if around.open { 0.0 } else { in_flight * self.window.part };
        // Half of them are asked for, and fewer if more than the other half complete while the thread wakes up.
        let asked = (self.spare - self.full * around.delay.0 as f32).clamp(0.0, self.spare / 2.0) as u16;
        // Within a factor of two nothing is changed: a change is a command to the controller.
        if asked < self.holds / 2 || asked >= self.holds * 2 {
            self.holds = if asked < 2 { 0 } else { asked };
        }
    }

    /// Whether this trial is spent awake: because that is the cheaper way, or to see what it costs.
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.stays != (self.left == 0)
    }

    /// So many may be found late, and nobody is later for it.
    #[inline]
    pub(super) fn spare(&self) -> f32 {
        if self.is_awake() { 0.0 } else { self.spare }
    }

    /// How many entries the device is to hold back. A thread that stays awake does not notice, and the other way is tried as it would be.
    #[inline]
    pub(super) fn holds(&self) -> u16 {
        self.holds
    }

    /// The most that complete in a nanosecond, as far as is known.
    pub(super) fn cap(&self) -> f32 {
        if self.window.limit { self.full } else { f32::INFINITY }
    }

    /// Completions in a nanosecond awake, or else where none is gathered, once that is known.
    pub(super) fn full(&self) -> f32 {
        self.full
    }
}

#[cfg(test)]
mod tests;
