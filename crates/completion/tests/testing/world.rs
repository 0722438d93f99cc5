//! A simulated queue, device and thread that carries out a policy's plans. Checks that each
//! completion is found in a bounded number of steps.

use super::LONGEST;
use super::script::{Draws, read};
use crate::{Batch, Cause, Done, Nanos, Plan, Policy, Seen, WEIGHT, Woke};

/// A batch, submitted when the thread is awake, or when all earlier ones have been found.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    /// Device time of each command, in nanoseconds.
    service: Vec<u64>,
    /// Wait until the queue is empty before submitting.
    after_all: bool,
    /// Nanoseconds that the thread then computes outside the library.
    leaves_for: Option<u64>,
    /// Replace the policy before submitting.
    switch: bool,
    /// Another thread holds the lock at the first poll.
    lock_busy: bool,
    /// Another event wakes the thread.
    disturbed: bool,
    /// Poll after the commit.
    checks: bool,
}

pub(super) fn submissions(seed: u64, switches: bool) -> Vec<Submission> {
    let rng = &mut Draws::new(seed);
    let one = |rng: &mut Draws| {
        let commands = rng.within(1, 100);
        let service = |rng: &mut Draws| {
            [0, rng.within(500, 20_000), rng.within(50_000, 2_000_000)][rng.within(0, 3) as usize]
        };
        Submission {
            service: (0..commands).map(|_| service(rng)).collect(),
            after_all: rng.chance(50),
            leaves_for: if rng.chance(30) { Some(rng.within(1_000, 500_000)) } else { None },
            switch: switches && rng.chance(50),
            lock_busy: rng.chance(50),
            disturbed: rng.chance(50),
            checks: rng.chance(50),
        }
    };
    let count = rng.within(1, 12);
    (0..count).map(|_| one(rng)).collect()
}

struct World<S> {
    policy: S,
    now: Nanos,
    /// When the device will post each command's entry.
    device: Vec<Nanos>,
    /// Entries posted and not found: the instant since which the thread could have found each.
    pending: Vec<Nanos>,
    in_flight: u32,
    steps: u64,
    lock_busy: bool,
    disturbed: bool,
    /// How long the thread has computed, if it has just returned.
    back: Option<Nanos>,
    /// Finding an entry late is a fault.
    judges_lateness: bool,
}

/// Runs the submissions and returns a fault, if any. `switch` replaces the policy, given the number
/// of the submission.
pub(super) fn run<S: Policy>(
    submissions: &[Submission],
    make: impl Fn() -> S,
    switch: impl Fn(usize, &mut S),
    judges_lateness: bool,
) -> Option<String> {
    let mut world = World {
        policy: make(),
        now: Nanos(1),
        device: Vec::new(),
        pending: Vec::new(),
        in_flight: 0,
        steps: 0,
        lock_busy: false,
        disturbed: false,
        back: None,
        judges_lateness,
    };
    submissions
        .iter()
        .enumerate()
        .try_for_each(|(i, one)| world.go(one, |policy| switch(i, policy)))
        .and_then(|()| world.wait(0))
        .err()
}

impl<S: Policy> World<S> {
    fn go(&mut self, one: &Submission, switch: impl Fn(&mut S)) -> Result<(), String> {
        if one.after_all {
            self.wait(0)?;
        }
        if one.switch {
            switch(&mut self.policy);
        }
        (self.lock_busy, self.disturbed) = (one.lock_busy, one.disturbed);
        self.submit(&one.service);
        if one.checks {
            self.look(WEIGHT)?;
        }
        if let Some(away) = one.leaves_for {
            self.leave()?;
            self.now += Nanos(away);
            self.back = Some(Nanos(away));
            // No thread polls while this one computes, so lateness counts from its return.
            self.post();
            let now = self.now;
            self.pending.iter_mut().for_each(|since| *since = now);
        }
        self.wait(self.in_flight.saturating_sub(1))
    }

    fn submit(&mut self, service: &[u64]) {
        self.device.extend(service.iter().map(|&s| self.now + Nanos(s)));
        self.in_flight += service.len() as u32;
        let batch = Batch {
            commands: service.len() as u32,
            in_flight: self.in_flight,
            class: Some(read(4096)),
            urgent: 0,
        };
        self.policy.submitted(self.now, &batch);
    }

    /// Waits until no more than `left` are in flight.
    fn wait(&mut self, left: u32) -> Result<(), String> {
        let cycle = self.back.take();
        let mut seen = Seen {
            in_flight: self.in_flight,
            woke: cycle.map(|_| Woke::OTHER),
            cycle,
            ..Seen::default()
        };
        while self.in_flight > left {
            seen = self.step(&seen)?.ok_or("it rests with commands in flight")?;
        }
        Ok(())
    }

    /// Calls the policy until the queue is armed or empty, or a nap says when the thread is back.
    fn leave(&mut self) -> Result<(), String> {
        let mut seen = Seen { in_flight: self.in_flight, leaving: true, ..Seen::default() };
        loop {
            self.post();
            let plan = self.policy.next(self.now, &seen);
            match plan {
                Plan::Poll { budget } => seen = Seen { leaving: true, ..self.look(budget)? },
                Plan::Sleep { .. } if !self.pending.is_empty() => {
                    seen = Seen {
                        pending: true,
                        leaving: true,
                        in_flight: self.in_flight,
                        ..Seen::default()
                    }
                }
                Plan::Sleep { .. } | Plan::Nap { .. } => return Ok(()),
                Plan::Idle if self.in_flight == 0 => return Ok(()),
                _ => return Err(format!("it leaves with {plan:?}")),
            }
            self.count()?;
        }
    }

    /// Carries out one plan. `None`: the plan was `Idle`.
    fn step(&mut self, seen: &Seen) -> Result<Option<Seen>, String> {
        self.count()?;
        self.post();
        let woke = |cause| Some(Woke { cause, late: Nanos::ZERO });
        let mut next = Seen { in_flight: self.in_flight, ..Seen::default() };
        // A wake-up is reported until the next poll.
        next.woke = seen.woke;
        let soonest = self.device.iter().copied().min().unwrap_or(Nanos::MAX);
        match self.policy.next(self.now, seen) {
            Plan::Idle => return Ok(None),
            Plan::Poll { budget } => next = self.look(budget)?,
            Plan::Spin { until } => {
                if self.pending.is_empty() {
                    self.now = self.now.max(until.min(soonest)) + Nanos(10);
                    self.post();
                }
                next.pending = !self.pending.is_empty();
            }
            Plan::Nap { until, .. } => {
                self.until(until)?;
                next.woke = woke(Cause::Timer);
            }
            Plan::Sleep { .. } if !self.pending.is_empty() => next.pending = true,
            Plan::Sleep { .. } if std::mem::take(&mut self.disturbed) => {
                next.woke = woke(Cause::Other)
            }
            Plan::Sleep { until, .. } => {
                self.until(until.min(soonest))?;
                next.woke = woke(if soonest <= until { Cause::Notification } else { Cause::Timer });
            }
        }
        Ok(Some(next))
    }

    fn look(&mut self, budget: u32) -> Result<Seen, String> {
        self.post();
        self.now += Nanos(100);
        if std::mem::take(&mut self.lock_busy) {
            // The other thread polls, so lateness for this one counts from now.
            self.pending.fill(self.now);
            return Ok(Seen { lock_busy: true, in_flight: self.in_flight, ..Seen::default() });
        }
        let found = (budget as usize).min(self.pending.len());
        let late = self.pending.drain(..found).map(|since| self.now - since).max();
        if let Some(late) =
            late.filter(|&late| self.judges_lateness && late > LONGEST + Nanos::from_millis(1))
        {
            return Err(format!("it finds a completion {late} late"));
        }
        self.in_flight -= found as u32;
        let done = Done { class: read(4096), age: Nanos(10_000), slept: false };
        self.policy.completed(&vec![done; found]);
        let found = found as u32;
        Ok(Seen {
            found,
            budget_used_up: found == budget,
            in_flight: self.in_flight,
            ..Seen::default()
        })
    }

    fn post(&mut self) {
        let now = self.now;
        let due = self.device.extract_if(.., |at| *at <= now);
        self.pending.extend(due);
    }

    fn until(&mut self, at: Nanos) -> Result<(), String> {
        if at == Nanos::MAX {
            return Err("it waits for ever".into());
        }
        self.now = self.now.max(at) + Nanos(1_000);
        Ok(())
    }

    /// A bound on the steps: each wait in these cases is below 3 ms and each batch below 100
    /// commands, so a policy that needs more makes no progress.
    fn count(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > 5_000 { Err("it goes round and round".into()) } else { Ok(()) }
    }
}
