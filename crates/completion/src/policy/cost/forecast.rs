//! When what is in flight completes: the batches, and per class the distribution of device times, forgetting.

use units::{Class, Nanos};

use crate::Batch;

/// Parts of an octave that are told apart: as many as three bits of a float's mantissa say.
const SHIFT: u32 = 20;
/// From 256 ns on, 14 octaves.
const FIRST: u32 = (127 + 8) << 3;
const BUCKETS: usize = 14 * 8;
/// One sample in so many of what is remembered.
const MEMORY: f32 = 64.0;
/// What may take longer than anything remembered.
const UNSEEN: f32 = 1.0 / 64.0;
const BATCHES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Times {
    cdf: [f32; BUCKETS],
    samples: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    at: Nanos,
    commands: u32,
    class: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Forecast {
    times: Vec<Times>,
    ring: [Sent; BATCHES],
    len: usize,
    commands: u32,
}

fn place(t: f32) -> f32 {
    let bits = t.max(1.0).to_bits();
    ((bits as f32) / (1u32 << SHIFT) as f32 - FIRST as f32).clamp(0.0, (BUCKETS - 1) as f32)
}

impl Times {
    fn done(&self, t: f32) -> f32 {
        let at = place(t);
        let i = at as usize;
        let below = if i == 0 { 0.0 } else { self.cdf[i - 1] };
        let f = below + (self.cdf[i] - below) * (at - i as f32);
        f * (1.0 - UNSEEN)
    }

    /// Between these ages: at one point if they are the same.
    fn add(&mut self, from: f32, to: f32) {
        self.samples = (self.samples + 1.0).min(MEMORY);
        let weight = 1.0 / self.samples;
        let (lo, hi) = (place(from), place(to));
        let (flo, fhi) = (self.done(from), self.done(to));
        let known = fhi - flo > 0.02;
        for (i, f) in self.cdf.iter_mut().enumerate() {
            let at = (i + 1) as f32;
            let share = if at >= hi {
                1.0
            } else if at <= lo {
                0.0
            } else if known && hi - lo > 1.0 {
                ((*f * (1.0 - UNSEEN) - flo) / (fhi - flo)).clamp(0.0, 1.0)
            } else {
                (at - lo) / (hi - lo).max(1.0)
            };
            *f += (share - *f) * weight;
        }
    }
}

impl Forecast {
    pub(super) fn new() -> Forecast {
        let none = Times { cdf: [0.0; BUCKETS], samples: 0.0 };
        Forecast { times: vec![none; Class::COUNT], ring: [Sent::default(); BATCHES], len: 0, commands: 0 }
    }

    pub(super) fn sent(&mut self, at: Nanos, batch: &Batch) {
        let Some(class) = batch.class else { return };
        if self.len == BATCHES {
            for pair in 0..BATCHES / 2 {
                let (a, b) = (self.ring[2 * pair], self.ring[2 * pair + 1]);
                self.ring[pair] = Sent { commands: a.commands + b.commands, ..b };
            }
            self.len = BATCHES / 2;
        }
        self.ring[self.len] = Sent { at, commands: batch.commands, class: class.index() as u8 };
        self.len += 1;
        self.commands += batch.commands;
    }

    /// Only so many are in flight: the oldest have completed.
    pub(super) fn keep(&mut self, in_flight: u32) {
        let mut gone = self.commands.saturating_sub(in_flight);
        let mut first = 0;
        while gone > 0 && first < self.len {
            let taken = gone.min(self.ring[first].commands);
            self.ring[first].commands -= taken;
            self.commands -= taken;
            gone -= taken;
            first += usize::from(self.ring[first].commands == 0);
        }
        if first > 0 {
            self.ring.copy_within(first..self.len, 0);
            self.len -= first;
        }
    }

    /// One of this class was found; it completed at an age between these.
    pub(super) fn learn(&mut self, class: Class, from: Nanos, to: Nanos) {
        self.times[class.index()].add(from.0 as f32, to.0 as f32);
    }

    pub(super) fn known(&self) -> bool {
        self.len > 0 && self.ring[..self.len].iter().all(|sent| self.times[sent.class as usize].samples > 0.0)
    }

    /// How many complete within `span` from now on.
    pub(super) fn by(&self, now: Nanos, span: f32) -> f32 {
        self.ring[..self.len]
            .iter()
            .map(|sent| {
                let times = &self.times[sent.class as usize];
                let age = (now - sent.at).0 as f32;
                let before = times.done(age);
                let hist = times.done(age + span) - before;
                // What has taken longer than anything seen may take as long again.
                let tail = UNSEEN * span / (age + span + 1.0);
                sent.commands as f32 * ((hist + tail) / (1.0 - before)).min(1.0)
            })
            .sum()
    }

    /// In how long so many complete.
    pub(super) fn when(&self, now: Nanos, wanted: f32, most: f32) -> f32 {
        let (mut low, mut high) = (0.0, most);
        if self.by(now, most) < wanted {
            return most;
        }
        for _ in 0..12 {
            let mid = (low + high) / 2.0;
            if self.by(now, mid) < wanted { low = mid } else { high = mid }
        }
        high
    }
}
