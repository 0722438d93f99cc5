//! `steadystate`: a job ends once a figure stays the same.

use crate::job::{Steady, SteadyOf};
use std::collections::VecDeque;
use units::Nanos;

/// The last figures of a job.
#[derive(Debug)]
pub(super) struct Watch {
    steady: Steady,
    figures: VecDeque<f64>,
    /// When the next figure is due; `None`: the measured part has not begun.
    due: Option<Nanos>,
    last: Nanos,
    /// I/Os and bytes at the last figure, and the latencies since.
    ios: u64,
    bytes: u64,
    completed: u64,
    waited: Nanos,
    pub attained: bool,
}

impl Watch {
    pub fn new(steady: Steady) -> Watch {
        Watch {
            steady,
            figures: VecDeque::new(),
            due: None,
            last: Nanos::ZERO,
            ios: 0,
            bytes: 0,
            completed: 0,
            waited: Nanos::ZERO,
            attained: false,
        }
    }

    /// The measured part begins at `now`.
    pub fn begin(&mut self, now: Nanos) {
        self.due = Some(now + self.steady.ramp + self.steady.interval);
        self.last = now;
    }

    /// When it wants to look.
    pub fn due(&self) -> Nanos {
        self.due.unwrap_or(Nanos::MAX)
    }

    pub fn completed(&mut self, latency: Nanos) {
        self.completed += 1;
        self.waited += latency;
    }

    /// Takes a figure at `now` of a job that has done `ios` and `bytes` so far. Whether all has been steady for long enough.
    pub fn look(&mut self, now: Nanos, ios: u64, bytes: u64) -> bool {
        let seconds = (now - self.last).as_secs_f64().max(1e-9);
        let per_second = |to: u64, from: u64| to.saturating_sub(from) as f64 / seconds;
        let figure = match self.steady.of {
            SteadyOf::Iops => per_second(ios, self.ios),
            SteadyOf::Bandwidth => per_second(bytes, self.bytes),
            SteadyOf::Latency => self.waited.0 as f64 / self.completed.max(1) as f64,
        };
        // The first stretch after the ramp has the ramp in it.
        let whole = self.last + self.steady.ramp < now || self.steady.ramp == Nanos::ZERO;
        (self.ios, self.bytes, self.completed, self.waited, self.last) = (ios, bytes, 0, Nanos::ZERO, now);
        self.due = Some(now + self.steady.interval);
        if whole {
            self.figures.push_back(figure);
        }
        let wanted = (self.steady.window.0 / self.steady.interval.0.max(1)).max(2) as usize;
        while self.figures.len() > wanted {
            self.figures.pop_front();
        }
        self.attained = self.figures.len() == wanted && self.is_steady();
        self.attained
    }

    fn is_steady(&self) -> bool {
        let n = self.figures.len() as f64;
        let mean = self.figures.iter().sum::<f64>() / n;
        let off = if self.steady.slope {
            let middle = (n - 1.0) / 2.0;
            let (mut above, mut below) = (0.0, 0.0);
            for (x, y) in self.figures.iter().enumerate() {
                above += (x as f64 - middle) * (y - mean);
                below += (x as f64 - middle).powi(2);
            }
            (above / below / self.steady.interval.as_secs_f64()).abs()
        } else {
            self.figures.iter().map(|figure| (figure - mean).abs()).fold(0.0, f64::max)
        };
        let limit = if self.steady.percent { mean * self.steady.limit / 100.0 } else { self.steady.limit };
        off <= limit
    }
}

#[cfg(test)]
mod tests;
