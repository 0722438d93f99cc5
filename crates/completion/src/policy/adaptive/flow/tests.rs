use super::*;

/// Commands in a nanosecond on a device at its limit, where each takes 64 µs.
const RATE: f32 = 0.0005;
const QUEUED: Around = Around { in_flight: 32, spent: 0, lambda: 0.3, delay: Nanos(2_500), open: false };

/// A loop whose thread spends so much CPU time on each command, awake and not; and the stretches that were spent awake.
struct Loop {
    flow: Flow,
    now: Nanos,
    spent: u64,
    cpu: [u64; 2],
    awake: u32,
}

impl Loop {
    fn new() -> Loop {
        let mut all = Loop { flow: Flow::new(), now: Nanos(1), spent: 0, cpu: [500, 2_000], awake: 0 };
        assert!(all.flow.sent(all.now, 1, 32, 0).is_none());
        all
    }

    /// One stretch, at these rates.
    fn stretch(&mut self, gathering: f32, awake: f32, around: Around) {
        let is_awake = self.flow.is_awake();
        self.flow.in_flight(self.now, around.in_flight);
        self.awake += u32::from(is_awake);
        let commands = around.in_flight.max(MEMORY) * STRETCH;
        self.now += Nanos((commands as f32 / if is_awake { awake } else { gathering }) as u64);
        self.spent += u64::from(commands) * self.cpu[usize::from(is_awake)];
        if !is_awake {
            // It sleeps whenever it does not wait or work.
            let busy = u64::from(commands) * self.cpu[0];
            self.flow.slept(Nanos((commands as f32 / gathering) as u64) - Nanos(busy));
        }
        let over = self.flow.sent(self.now, commands, around.in_flight, self.spent).expect("it is over");
        self.flow.judge(self.now, &over, &Around { spent: self.spent, ..around });
    }

    fn run(&mut self, stretches: u32, gathering: f32) {
        (0..stretches).for_each(|_| self.stretch(gathering, RATE, QUEUED));
    }
}

#[test]
fn window_grows_until_the_device_slows() {
    let mut all = Loop::new();
    // More than a quarter of those in flight are not to spare.
    let mut parts = |stretches: u32, free: f32| {
        for _ in 0..stretches {
            let gathering = if all.flow.window.part > free { RATE * 0.9 } else { RATE };
            all.run(1, gathering);
        }
        all.flow.window.part
    };
    assert_eq!(parts(8, 0.25), 0.25, "half was too much at once");
    let after = parts(2_000, 0.25);
    assert!((0.2..0.3).contains(&after), "{after}");
    assert!(parts(2_000, 1.0) > 0.9, "and more as soon as it costs nothing");
    assert!(parts(2_000, 0.0) < 0.05, "and nearly none where each is late");
}

#[test]
fn window_trials_cost_little() {
    let mut all = Loop::new();
    all.run(8, RATE);
    let began = all.now;
    for _ in 0..4_000 {
        let gathering = if all.flow.window.part > 0.25 { RATE * 0.7 } else { RATE };
        all.run(1, gathering);
    }
    let least = 4_000.0 * (64 * STRETCH) as f32 / RATE;
    assert!((all.now - began).0 as f32 / least < 1.02, "{:?}", all.flow);
}

/// Stretches that differ by chance say little of a window.
#[test]
fn noise_hardly_moves_the_window() {
    let mut all = Loop::new();
    let part = all.flow.window.part;
    for n in 0..400_u32 {
        let chance = [0.8, 1.2, 1.05, 0.9, 1.1][n.wrapping_mul(7) as usize % 5];
        all.stretch(RATE * chance, RATE * chance, QUEUED);
    }
    assert!((part / 2.0..=part * 2.0).contains(&all.flow.window.part), "{:?}", all.flow);
    assert!(!all.flow.ways.stays, "nor is a thread kept awake: {:?}", all.flow);
}

/// A clock-driven caller's lateness is not to spare.
#[test]
fn open_loops_gather_nothing() {
    let mut all = Loop::new();
    all.run(20, RATE);
    assert!(all.flow.spare() > 1.0);
    let open = Around { open: true, ..QUEUED };
    // Twice as many are in flight where the thread sleeps, at the same rate.
    for _ in 0..400 {
        let in_flight = if all.flow.is_awake() { 8 } else { 32 };
        all.stretch(RATE, RATE, Around { in_flight, ..open });
        assert!(all.flow.spare() < 1.0 && all.flow.holds < 2);
    }
    assert!(all.flow.ways.stays, "{:?}", all.flow);
}

/// A thread that sends one for each that it takes has fewer in flight while it makes up for what it found together.
#[test]
fn refilling_does_not_distort_the_rate() {
    let (mut flow, mut now) = (Flow::new(), Nanos(1));
    assert!(flow.sent(now, 128, 128, 0).is_none());
    for stretch in 0..20 {
        // Every other one ends when 22 were found and are not made up for.
        let in_flight = if stretch % 2 == 0 { 106 } else { 128 };
        let done = 256 * STRETCH;
        now += Nanos((done as f32 / RATE) as u64);
        let sent = if stretch % 2 == 0 { done - 22 } else { done + 22 };
        let over = flow.sent(now, 22, 128, 0).or_else(|| flow.sent(now, sent - 22, in_flight, 0)).expect("it is over");
        flow.judge(now, &over, &Around { in_flight, ..QUEUED });
        let rates = [flow.ways.planned, flow.ways.awake].map(|shown| shown.rate);
        assert!(rates.iter().all(|&rate| rate == 0.0 || (rate / RATE - 1.0).abs() < 0.005), "{flow:?}");
    }
    assert!(flow.ways.planned.is_known(), "{flow:?}");
    assert!(flow.window.part > 0.9, "{flow:?}");
}

#[test]
fn short_trials_are_not_believed() {
    let mut all = Loop::new();
    all.cpu = [2_500, 2_000];
    all.run(200, RATE);
    let before = all.flow.full();
    let mut trial = |slow: u32| {
        while !all.flow.is_awake() || all.flow.ways.trial.is_guess() {
            all.run(1, RATE);
        }
        (0..STRETCH).for_each(|n| all.stretch(RATE, if n < slow { RATE / 3.0 } else { RATE }, QUEUED));
        all.flow.full()
    };
    assert!((trial(2) - before).abs() < RATE / 100.0, "{:?}", all.flow);
    assert!(trial(6) < RATE / 2.0, "{:?}", all.flow);
}

#[test]
fn cheaper_spinning_stays_awake() {
    // A tenth of the throughput is worth 8 µs for each of 32 in flight: more than the CPU time that sleeping spares.
    let mut all = Loop::new();
    all.run(400, RATE * 0.9);
    assert!(all.flow.ways.stays, "{:?}", all.flow);
    // Using less of what seems spare does not help. The other way is tried all the same, and seldom.
    all.run(400, RATE * 0.9);
    let tried = 640 - {
        all.awake = 0;
        all.run(640, RATE * 0.9);
        all.awake
    };
    assert!((5..=90).contains(&tried), "{tried} of 640");
    all.run(200, RATE);
    assert!(!all.flow.ways.stays, "{:?}", all.flow);
}

#[test]
fn slow_trials_take_little_time() {
    let mut all = Loop::new();
    all.run(2_000, RATE / 1.5);
    let (began, commands) = (all.now, 4_000 * 64 * STRETCH);
    all.run(4_000, RATE / 1.5);
    let least = commands as f32 / RATE;
    assert!(all.flow.ways.stays && all.awake < 6_000, "the other way is tried: {:?}", all.flow);
    assert!((all.now - began).0 as f32 / least < 1.025, "{:?}", all.flow);
}

/// Each try costs more than it gains, and all of them together no more than a small part of the whole.
#[test]
fn what_never_pays_is_seldom_tried() {
    for cpu in [2_000, 10_000, 30_000] {
        let mut all = Loop::new();
        // As much as a thread that never leaves the CPU.
        all.cpu[1] = cpu;
        let rate = 1.0 / cpu as f32;
        (0..40_000).for_each(|_| all.stretch(rate, rate, Around { in_flight: 1, ..QUEUED }));
        assert!(all.awake > 0 && !all.flow.ways.stays, "{cpu}: {:?}", all.flow);
        let more = f64::from(all.awake) * (cpu - 500) as f64 / (40_000.0 * 500.0);
        assert!(more < 0.04, "{cpu}: {more}, {} awake", all.awake);
    }
}

/// The first try comes once it is a small part of what has been spent, if the thread had the CPU all the time.
#[test]
fn first_trial_waits_for_its_cost() {
    let mut all = Loop::new();
    let first = (1..).find(|_| {
        all.run(1, RATE);
        all.awake > 0
    });
    // Two thousand nanoseconds of one thread's time for each command, against 500.
    assert!((STRETCH * 2..=STRETCH * 5).contains(&first.expect("it is tried")), "{first:?}");
    all.run(64, RATE);
    assert_eq!(all.awake, 1, "{:?}", all.flow);
}

/// The price of the first guess is what the thread costs by then: a first stretch that something else disturbed says little, and neither does
/// one in which the window was small.
#[test]
fn first_trial_uses_latest_prices() {
    let guessed = |first: f32, cpu: u64| {
        let mut all = Loop::new();
        all.run(1, first);
        all.cpu[0] = cpu;
        (1..).find(|_| {
            all.run(1, RATE);
            all.awake > 0
        })
    };
    let usual = guessed(RATE, 500).expect("it is tried");
    assert!(guessed(RATE / 50.0, 500).expect("it is tried") < usual * 2, "{usual}");
    assert!(guessed(RATE, 50).expect("it is tried") > usual * 5, "{usual}");
}

#[test]
fn good_first_stretch_starts_a_trial() {
    let mut all = Loop::new();
    all.cpu = [1_900, 2_000];
    all.run(1, RATE * 0.8);
    while all.awake == 0 {
        all.run(1, RATE * 0.8);
    }
    all.run(STRETCH, RATE * 0.8);
    assert!(all.flow.ways.stays, "{:?}", all.flow);
}

#[test]
fn coalescing_changes_by_factor_two() {
    let mut all = Loop::new();
    all.run(8, RATE);
    let mut holds = |spare: f32| {
        all.flow.window.part = spare / 128.0;
        all.flow.spares(128.0, &QUEUED);
        all.flow.holds
    };
    assert_eq!(holds(1.5), 0, "one alone is not held back");
    let held = holds(40.0);
    assert!((10..=20).contains(&held), "{held}: at the end of one stretch");
    assert_eq!((holds(30.0), holds(40.0)), (held, held));
    assert_eq!(holds(0.0), 0);
}

/// As where modes take turns, none of them for as long as a trial.
#[test]
fn trials_survive_idle_periods() {
    let mut all = Loop::new();
    for turn in 0..600 {
        all.run(3, RATE / 3.0);
        all.flow = all.flow.clone().resumes();
        assert!(all.flow.sent(all.now, 1, 32, all.spent).is_none(), "{turn}");
    }
    assert!(all.flow.ways.stays, "{:?}", all.flow);
}
