//! A queue, a device and a thread that does what the policy plans: whether everything is found, in a bounded number of
//! steps.

use super::*;

/// A batch is submitted when this one's predecessors have all been found, or as soon as the thread is awake.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    /// Device time of each command, in nanoseconds.
    service: Vec<u64>,
    /// Waits for the queue to be empty.
    after_all: bool,
    /// The thread computes for so long afterwards, away from the library.
    leaves_for: Option<u64>,
    /// The mode is switched before it.
    switch: bool,
    /// Another thread holds the lock when this one looks first.
    lock_busy: bool,
    /// Something else wakes the thread.
    disturbed: bool,
}

pub(super) fn any_submissions() -> impl Strategy<Value = Vec<Submission>> {
    let service = proptest::collection::vec(prop_oneof![Just(0u64), 500u64..20_000, 50_000u64..2_000_000], 1..100);
    let leaves = proptest::option::weighted(0.3, 1_000u64..500_000);
    let one = (service, leaves, any::<[bool; 4]>()).prop_map(|(service, leaves_for, b)| Submission {
        service,
        after_all: b[0],
        leaves_for,
        switch: b[1],
        lock_busy: b[2],
        disturbed: b[3],
    });
    proptest::collection::vec(one, 1..12)
}

struct World<D> {
    policy: D,
    now: Nanos,
    /// When each command in the device will be posted.
    device: Vec<Nanos>,
    /// Posted and not found.
    pending: u32,
    in_flight: u32,
    steps: u64,
    lock_busy: bool,
    disturbed: bool,
}

/// Runs the submissions; `policy` makes the one to begin with and to switch to, by number.
pub(super) fn run<D: Decides>(submissions: &[Submission], policy: impl Fn(usize) -> D) -> Result<(), String> {
    let mut world = World {
        policy: policy(0),
        now: Nanos(1),
        device: Vec::new(),
        pending: 0,
        in_flight: 0,
        steps: 0,
        lock_busy: false,
        disturbed: false,
    };
    for (i, s) in submissions.iter().enumerate() {
        if s.after_all {
            world.wait(0)?;
        }
        if s.switch {
            world.policy = policy(i);
        }
        (world.lock_busy, world.disturbed) = (s.lock_busy, s.disturbed);
        world.submit(&s.service);
        if let Some(away) = s.leaves_for {
            world.leave()?;
            world.now += Nanos(away);
        }
        world.wait(world.in_flight.saturating_sub(1))?;
    }
    world.wait(0)
}

impl<D: Decides> World<D> {
    fn submit(&mut self, service: &[u64]) {
        self.device.extend(service.iter().map(|&s| self.now + Nanos(s)));
        self.in_flight += service.len() as u32;
        let batch = Batch { commands: service.len() as u32, in_flight: self.in_flight, class: Some(read(4096)), urgent: 0 };
        if let Check::TryLook { budget } = self.policy.submitted(self.now, &batch) {
            self.look(budget);
        }
    }

    /// Waits until no more than `left` are in flight.
    fn wait(&mut self, left: u32) -> Result<(), String> {
        let mut seen = Seen { in_flight: self.in_flight, ..Seen::default() };
        while self.in_flight > left {
            seen = self.step(&seen)?.ok_or("rests with commands in flight")?;
        }
        Ok(())
    }

    /// Asks until the queue is left armed, or empty.
    fn leave(&mut self) -> Result<(), String> {
        let mut seen = Seen { in_flight: self.in_flight, leaving: true, ..Seen::default() };
        loop {
            self.post();
            let plan = self.policy.next(self.now, &seen);
            match plan {
                Plan::Look { budget } => seen = Seen { leaving: true, ..self.look(budget) },
                Plan::Sleep { .. } if self.pending > 0 => {
                    seen = Seen { pending: true, leaving: true, in_flight: self.in_flight, ..Seen::default() }
                }
                Plan::Sleep { .. } => return Ok(()),
                Plan::Rest if self.in_flight == 0 => return Ok(()),
                _ => return Err(format!("leaves with {plan:?}")),
            }
            self.count()?;
        }
    }

    /// One plan, carried out. `None`: it was to rest.
    fn step(&mut self, seen: &Seen) -> Result<Option<Seen>, String> {
        self.count()?;
        self.post();
        let woke = |cause| Some(Woke { cause, late: Nanos::ZERO });
        let mut next = Seen { in_flight: self.in_flight, ..Seen::default() };
        let soonest = self.device.iter().copied().min().unwrap_or(Nanos::MAX);
        match self.policy.next(self.now, seen) {
            Plan::Rest => return Ok(None),
            Plan::Look { budget } => next = self.look(budget),
            Plan::Spin { until } => {
                if self.pending == 0 {
                    self.now = self.now.max(until.min(soonest)) + Nanos(10);
                    self.post();
                }
                next.pending = self.pending > 0;
            }
            Plan::Nap { until } => {
                self.until(until)?;
                next.woke = woke(Cause::Timer);
            }
            Plan::Sleep { .. } if self.pending > 0 => next.pending = true,
            Plan::Sleep { .. } if std::mem::take(&mut self.disturbed) => next.woke = woke(Cause::Other),
            Plan::Sleep { until, .. } => {
                self.until(until.min(soonest))?;
                next.woke = woke(if soonest <= until { Cause::Notification } else { Cause::Timer });
            }
        }
        Ok(Some(next))
    }

    fn look(&mut self, budget: u32) -> Seen {
        self.post();
        self.now += Nanos(100);
        if std::mem::take(&mut self.lock_busy) {
            return Seen { lock_busy: true, in_flight: self.in_flight, ..Seen::default() };
        }
        let found = budget.min(self.pending);
        self.pending -= found;
        self.in_flight -= found;
        let done = Done { class: read(4096), age: Nanos(10_000), found: Found::Looking };
        self.policy.completed(&vec![done; found as usize]);
        Seen { found, budget_used_up: found == budget, in_flight: self.in_flight, ..Seen::default() }
    }

    fn post(&mut self) {
        let before = self.device.len();
        self.device.retain(|&at| at > self.now);
        self.pending += (before - self.device.len()) as u32;
    }

    fn until(&mut self, at: Nanos) -> Result<(), String> {
        if at == Nanos::MAX {
            return Err("waits for ever".into());
        }
        self.now = self.now.max(at) + Nanos(1_000);
        Ok(())
    }

    /// Every wait in these cases is below 3 ms and every batch below 100 commands; a policy that needs more steps than
    /// this makes none.
    fn count(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > 5_000 { Err("goes round and round".into()) } else { Ok(()) }
    }
}

#[test]
fn everything_is_found_under_every_policy() {
    for mode in Mode::ALL {
        holds(any_submissions(), |s| run(&s, |_| Policy::new(mode))).unwrap_or_else(|error| panic!("{mode}: {error}"));
    }
}

#[test]
fn everything_is_found_when_modes_are_switched_with_commands_in_flight() {
    holds(any_submissions(), |s| run(&s, |i| Policy::new(Mode::ALL[i % Mode::ALL.len()]))).unwrap();
}
