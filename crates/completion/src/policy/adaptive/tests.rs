use super::*;
use crate::Woke;

/// A device that completes each command independently after this time.
const DEVICE: Nanos = Nanos::from_micros(80);

/// A caller that keeps `depth` commands in flight on one queue, with an executor in virtual time.
struct Loop {
    policy: Adaptive,
    now: Nanos,
    /// When the commands in flight complete, oldest first.
    flight: std::collections::VecDeque<Nanos>,
    device: Nanos,
    cpu_wanted: bool,
    urgent: bool,
    /// Time between two of the caller's commands; zero in a closed loop.
    every: Option<Nanos>,
    awake: u64,
    done: u64,
}

impl Loop {
    fn new(n: DelayExponent, machine: SleepCosts) -> Loop {
        Loop {
            policy: Adaptive::new(n, &machine),
            now: Nanos(1),
            flight: std::collections::VecDeque::new(),
            device: DEVICE,
            cpu_wanted: false,
            urgent: false,
            every: None,
            awake: 0,
            done: 0,
        }
    }

    fn send(&mut self, commands: u32) {
        for _ in 0..commands {
            self.flight.push_back(self.now + self.device);
        }
        let in_flight = self.flight.len() as u32;
        self.policy.submitted(self.now, &Batch { commands, in_flight, ..Batch::default() });
    }

    /// Runs this many completions at this depth.
    fn run(&mut self, depth: u32, completions: u64) {
        let (end, machine) = (self.done + completions, self.policy.machine);
        let (mut seen, mut slept) = (Seen::default(), false);
        while self.done < end {
            if let (true, Some(every)) = (self.flight.is_empty(), self.every) {
                assert_eq!(self.policy.next(self.now, &seen), Plan::Idle);
                self.now += every;
            }
            let missing = if self.every.is_some() {
                u32::from(self.flight.is_empty())
            } else {
                depth - self.flight.len() as u32
            };
            if missing > 0 {
                self.now += Nanos(100);
                self.awake += 100;
                self.send(missing);
            }
            let in_flight = self.flight.len() as u32;
            let urgent_waiting = if self.urgent { in_flight } else { 0 };
            seen = Seen { in_flight, urgent_waiting, cpu_wanted: self.cpu_wanted, ..seen };
            let plan = self.policy.next(self.now, &seen);
            let (first, began) = (self.flight[0], self.now);
            seen = Seen::default();
            match plan {
                Plan::Poll { .. } => {
                    let before = self.flight.len();
                    let posted = self.flight.iter().take_while(|&&at| at <= self.now).count();
                    let age = self
                        .flight
                        .get(posted.saturating_sub(1))
                        .map_or(self.device, |&at| self.now + self.device - at);
                    self.flight.drain(..posted);
                    seen.found = (before - self.flight.len()) as u32;
                    self.done += u64::from(seen.found);
                    if seen.found > 0 {
                        let class = crate::Class::new(crate::Op::Read, 4096);
                        self.policy.completed(&[Done { class, age, slept }]);
                    }
                    slept = false;
                }
                Plan::Spin { until } => {
                    assert!(until > self.now);
                    self.now = self.now.max(first.min(until));
                    self.awake += (self.now - began).0;
                    seen.pending = first <= self.now;
                }
                Plan::Nap { until, .. } => {
                    assert!(until > self.now);
                    (self.now, slept) = (until + machine.late, true);
                    self.awake += (machine.nap + machine.timer_wake).0;
                    seen.woke = Some(Woke { cause: crate::Cause::Timer, late: machine.late });
                }
                Plan::Sleep { until, .. } => {
                    assert_eq!(until, Nanos::MAX);
                    (self.now, slept) = (self.now.max(first) + machine.delay, true);
                    self.awake += (machine.cpu + machine.wake).0;
                    seen.woke = Some(Woke::NOTIFIED);
                }
                Plan::Idle => panic!("{in_flight} in flight"),
            }
        }
    }

    /// CPU time per I/O over this many completions.
    fn cost(&mut self, depth: u32, completions: u64) -> u64 {
        let (awake, done) = (self.awake, self.done);
        self.run(depth, completions);
        (self.awake - awake) / (self.done - done)
    }
}

fn settled(n: DelayExponent, machine: SleepCosts, depth: u32) -> Loop {
    let mut all = Loop::new(n, machine);
    all.run(depth, 40_000);
    all
}

/// Spinning for 80 µs to save 2.5 µs of latency costs too much; to save 22 µs, where a sleep takes
/// 15 µs of CPU time, it does not.
#[test]
fn long_waits_are_slept_on_bare_metal() {
    let state = settled(DelayExponent::DEFAULT, SleepCosts::BARE_METAL, 1).policy.state;
    assert_eq!(state.action, Action::Sleep, "{state}");
    assert!(state.to_string().starts_with("sleep ("), "{state}");
}

/// A device that completes faster than a sleep.
#[test]
fn short_waits_are_spun() {
    let mut quick = Loop::new(DelayExponent::DEFAULT, SleepCosts::VIRTUAL);
    quick.device = Nanos::from_micros(5);
    quick.run(1, 20_000);
    assert!(
        matches!(quick.policy.state.action, Action::Spin | Action::Brief),
        "{}",
        quick.policy.state
    );
}

/// The exponent trades CPU time for latency: least CPU time at 0, least latency at infinity.
#[test]
fn exponent_trades_time_for_latency() {
    let cost = |n| settled(n, SleepCosts::VIRTUAL, 32).cost(32, 10_000);
    let [none, usual, all] =
        [DelayExponent::CPU_ALONE, DelayExponent::DEFAULT, DelayExponent::LATENCY_ALONE].map(cost);
    // Trials take up to a twentieth, at any exponent.
    assert!(none <= usual + usual / 20 && usual < all, "{none} {usual} {all}");
}

#[test]
fn wanted_cpus_are_not_spun_on() {
    let mut crowded = settled(DelayExponent::LATENCY_ALONE, SleepCosts::BARE_METAL, 2);
    crowded.cpu_wanted = true;
    crowded.run(2, 1_000);
    let before = crowded.policy.state.decisions;
    crowded.run(2, 1_000);
    // It still does not spin, although no other thread is runnable any more.
    crowded.cpu_wanted = false;
    crowded.run(2, u64::from(CROWDED));
    let since = crowded.policy.state.decisions.since(&before);
    assert!(
        since.spun == 0 && since.slept > 0 && since.tried == 0 && since.gave_way >= since.slept,
        "{since:?}"
    );
    crowded.run(2, 8_000);
    assert!(crowded.policy.state.decisions.spun > before.spun, "it spins again");
}

#[test]
fn urgent_commands_prevent_gathering() {
    let mut all = settled(DelayExponent::CPU_ALONE, SleepCosts::BARE_METAL, 32);
    assert!(all.policy.state.decisions.gathered > 0, "{:?}", all.policy.state.decisions);
    all.urgent = true;
    let before = all.policy.state.decisions;
    all.run(32, 5_000);
    assert_eq!(all.policy.state.decisions.since(&before).gathered, 0);
}

/// Trials cost less than a tenth of the total beyond the action in force.
#[test]
fn trials_become_rare() {
    let mut all = settled(DelayExponent::DEFAULT, SleepCosts::BARE_METAL, 1);
    let before = all.policy.state.decisions.tried;
    let cost = all.cost(1, 200_000);
    let sleep = (SleepCosts::BARE_METAL.cpu + SleepCosts::BARE_METAL.wake).0 + 100;
    assert!(cost * 10 < sleep * 11, "{cost} of {sleep}");
    assert!(all.policy.state.decisions.tried - before < 100, "{:?}", all.policy.state.decisions);
}

/// When a device becomes slower, a spin becomes a sleep within 2,000 completions.
#[test]
fn slower_devices_are_noticed() {
    let mut all = Loop::new(DelayExponent::DEFAULT, SleepCosts::BARE_METAL);
    all.device = Nanos::from_micros(2);
    all.run(1, 20_000);
    assert!(
        matches!(all.policy.state.action, Action::Spin | Action::Brief),
        "{}",
        all.policy.state
    );
    all.device = Nanos::from_micros(200);
    all.run(1, 2_000);
    assert_eq!(all.policy.state.action, Action::Sleep, "{}", all.policy.state);
}

/// With nothing in flight the plan is `Idle` under any action.
#[test]
fn idle_queues_rest() {
    let mut all = settled(DelayExponent::LATENCY_ALONE, SleepCosts::BARE_METAL, 1);
    let now = all.now + Nanos::from_secs(10);
    assert_eq!(all.policy.next(now, &Seen::default()), Plan::Idle);
    // Idle time does not count as CPU time.
    all.now = now;
    all.every = Some(Nanos::from_millis(1));
    all.run(1, 1_000);
    let shown = all.policy.state.shown[Action::Spin as usize].unwrap();
    assert!(shown.0 < Nanos::from_micros(100), "{}", all.policy.state);
}

/// A switch keeps what was measured, and drops the commands in flight.
#[test]
fn switches_keep_the_action() {
    let earlier = settled(DelayExponent::DEFAULT, SleepCosts::BARE_METAL, 1).policy;
    let mut later = Adaptive::new(DelayExponent::per_mille(1_000), &SleepCosts::BARE_METAL);
    later.inherit(&earlier);
    assert_eq!(
        (later.action, later.known.low.to_bits(), later.in_flight),
        (earlier.state.action, earlier.known.low.to_bits(), 0)
    );
}
