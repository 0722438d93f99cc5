//! Completion times of commands: service times, channels, link bandwidth and the IOPS limit. A
//! channel serves one command at a time, and any command may take any channel: unlike a flash
//! channel it has no addresses of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::{Nanos, Op};

use crate::{Profile, Service};

/// A command's completion, ordered by time, then by order of fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at: Nanos,
    pub(crate) order: u64,
    pub(crate) slot: u32,
}

/// Timing state of a device.
#[derive(Debug)]
pub(crate) struct Schedule {
    profile: Profile,
    rng: Xoshiro256PlusPlus,
    due: BinaryHeap<Reverse<Due>>,
    /// Time at which each channel becomes free; empty if channels are not limited.
    channels: BinaryHeap<Reverse<Nanos>>,
    /// Time at which the link becomes free.
    link_free_at: Nanos,
    iops_limit: Option<Bucket>,
    /// Commands so far, by operation, for slow phases and drift.
    served: [u64; Op::ALL.len()],
}

impl Schedule {
    pub(crate) fn new(profile: &Profile, seed: u64) -> Schedule {
        let iops_limit = (profile.iops > 0).then(|| Bucket::new(profile.iops, profile.iops_burst));
        Schedule {
            profile: profile.clone(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            due: BinaryHeap::new(),
            channels: idle_channels(profile),
            link_free_at: Nanos::ZERO,
            iops_limit,
            served: [0; Op::ALL.len()],
        }
    }

    /// Controller reset: drops commands and frees the channels. The token bucket of the IOPS limit
    /// is not refilled, so that resets do not raise the rate.
    pub(crate) fn clear(&mut self) {
        self.due.clear();
        self.channels = idle_channels(&self.profile);
        self.link_free_at = Nanos::ZERO;
    }

    /// Ensures capacity for `n` commands.
    pub(crate) fn make_room(&mut self, n: usize) {
        self.due.reserve(n.saturating_sub(self.due.len()));
    }

    /// Starts a command at `now` and returns its completion time. `service` overrides the random
    /// service time.
    #[inline]
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        op: Op,
        bytes: u32,
        service: Option<Nanos>,
    ) -> Nanos {
        let mut begin = now;
        if let Some(limit) = &mut self.iops_limit {
            // A command above the IOPS limit starts later; it does not occupy a channel while it
            // waits.
            begin = limit.take(begin, 1);
        }
        let mut transfer = Nanos::ZERO;
        if self.profile.bandwidth > 0
            && bytes > 0
            && matches!(op, Op::Read | Op::Write | Op::Compare)
        {
            // Link time is reserved in the order in which commands start, although the transfer
            // follows the service. Reserved at the end of a service that is computed in advance, it
            // would make commands that start later but complete earlier wait for a slow one.
            transfer = Nanos(u64::from(bytes) * 1_000_000_000 / self.profile.bandwidth);
            begin = begin.max(self.link_free_at);
            self.link_free_at = begin + transfer;
        }
        let service = service.unwrap_or_else(|| self.sample(op));
        // Without a limit on channels the device serves any number of commands at once.
        let Some(mut channel) = self.channels.peek_mut() else { return begin + service + transfer };
        // The channel that becomes free first serves the command.
        let ends = begin.max(channel.0) + service;
        *channel = Reverse(ends);
        ends + transfer
    }

    /// Adds a command's completion.
    #[inline]
    pub(crate) fn push(&mut self, due: Due) {
        self.due.push(Reverse(due));
    }

    /// Removes the next completion that is due by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.due.pop().map(|Reverse(due)| due)
    }

    /// Time of the next completion.
    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    fn sample(&mut self, op: Op) -> Nanos {
        let served = &mut self.served[op as usize];
        // Counted even for constant times: slow phases and drift depend on the number of commands.
        *served += 1;
        self.profile.service(op).sample(*served - 1, &mut self.rng)
    }
}

impl Service {
    /// Draws a time, as the `served`th command: the same sequence on every machine. Constant times
    /// use no random numbers.
    #[inline]
    pub fn sample(&self, served: u64, rng: &mut Xoshiro256PlusPlus) -> Nanos {
        let slow = in_tail(self, served, rng);
        let mut time = self.base + drifted(self, served);
        if self.jitter > Nanos::ZERO {
            time += exponential(self.jitter, rng.next_u64());
        }
        if self.more_ppm > 0 && hit(self.more_ppm, rng) {
            time += self.more;
        }
        if slow { time + self.tail } else { time }
    }
}

/// The channels of an idle device: all are free at once.
fn idle_channels(profile: &Profile) -> BinaryHeap<Reverse<Nanos>> {
    (0..profile.channels).map(|_| Reverse(Nanos::ZERO)).collect()
}

/// Returns true with a probability of `ppm` in a million.
fn hit(ppm: u32, rng: &mut Xoshiro256PlusPlus) -> bool {
    (u128::from(rng.next_u64()) * 1_000_000) >> 64 < u128::from(ppm)
}

/// Drift of `base`: rises linearly and falls to zero again within a period.
fn drifted(service: &Service, served: u64) -> Nanos {
    let period = u64::from(service.drift_run);
    if period == 0 {
        return Nanos::ZERO;
    }
    // By commands, not by time: the same sequence at every load.
    let into = served % period;
    // Distance from the nearer end of the period, where the drift is zero.
    let up = into.min(period - into);
    let max = u128::from(service.base.0) * u128::from(service.drift_pct) / 100;
    Nanos((max * u128::from(up) * 2 / u128::from(period)) as u64)
}

/// Whether the `served`th command takes `tail` longer.
fn in_tail(service: &Service, served: u64, rng: &mut Xoshiro256PlusPlus) -> bool {
    const MILLION: u64 = 1_000_000;
    let ppm = u64::from(service.tail_ppm).min(MILLION);
    match u64::from(service.tail_run) {
        // A device without a tail draws no random number for it.
        _ if ppm == 0 => false,
        0 => hit(service.tail_ppm, rng),
        // The slow commands are the last ones of each period, so that a device starts in its fast
        // phase.
        run => {
            let period = run * MILLION / ppm;
            served % period >= period - run
        }
    }
}

/// An exponentially distributed time of this mean, from 64 random bits. Integer arithmetic only,
/// for the same result on every machine.
fn exponential(mean: Nanos, random: u64) -> Nanos {
    Nanos(((u128::from(mean.0) * u128::from(neg_ln(random))) >> 32) as u64)
}

/// −ln(u / 2^64) in 32.32 fixed point, with u = 0 treated as 1. Leading zeroes give the power of
/// two, a table with linear interpolation the rest; the error is below 2^−12.
fn neg_ln(u: u64) -> u64 {
    const LN2: u64 = 2_977_044_472;
    let zeroes = u.max(1).leading_zeros();
    // The mantissa in [1, 2): the bits below the leading one.
    let mantissa = (u.max(1) << zeroes) << 1;
    let (index, fraction) = ((mantissa >> 58) as usize, mantissa << 6 >> 32);
    let (low, high) = (LN_TABLE[index], LN_TABLE[index + 1]);
    let ln = low + (((high - low) * fraction) >> 32);
    (u64::from(zeroes) + 1) * LN2 - ln
}

/// ln(1 + i / 64) in 32.32 fixed point.
static LN_TABLE: [u64; 65] = ln_table();

const fn ln_table() -> [u64; 65] {
    let mut table = [0; 65];
    let mut i = 0;
    while i <= 64 {
        // ln x = 2 artanh((x − 1) / (x + 1)); on [1, 2] the series converges at least as fast as
        // 9^−n.
        let z = i as f64 / (128.0 + i as f64);
        let (mut power, mut sum, mut n) = (z, 0.0, 1);
        while n < 40 {
            sum += power / n as f64;
            power *= z * z;
            n += 2;
        }
        table[i] = (2.0 * sum * 4_294_967_296.0) as u64;
        i += 1;
    }
    table
}

/// A token bucket with a rate per second and a depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Time per token in units of 2^−16 ns.
    interval: u64,
    /// Maximum time by which `paid_until` may be ahead of now: the depth of the bucket.
    slack: Nanos,
    /// Time until which the tokens taken so far use up the rate.
    paid_until: Nanos,
    /// The part of `paid_until` below a nanosecond, in units of 2^−16 ns.
    fraction: u64,
}

impl Bucket {
    /// `rate` tokens per second, not 0; `burst`: depth.
    pub(crate) fn new(rate: u64, burst: u32) -> Bucket {
        let interval = (1_000_000_000u64 << 16) / rate.max(1);
        let slack = Nanos(interval.saturating_mul(u64::from(burst.max(1) - 1)) >> 16);
        Bucket { interval, slack, paid_until: Nanos::ZERO, fraction: 0 }
    }

    /// The earliest time at which a token is available.
    #[inline]
    pub(crate) fn ready(&self) -> Nanos {
        self.paid_until - self.slack
    }

    /// Takes `n` tokens at `now`, or as soon as one is available, and returns the time at which
    /// they were taken. The bucket's level may become negative.
    #[inline]
    pub(crate) fn take(&mut self, now: Nanos, n: u64) -> Nanos {
        let at = now.max(self.ready());
        let cost = self.interval.saturating_mul(n) + self.fraction;
        self.fraction = cost & 0xffff;
        self.paid_until = self.paid_until.max(at) + Nanos(cost >> 16);
        at
    }
}

#[cfg(test)]
mod tests;
