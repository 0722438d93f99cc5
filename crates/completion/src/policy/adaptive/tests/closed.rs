//! A closed loop on a device that does one command after another, or all at once.

use super::*;

/// What a command takes by itself, and how far apart the device completes at its limit.
const TAKES: u64 = 8_000;
const SPREAD: u64 = 2_000;
pub(super) const APART: u64 = 1_000;

/// How long a device holds its messages back at most.
pub(super) const HELD: u64 = 100_000;

/// Commands in flight, in the order of their completion: when each was sent, and when it completes.
pub(super) struct Loop {
    pub(super) policy: Adaptive,
    now: u64,
    flight: Vec<(u64, u64)>,
    limited: bool,
    /// The device tells of this many at once, or of the first 100 µs late.
    pub(super) held: u32,
    pub(super) urgent: bool,
}

/// Completions, the looks that found them, and the time that they took.
pub(super) struct Ran {
    pub(super) found: u64,
    pub(super) looks: u64,
    pub(super) took: u64,
}

impl Loop {
    pub(super) fn new(price: LatencyPrice, depth: u32, limited: bool) -> Loop {
        let mut closed = Loop { policy: policy(price), now: 1_000_000, flight: Vec::new(), limited, held: 0, urgent: false };
        closed.send(depth);
        closed
    }

    fn send(&mut self, commands: u32) {
        for n in 0..u64::from(commands) {
            // Where it has no limit no two are alike.
            let alone = self.now + TAKES + if self.limited { 0 } else { (self.now + n * 7) * 7_919 % SPREAD };
            let after = self.flight.last().map_or(0, |&(_, done)| done + APART);
            self.flight.push((self.now, if self.limited { alone.max(after) } else { alone }));
        }
        self.flight.sort_by_key(|&(_, done)| done);
        let in_flight = self.flight.len() as u32;
        self.policy.submitted(Nanos(self.now), &Batch { commands, in_flight, class: Some(read()), urgent: 0 });
    }

    /// Until this many have completed. Looks cost nothing.
    pub(super) fn run(&mut self, wanted: u64) -> Ran {
        let mut ran = Ran { found: 0, looks: 0, took: self.now };
        let (mut found, mut woke) = (0, None);
        while ran.found < wanted {
            let in_flight = self.flight.len() as u32;
            let urgent_waiting = if self.urgent { in_flight } else { 0 };
            let seen = Seen { found, in_flight, held: self.held, urgent_waiting, woke: woke.take(), ..Seen::default() };
            found = 0;
            let plan = self.policy.next(Nanos(self.now), &seen);
            let first = self.flight[0].1.max(self.now);
            let slept = match plan {
                Plan::Spin { until } => {
                    self.now = first.min(until.0);
                    false
                }
                Plan::Nap { until, .. } => {
                    self.now = self.now.max(until.0) + MACHINE.late.0;
                    woke = Some(Woke { cause: Cause::Timer, late: MACHINE.late });
                    true
                }
                Plan::Sleep { .. } => {
                    let held = self.flight.get(self.held.saturating_sub(1) as usize).map_or(u64::MAX, |&(_, done)| done);
                    let told = if self.held > 1 { held.min(first + HELD) } else { first };
                    self.now = told.max(self.now) + MACHINE.delay.0;
                    woke = Some(Woke::NOTIFIED);
                    true
                }
                Plan::Look { .. } | Plan::Rest => false,
            };
            if !slept || woke.is_some() {
                let done = self.flight.iter().take_while(|&&(_, done)| done <= self.now).count();
                found = done as u32;
                if found > 0 {
                    woke.is_some().then(|| self.policy.next(Nanos(self.now), &Seen { in_flight, woke: woke.take(), ..Seen::default() }));
                    let ages = self.flight.drain(..done).map(|(sent, _)| Nanos(self.now - sent));
                    let done: Vec<Done> = ages.map(|age| Done { class: read(), age, slept }).collect();
                    self.policy.completed(&done);
                    (ran.found, ran.looks) = (ran.found + u64::from(found), ran.looks + 1);
                    self.send(found);
                }
            }
        }
        ran.took = self.now - ran.took;
        ran
    }
}

/// What waits within a device at its limit may be found late: many at a time, and the device never runs dry.
#[test]
fn saturated_device_is_kept_busy() {
    let mut closed = Loop::new(LatencyPrice::default(), 32, true);
    closed.run(2_000);
    let ran = closed.run(200_000);
    assert!(ran.found > ran.looks * 4, "{} of {}", ran.looks, ran.found);
    assert!(ran.took * 100 < ran.found * APART * 102, "{} of {}", ran.took, ran.found);
}

/// Where nothing waits within the device, whatever is found late is late.
#[test]
fn unsaturated_gathering_loses_little() {
    let mut closed = Loop::new(LatencyPrice::default(), 32, false);
    closed.run(100_000);
    let ran = closed.run(100_000);
    assert!(ran.took < ran.found * (TAKES + SPREAD + MACHINE.delay.0) / 32, "{} of {}", ran.took, ran.found);
}

/// If only CPU time counts a nap for all that are in flight is as cheap as it gets: it ends when they have come, give or take how well
/// that is known.
#[test]
fn closed_loops_never_stall() {
    for limited in [false, true] {
        let mut closed = Loop::new(LatencyPrice::NONE, 32, limited);
        closed.run(2_000);
        let ran = closed.run(20_000);
        assert!(ran.took < ran.found / 32 * (TAKES + 32 * APART) * 3, "{} {}", ran.took, ran.found);
    }
}
