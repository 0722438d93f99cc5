//! Whether a user would rather have something else: is the default setting of `adaptive` dominated in a cell, and does the knob do
//! what it says?
//!
//! Where I/Os arrive by themselves, a rival *is as quick* if its mean and its p99 are at most 5 % later; in a closed loop, if it reaches
//! 0.99 of the I/Os per second. Of the rivals that are as quick one that takes at most 0.95 of the CPU time per I/O *dominates*. A cell
//! is *dominating* if nothing dominates there, some other mode is as quick, and `adaptive` takes at most 0.95 of the CPU time of each
//! that is.

/// How much later a rival may be that is as quick.
const LATER: f64 = 1.05;
/// What part of the I/Os per second it reaches in a closed loop.
const REACHED: f64 = 0.99;
/// What part of the CPU time dominates.
const CHEAPER: f64 = 0.95;
/// Within this the curve of the knob is monotone.
const MONOTONE: f64 = 1.03;

/// What a mode comes to in a cell, over all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fare {
    /// CPU time per I/O, in nanoseconds.
    pub cpu: f64,
    /// Mean latency, in nanoseconds.
    pub mean: f64,
    /// The 99th percentile, in nanoseconds.
    pub p99: f64,
    /// I/Os per second.
    pub iops: f64,
}

/// What a verdict says of `adaptive` at its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This rival dominates: of several the one that takes the least CPU time.
    Dominated(usize),
    /// Nobody else who is as quick is as cheap.
    Dominating,
    /// Neither.
    Neither,
}

impl Fare {
    /// Each figure as a part of another's.
    pub fn over(&self, other: &Fare) -> Fare {
        let part = |own: f64, other: f64| if own == other { 1.0 } else { own / other };
        Fare {
            cpu: part(self.cpu, other.cpu),
            mean: part(self.mean, other.mean),
            p99: part(self.p99, other.p99),
            iops: part(self.iops, other.iops),
        }
    }

    /// What it costs by `adaptive`'s own measure: nanoseconds of CPU time for an I/O, and of its mean latency at this price.
    pub fn cost(&self, price: f64) -> f64 {
        self.cpu + price * self.mean
    }

    /// Whether one would wait no longer with this than with `other`.
    pub fn is_as_quick(&self, other: &Fare, open: bool) -> bool {
        match open {
            true => self.mean <= other.mean * LATER && self.p99 <= other.p99 * LATER,
            false => self.iops >= other.iops * REACHED,
        }
    }

    /// Whether one would rather have this than `other`.
    pub fn dominates(&self, other: &Fare, open: bool) -> bool {
        // Where nothing is spent nothing is cheaper.
        self.is_as_quick(other, open) && self.cpu < other.cpu && self.cpu <= other.cpu * CHEAPER
    }
}

/// The verdict on `own` in a cell. Rivals are other modes first and then `settings` of its own knob, as one list; only modes count for
/// dominating.
pub fn judge(own: &Fare, modes: &[Fare], settings: &[Fare], open: bool) -> Verdict {
    let rivals = || modes.iter().chain(settings).enumerate();
    let dominating = rivals().filter(|(_, rival)| rival.dominates(own, open));
    if let Some((cheapest, _)) = dominating.min_by(|a, b| a.1.cpu.total_cmp(&b.1.cpu)) {
        return Verdict::Dominated(cheapest);
    }
    let mut as_quick = modes.iter().filter(|mode| mode.is_as_quick(own, open)).peekable();
    if as_quick.peek().is_some() && as_quick.all(|mode| own.cpu < mode.cpu && own.cpu <= mode.cpu * CHEAPER) {
        Verdict::Dominating
    } else {
        Verdict::Neither
    }
}

/// Whether a knob only ever gives time for CPU time: from one setting to any later one of `curve`, which is in the order from the
/// soonest to the cheapest, the mean never falls and the CPU time never grows, within 3 %.
pub fn is_monotone(curve: &[Fare]) -> bool {
    let ordered = |(at, sooner): (usize, &Fare)| {
        curve[at + 1..].iter().all(|cheaper| sooner.mean <= cheaper.mean * MONOTONE && cheaper.cpu <= sooner.cpu * MONOTONE)
    };
    curve.iter().enumerate().all(ordered)
}

#[cfg(test)]
mod tests;
