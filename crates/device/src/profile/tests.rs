use units::Nanos;

use super::*;
use crate::testing::{Host, Pair, TestPort, read};
use crate::{Budget, Config, Mem, Namespace};

/// A host that does what fio does with `iodepth=64 iodepth_batch_submit=16 iodepth_batch_complete_min=16`.
struct Job {
    host: Host<TestPort>,
    pair: Pair,
    /// Look at the queue after every submission.
    check: bool,
    /// From a message to the first look.
    wake: Nanos,
    /// The host's own time per command.
    cost: Nanos,
    buffer: u64,
    in_flight: u64,
    completed: u64,
    seen: u64,
    dice: u64,
}

impl Job {
    fn new(profile: Profile, check: bool, wake: Nanos, cost: Nanos) -> Job {
        let mem = Mem::new(1 << 36, Budget::new(1 << 20));
        let mut host = Host::new(Config::new(profile), vec![Namespace::mem(mem, 512).unwrap()]).ready();
        let pair = host.pair(1, 256);
        let buffer = host.page(1);
        Job { host, pair, check, wake, cost, buffer, in_flight: 0, completed: 0, seen: 0, dice: 1 }
    }

    fn messages(&self) -> u64 {
        self.host.port.messages.borrow()[1]
    }

    fn submit(&mut self, n: u64) {
        for _ in 0..n {
            self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let cid = self.host.cid();
            self.host.post(&mut self.pair, read((self.dice >> 40) * 8, 8, self.buffer, 4096), cid);
        }
        self.host.run_until(self.host.now + Nanos(self.cost.0 * n));
        self.host.ring(&self.pair);
        self.host.settle();
        self.in_flight += n;
        if self.check {
            self.reap();
        }
    }

    fn reap(&mut self) {
        let found = self.host.reap(&mut self.pair, usize::MAX).len() as u64;
        self.in_flight -= found;
        self.completed += found;
    }

    /// Sleeps until a message, or until this instant; drains.
    fn sleep(&mut self, until: Nanos) {
        loop {
            let next = self.host.settle().next.unwrap_or(Nanos::MAX);
            if self.messages() != self.seen {
                break;
            }
            if next > until {
                return self.host.run_until(until);
            }
            assert!(next != Nanos::MAX, "{} commands are in flight, and no message will ever come", self.in_flight);
            self.host.now = next;
        }
        self.seen = self.messages();
        self.host.run_until(self.host.now + self.wake);
        self.reap();
    }

    /// The closed loop of post 000. Returns commands per second.
    fn closed_loop(&mut self, span: Nanos) -> f64 {
        let start = self.host.now;
        // What fio has taken of the completions, in lots of 16.
        let mut taken = 0;
        self.submit(16);
        self.submit(16);
        self.submit(16);
        self.submit(16);
        while self.host.now - start < span {
            while self.completed - taken < 16 {
                self.sleep(Nanos::MAX);
            }
            taken += 16;
            self.submit(16);
        }
        self.completed as f64 / (self.host.now - start).as_secs_f64()
    }

    /// `rate` commands per second in lots of `lot`. Returns messages per second.
    fn limited(&mut self, rate: u64, lot: u64, span: Nanos) -> f64 {
        let (start, before) = (self.host.now, self.messages());
        for n in 0.. {
            let due = start + Nanos(n * lot * 1_000_000_000 / rate);
            if due - start > span {
                break;
            }
            while self.host.now < due {
                self.sleep(due);
            }
            self.submit(lot);
        }
        (self.messages() - before) as f64 / (self.host.now - start).as_secs_f64()
    }
}

#[test]
fn explore() {
    let span = Nanos::from_millis(200);
    for (wake, cost) in [(2, 300), (15, 300), (25, 300), (40, 300), (15, 700), (40, 700), (10, 2300), (80, 300)] {
        let job = |check| Job::new(Profile::cloud(), check, Nanos::from_micros(wake), Nanos(cost));
        let (irq, check) = (job(false).closed_loop(span), job(true).closed_loop(span));
        let limited: Vec<_> = [1, 16].map(|lot| job(false).limited(110_000, lot, span)).into();
        println!("wake {wake} cost {cost}: irq {irq:.0} check {check:.0} limited {limited:?}");
    }
}
