use units::Nanos;

use super::*;
use crate::testing::{Host, Pair, TestPort, read};
use crate::{Budget, Config, Mem, NamespaceConfig};

/// A host that behaves as fio with `iodepth=64 iodepth_batch_submit=16
/// iodepth_batch_complete_min=16`.
struct Job {
    host: Host<TestPort>,
    pair: Pair,
    /// Poll the completion queue after every submission.
    check: bool,
    /// Time from an interrupt to the first poll.
    wake: Nanos,
    /// CPU time of the host per command.
    cost: Nanos,
    buffer: u64,
    in_flight: u64,
    completed: u64,
    seen: u64,
    rng: u64,
}

impl Job {
    fn new(profile: Profile, check: bool, wake: Nanos, cost: Nanos) -> Job {
        let mem = Mem::new(1 << 36, Budget::new(1 << 20));
        let mut host =
            Host::new(Config::new(profile), vec![NamespaceConfig::mem(mem, 512).unwrap()]).ready();
        let pair = host.pair(1, 256);
        let buffer = host.page(1);
        Job { host, pair, check, wake, cost, buffer, in_flight: 0, completed: 0, seen: 0, rng: 1 }
    }

    fn messages(&self) -> u64 {
        self.host.port.messages.borrow()[1]
    }

    fn submit(&mut self, n: u64) {
        for _ in 0..n {
            self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let cid = self.host.cid();
            self.host.post(&mut self.pair, read((self.rng >> 40) * 8, 8, self.buffer, 4096), cid);
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

    /// Waits for an interrupt or until this instant, and reaps.
    fn sleep(&mut self, until: Nanos) {
        loop {
            let next = self.host.settle().next.unwrap_or(Nanos::MAX);
            if self.messages() != self.seen {
                break;
            }
            if next > until {
                return self.host.run_until(until);
            }
            assert!(
                next != Nanos::MAX,
                "{} commands are in flight, and no message will ever come",
                self.in_flight
            );
            self.host.now = next;
        }
        self.seen = self.messages();
        self.host.run_until(self.host.now + self.wake);
        self.reap();
    }

    /// The closed loop of the post. Returns commands per second.
    fn closed_loop(&mut self, span: Nanos) -> f64 {
        let start = self.host.now;
        // Completions that fio has reaped, in batches of 16.
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

    /// Submits `rate` commands per second in batches of `lot`. Returns messages per second.
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

/// Wake-up times in µs and CPU costs in ns, from a fast machine to a slow VM.
const HOSTS: [(u64, u64); 7] =
    [(2, 300), (20, 150), (15, 300), (40, 300), (80, 300), (40, 700), (10, 2_300)];

fn cloud(check: bool, (wake, cost): (u64, u64)) -> Job {
    Job::new(Profile::cloud(), check, Nanos::from_micros(wake), Nanos(cost))
}

/// Calibration: 130K IOPS with interrupts on any host.
#[test]
fn cloud_by_interrupts_gives_130k() {
    for host in HOSTS {
        let iops = cloud(false, host).closed_loop(Nanos::from_millis(100));
        assert!((117e3..143e3).contains(&iops), "{host:?}: {iops:.0} IOPS");
    }
}

/// Polling after submission raises the limit.
#[test]
fn cloud_with_submit_check_doubles() {
    for host in HOSTS {
        let iops = cloud(true, host).closed_loop(Nanos::from_millis(100));
        assert!((260e3..430e3).contains(&iops), "{host:?}: {iops:.0} IOPS");
    }
}

/// Calibration: 13–14K messages per second at 110K IOPS, with single commands and with batches.
#[test]
fn cloud_message_rate_at_110k() {
    for host in HOSTS {
        for lot in [1, 16] {
            let messages = cloud(false, host).limited(110_000, lot, Nanos::from_millis(100));
            assert!(
                (13e3..14e3).contains(&messages),
                "{host:?}, lots of {lot}: {messages:.0} messages/s"
            );
        }
    }
}

/// At most 40–50K messages per second.
#[test]
fn cloud_message_rate_under_load() {
    let mem = Mem::new(1 << 36, Budget::new(1 << 20));
    let mut host =
        Host::new(Config::new(Profile::cloud()), vec![NamespaceConfig::mem(mem, 512).unwrap()])
            .ready();
    let mut pairs: Vec<_> = (1..=8).map(|n| host.pair(n, 256)).collect();
    let (buffer, start) = (host.page(1), host.now);
    for n in 0..40_000_u64 {
        let pair = &mut pairs[n as usize % 8];
        let cid = host.cid();
        host.post(pair, read(n * 8, 8, buffer, 4096), cid);
        host.ring(pair);
        // 390K commands per second; each host thread polls about 20 µs after its interrupt.
        host.run_until(start + Nanos(n * 2_560));
        host.reap(&mut pairs[(n + 4) as usize % 8], usize::MAX);
    }
    let rate = host.device.counters().messages as f64 / (host.now - start).as_secs_f64();
    assert!((40e3..50e3).contains(&rate), "{rate:.0} messages/s");
}

/// "its Interrupt Coalescing feature register shows zero".
#[test]
fn cloud_reports_no_coalescing() {
    use nvme::admin::{GetFeatures, SetFeatures};
    use nvme::features::{Capabilities, fid, select};
    let mut job = cloud(false, HOSTS[0]);
    let answer = job.host.admin(GetFeatures::current(fid::INTERRUPT_COALESCING).to_sqe());
    assert_eq!((answer.status(), answer.result), (nvme::Status::SUCCESS, 0));
    for id in [fid::INTERRUPT_COALESCING, fid::VECTOR_CONFIG] {
        let answer = job.host.admin(SetFeatures::new(id, 1_u32).to_sqe());
        assert_eq!(answer.status().kind(), nvme::Status::FEATURE_NOT_CHANGEABLE);
        let get = GetFeatures { select: select::CAPABILITIES, ..GetFeatures::current(id) };
        assert!(!Capabilities::from_bits(job.host.admin(get.to_sqe()).result).changeable());
    }
}

#[test]
fn names_and_profiles_correspond() {
    for name in Profile::NAMES {
        assert_eq!(name.parse::<Profile>().unwrap().name, name);
    }
    let error = "floppy".parse::<Profile>().unwrap_err().to_string();
    assert!(Profile::NAMES.iter().all(|name| error.contains(name)) && error.contains("floppy"));
}

/// Only `null` transfers no data.
#[test]
fn profiles_move_data_and_take_time() {
    for name in Profile::NAMES {
        let profile: Profile = name.parse().unwrap();
        assert_eq!(
            (profile.moves_data, profile.is_instant()),
            (name != "null", name == "null"),
            "{name}"
        );
        assert_eq!(profile.hidden.is_on(), name == "cloud", "{name}");
    }
}
