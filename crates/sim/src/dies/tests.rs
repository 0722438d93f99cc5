use emu::Profile;
use nvme::prp::Dptr;
use nvme::{Lba, Nsid, io};
use workload::Job;

use super::*;
use crate::{Outcome, Scenario, closed_loop};
use completion::Mode;

const NO_DATA: Dptr = Dptr { prp1: 0, prp2: 0 };

/// A drive with 10 µs per command, and any number at once.
fn flat() -> Profile {
    let mut profile = Profile::null();
    (profile.read.base, profile.write.base) = (Nanos(10_000), Nanos(10_000));
    profile
}

fn read(lba: u64) -> Sqe {
    io::read(Nsid(1), Lba(lba), 8, NO_DATA, io::Flags::NONE)
}

fn limits(inside: DieLayout) -> Rc<DieTimes> {
    DieTimes::new(inside, &flat(), 512, 1).expect("something is shared")
}

#[test]
fn independent_drive_has_no_limits() {
    assert!(DieTimes::new(DieLayout::default(), &flat(), 512, 1).is_none());
}

#[test]
fn commands_queue_per_die() {
    let inside = DieLayout { dies: 4, stripe_unit: 4_096 };
    let limits = limits(inside);
    let took = |lba| limits.time(&read(lba)).0;
    // Blocks 0 and 32 are on the same of four dies of 4 KiB.
    assert_eq!(
        [took(0), took(32), took(8), took(0), took(16)],
        [10_000, 20_000, 10_000, 30_000, 10_000]
    );
    limits.clock.set(Nanos(25_000));
    assert_eq!(took(32), 15_000, "what waits is over at 30 µs");
}

#[test]
fn impossible_limits_are_refused() {
    let told = |inside: DieLayout| inside.check("disk").unwrap_err().to_string();
    assert!(told(DieLayout { dies: 4, stripe_unit: 0 }).contains("stripe"));
    assert!(told(DieLayout { dies: u32::MAX, stripe_unit: 1 }).contains("65536"));
}

fn run(job: Job, change: impl Fn(&mut Scenario)) -> Outcome {
    let mut scenario = Scenario::new(Mode::POLL, flat(), job);
    change(&mut scenario);
    scenario.run().unwrap_or_else(|error| panic!("{error}"))
}

/// A drive's commands begin to queue below a depth equal to its dies: random commands collide on a
/// die long before that.
#[test]
fn random_reads_collide_on_dies() {
    let at = |depth, dies| {
        run(closed_loop(depth, 4_000), |s| {
            s.devices[0].inside = DieLayout { dies, stripe_unit: 4_096 }
        })
    };
    let (alone, half, all) = (at(1, 32), at(16, 32), at(128, 32));
    let (free, channels) =
        (at(16, 0), run(closed_loop(16, 4_000), |s| s.devices[0].config.profile.channels = 32));
    assert!(
        (free.iops() / channels.iops() - 1.0).abs() < 0.02,
        "as many channels as commands never make one wait"
    );
    assert!(
        half.iops() < 0.9 * free.iops() && half.iops() > 8.0 * alone.iops(),
        "{} {}",
        half.iops(),
        free.iops()
    );
    assert!(half.read_latency().p99 > 2 * alone.read_latency().p99);
    assert!(all.iops() < 3.2e6, "32 dies of 10 µs: {}", all.iops());
}
