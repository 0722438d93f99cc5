//! When what is in flight completes: the batches, and per class the distribution of device times, forgetting.

use units::{Class, Nanos, Op};

use crate::Batch;

/// Sixteen parts of an octave are told apart, as four bits of a float's mantissa say them; from 256 ns on, 14 octaves.
const SHIFT: u32 = 19;
const FIRST: u32 = (127 + 8) << 4;
const BUCKETS: usize = 14 * 16;
/// How much is remembered, of whatever is averaged: device times, waits, the caller's rate. One wait in as many is looked at all
/// the way, to learn, and a thread that naps or sleeps in fewer stays awake.
pub(super) const MEMORY: u32 = 64;
/// This many in a row say what is so of late.
pub(super) const STRETCH: u32 = 8;
/// One in this many as are remembered: what may take longer than anything seen, and what counts as none.
pub(super) const UNSEEN: f32 = 1.0 / MEMORY as f32;
/// Batches that are told apart; when there are more, two neighbours count as one.
const BATCHES: usize = 2 * STRETCH as usize;
/// Instants that are weighed.
pub(super) const INSTANTS: usize = 20;

#[derive(Clone, Copy, Debug)]
struct Times {
    /// The share of commands that have completed by the end of each bucket.
    cdf: [f32; BUCKETS],
    samples: f32,
    /// The first bucket of any weight.
    low: usize,
    /// The longest of late.
    longest: f32,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Nanos,
    commands: u32,
    class: Class,
}

#[derive(Clone, Debug)]
pub(super) struct Forecast {
    times: Box<[Times; Class::COUNT]>,
    ring: [Sent; BATCHES],
    len: usize,
    /// In flight.
    pub(super) commands: u32,
}

/// What is expected at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    /// From now on.
    pub(super) at: f32,
    /// This many have completed.
    pub(super) found: f32,
    /// So long those of them that were not to spare have waited to be found, together.
    pub(super) late: f32,
    /// How likely it is that none has.
    pub(super) none: f32,
    /// How long a spin has lasted that ends with the first.
    pub(super) awake: f32,
}

impl Point {
    pub(super) const NOW: Point = Point { at: 0.0, found: 0.0, late: 0.0, none: 1.0, awake: 0.0 };
}

/// A bucket, and how far into it.
fn place(age: f32) -> f32 {
    let bits = age.max(1.0).to_bits();
    (bits as f32 / (1u32 << SHIFT) as f32 - FIRST as f32).clamp(0.0, (BUCKETS - 1) as f32)
}

fn end_of(bucket: usize) -> f32 {
    f32::from_bits((FIRST + bucket as u32 + 1) << SHIFT)
}

impl Times {
    fn done(&self, age: f32) -> f32 {
        let place = place(age);
        let bucket = place as usize;
        let below = if bucket == 0 { 0.0 } else { self.cdf[bucket - 1] };
        below + (self.cdf[bucket] - below) * (place - bucket as f32)
    }

    /// It completed at an age between these: as likely as ever at each of them.
    fn add(&mut self, from: f32, to: f32) {
        self.samples = (self.samples + 1.0).min(MEMORY as f32);
        let weight = 1.0 / self.samples;
        let (low, high) = (self.done(from), self.done(to));
        let last = place(to) as usize;
        let known = high - low > UNSEEN;
        let scale = if known { 1.0 / (high - low) } else { 0.0 };
        for (bucket, cdf) in self.cdf.iter_mut().enumerate() {
            let share = if bucket >= last { 1.0 } else { ((*cdf - low) * scale).clamp(0.0, 1.0) };
            *cdf += (share - *cdf) * weight;
        }
        self.longest = (self.longest * (1.0 - UNSEEN / MEMORY as f32)).max(to);
        self.low = self.cdf.iter().position(|&cdf| cdf > UNSEEN).unwrap_or(0);
    }
}

impl Forecast {
    pub(super) fn new() -> Forecast {
        let none = Times { cdf: [0.0; BUCKETS], samples: 0.0, low: 0, longest: 0.0 };
        Forecast {
            times: Box::new([none; Class::COUNT]),
            ring: [Sent { at: Nanos::ZERO, commands: 0, class: Class::new(Op::Read, 0) }; BATCHES],
            len: 0,
            commands: 0,
        }
    }

    /// What is in flight has been forgotten.
    pub(super) fn resumes(self) -> Forecast {
        Forecast { len: 0, commands: 0, ..self }
    }

    pub(super) fn sent(&mut self, at: Nanos, batch: &Batch) {
        let Some(class) = batch.class else { return };
        if self.len == BATCHES {
            for pair in 0..BATCHES / 2 {
                let (a, b) = (self.ring[2 * pair], self.ring[2 * pair + 1]);
                let commands = a.commands + b.commands;
                let later = (b.at - a.at).0 * u64::from(b.commands) / u64::from(commands.max(1));
                self.ring[pair] = Sent { at: a.at + Nanos(later), commands, ..b };
            }
            self.len = BATCHES / 2;
        }
        self.ring[self.len] = Sent { at, commands: batch.commands, class };
        self.len += 1;
        self.commands += batch.commands;
    }

    /// Only this many are in flight: the oldest have completed.
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
    pub(super) fn learn(&mut self, class: Class, (from, to): (Nanos, Nanos)) {
        self.times[class.index()].add(from.0 as f32, to.0 as f32);
    }

    pub(super) fn is_known(&self) -> bool {
        self.len > 0 && self.ring[..self.len].iter().all(|sent| self.times[sent.class.index()].samples > 0.0)
    }

    /// The class of the oldest in flight.
    pub(super) fn oldest(&self) -> Option<Class> {
        self.ring[..self.len].first().map(|sent| sent.class)
    }

    /// A command that has taken this many times the longest has most likely completed, whatever the notification says.
    pub(super) fn deadline(&self, class: Class) -> Nanos {
        Nanos(self.times[class.index()].longest as u64 * u64::from(STRETCH)).max(Nanos::from_millis(1))
    }

    /// How many complete within each of these spans from now on.
    fn by(&self, now: Nanos, points: &mut [Point]) {
        for sent in &self.ring[..self.len] {
            let times = &self.times[sent.class.index()];
            let age = (now - sent.at).0 as f32;
            let before = times.done(age);
            // What has taken longer than anything remembered may take as long again.
            let left = (1.0 - before) * (1.0 - UNSEEN) + UNSEEN;
            let scale = sent.commands as f32 / left;
            for point in points.iter_mut() {
                let done = (times.done(age + point.at) - before) * (1.0 - UNSEEN) + UNSEEN * point.at / (age + point.at);
                point.found += scale * done;
            }
        }
    }

    /// The instants at which the oldest may complete, as far as `soonest` at least, and what is expected by then.
    pub(super) fn look(&self, now: Nanos, soonest: f32) -> [Point; INSTANTS] {
        let mut points = [Point::default(); INSTANTS];
        let oldest = self.ring[0];
        let age = (now - oldest.at).0 as f32;
        let first = (place(age) as usize).max(self.times[oldest.class.index()].low.saturating_sub(1));
        for (n, point) in points[1..].iter_mut().enumerate() {
            // The later the coarser.
            let bucket = first + if n < 12 { n } else { 12 + (n - 12) * 6 };
            point.at = (end_of(bucket) - age).max(1.0);
        }
        // The soonest that a nap can be over is among them.
        points[INSTANTS - 1].at = points[INSTANTS - 1].at.max(soonest);
        self.by(now, &mut points[1..]);
        // Until the first of them none is expected.
        points[0] = Point { at: points[1].at, ..Point::NOW };
        self.waits(&mut points, 0.0);
        points
    }

    /// The same for a device that does what it can, which is this many in a nanosecond, and has some to spare.
    pub(super) fn full(&self, rate: f32, spare: f32) -> [Point; INSTANTS] {
        let mut points = [Point::default(); INSTANTS];
        for (n, point) in points.iter_mut().enumerate() {
            point.found = self.commands as f32 * (n + 1) as f32 / INSTANTS as f32;
            point.at = point.found / rate;
        }
        self.waits(&mut points, spare);
        points
    }

    /// What follows from how many are found at each instant.
    fn waits(&self, points: &mut [Point; INSTANTS], spare: f32) {
        let single = self.commands == 1;
        let mut before = Point::NOW;
        for point in points {
            let span = point.at - before.at;
            point.none = if single { 1.0 - point.found.min(1.0) } else { (-point.found).exp() };
            point.late = before.late + ((before.found - spare).max(0.0) + (point.found - spare).max(0.0)) / 2.0 * span;
            point.awake = before.awake + (before.none + point.none) / 2.0 * span;
            before = *point;
        }
    }
}

/// What is expected at an instant between those.
pub(super) fn at(points: &[Point; INSTANTS], at: f32) -> Point {
    let next = points.iter().position(|point| point.at >= at).unwrap_or(INSTANTS - 1);
    let (a, b) = (if next == 0 { Point::NOW } else { points[next - 1] }, points[next]);
    let part = ((at - a.at) / (b.at - a.at).max(1.0)).clamp(0.0, 1.0);
    // Beyond the last they go on waiting.
    let beyond = (at - b.at).max(0.0) * b.found;
    let mix = |a: f32, b: f32| a + (b - a) * part;
    Point { at, found: mix(a.found, b.found), late: mix(a.late, b.late) + beyond, none: mix(a.none, b.none), awake: mix(a.awake, b.awake) }
}
