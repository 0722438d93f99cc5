//! Random inputs of a policy, and the minimisation of a failing case.

use crate::{Batch, Cause, Class, Done, Nanos, Op, Seen, Woke};

/// One call of a policy, `pause` nanoseconds after the last one.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(super) pause: u64,
    pub(super) told: Told,
}

/// The method called, with its input.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Submitted(Batch),
    Completed(Done),
    Asked(Seen),
}

/// SplitMix64: a small generator with the same output on every platform.
pub(super) struct Draws(u64);

impl Draws {
    /// The state is itself an output: consecutive seeds would give nearly the same numbers.
    pub(super) fn new(seed: u64) -> Draws {
        Draws(Draws(seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `from`, below `to`.
    pub(super) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    /// True with a probability of `percent`.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn maybe<T>(&mut self, percent: u64, value: impl FnOnce(&mut Draws) -> T) -> Option<T> {
        self.chance(percent).then(|| value(self))
    }
}

/// A read of this many bytes.
pub(super) fn read(bytes: u32) -> Class {
    Class::new(Op::Read, bytes)
}

/// Any input, also combinations that a correct executor does not produce.
pub(crate) fn events(seed: u64) -> Vec<Event> {
    let rng = &mut Draws::new(seed);
    let count = rng.within(1, 120);
    (0..count).map(|_| Event { pause: rng.within(0, 200_000), told: told(rng) }).collect()
}

fn told(rng: &mut Draws) -> Told {
    let class = read(rng.within(1, 2_000_000) as u32);
    match rng.within(0, 8) {
        0 | 1 => {
            let commands = rng.within(0, 100) as u32;
            Told::Submitted(Batch { commands, in_flight: commands, class: Some(class), urgent: 0 })
        }
        2 | 3 => {
            let age = Nanos(rng.within(0, 3_000_000));
            Told::Completed(Done { class, age, slept: !rng.chance(50) })
        }
        _ => Told::Asked(seen(rng)),
    }
}

fn seen(rng: &mut Draws) -> Seen {
    let instant = |rng: &mut Draws| rng.maybe(50, |rng| Nanos(rng.within(0, 1_000_000_000)));
    let several = |rng: &mut Draws| rng.maybe(50, |rng| rng.within(1, 40) as u32).unwrap_or(0);
    let woke = rng.maybe(25, |rng| {
        let cause = [Cause::Notification, Cause::Timer, Cause::Other][rng.within(0, 3) as usize];
        Woke { cause, late: Nanos(rng.within(0, 1_000_000)) }
    });
    let in_flight = [0, rng.within(1, 5), rng.within(0, 2000)][rng.within(0, 3) as usize] as u32;
    Seen {
        found: rng.within(0, 200) as u32,
        budget_used_up: rng.chance(50),
        pending: rng.chance(50),
        lock_busy: rng.chance(50),
        in_flight,
        urgent_waiting: rng.within(0, 3) as u32,
        woke,
        cpu_wanted: rng.chance(50),
        leaving: rng.chance(50),
        wants: several(rng),
        goes_on_at: instant(rng),
        next_due: instant(rng),
        cycle: rng.maybe(50, |rng| Nanos(rng.within(0, 1_000_000))),
    }
}

/// Minimises a case: removes events as long as the fault remains.
pub(super) fn smallest<T: Clone>(
    mut case: Vec<T>,
    mut what: String,
    fault: impl Fn(&[T]) -> Option<String>,
) -> (Vec<T>, String) {
    let mut size = case.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < case.len() {
            let rest = [&case[..at], &case[case.len().min(at + size)..]].concat();
            match fault(&rest) {
                Some(same) => (case, what) = (rest, same),
                None => at += size,
            }
        }
        size /= 2;
    }
    (case, what)
}
