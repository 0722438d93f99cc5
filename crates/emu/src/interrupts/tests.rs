use nvme::admin::{GetFeatures, SetFeatures};
use nvme::features::fid;
use nvme::{Sqe, Status};
use proptest::prelude::*;

use super::*;
use crate::testing::{Host, Pair, TestPort, mem, read};
use crate::{Config, Fault, FaultInjector, FaultPlan, Profile};

fn host() -> Host<TestPort> {
    Host::new(Config::new(Profile::null()), vec![mem(1 << 20, 512)]).ready()
}

fn messages(port: &TestPort, vector: usize) -> u64 {
    port.messages.borrow()[vector]
}

fn issue<P: Port>(host: &mut Host<P>, pair: &mut Pair, n: usize) {
    for _ in 0..n {
        let cid = host.cid();
        host.post(pair, read(0, 1, crate::testing::BASE, 512), cid);
    }
    host.ring(pair);
    host.settle();
}

fn coalesce(host: &mut Host<TestPort>, threshold: u8, hundreds_of_us: u8) {
    let value = InterruptCoalescing::new().with_thr(threshold - 1).with_time(hundreds_of_us);
    set(host, SetFeatures::new(fid::INTERRUPT_COALESCING, value.into_bits()).to_sqe());
}

fn set(host: &mut Host<TestPort>, sqe: Sqe) {
    assert_eq!(host.admin(sqe).status(), Status::SUCCESS);
}

/// With coalescing disabled, one message is attempted per entry, masked or not.
fn one_message_per_entry(
    profile: Profile,
    batches: &[usize],
    faults: Option<FaultInjector>,
) -> Result<(), String> {
    let mut host =
        Host::new(Config { faults, ..Config::new(profile) }, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 64);
    let mut entries = 0;
    for &n in batches {
        host.port.masked.set(n % 2 == 0);
        issue(&mut host, &mut pair, n);
        host.run_until(host.now + Nanos::from_millis(50));
        entries += host.reap(&mut pair, usize::MAX).len() as u64;
    }
    let messages = messages(&host.port, 1);
    if messages == entries {
        Ok(())
    } else {
        Err(format!("{messages} messages for {entries} entries"))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn uncoalesced_entries_each_raise_messages(
        name in prop::sample::select(vec!["null", "optane", "tlc", "bimodal"]),
        batches in prop::collection::vec(1usize..60, 1..12),
    ) {
        one_message_per_entry(name.parse().unwrap(), &batches, None).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn extra_or_missing_message_is_caught() {
    for fault in [Fault::LoseMessage, Fault::DoubleMessage] {
        let faults = FaultInjector::new(FaultPlan::new().at(9, fault));
        assert!(
            one_message_per_entry(Profile::optane(), &[4, 30], Some(faults)).is_err(),
            "{fault:?}"
        );
    }
    // Negative test: a profile with hidden coalescing violates the invariant.
    assert!(one_message_per_entry(Profile::cloud(), &[4, 30], None).is_err());
}

#[test]
fn a_queue_without_interrupts_sends_none() {
    let mut host = host();
    let mut pair = host.pair_with(1, 1, 16, 16, None);
    let before = host.device.counters().messages;
    issue(&mut host, &mut pair, 10);
    assert_eq!((host.reap(&mut pair, 99).len(), host.device.counters().messages), (10, before));
}

#[test]
fn attempted_and_sent_messages_differ() {
    let mut host = host();
    let mut pair = host.pair(1, 16);
    let before = host.device.counters();
    issue(&mut host, &mut pair, 3);
    host.port.masked.set(true);
    issue(&mut host, &mut pair, 4);
    let after = host.device.counters();
    assert_eq!(
        (after.messages - before.messages, after.messages_sent - before.messages_sent),
        (7, 3)
    );
}

/// Posts entries while the vector is masked, lets the host reap some of them, and unmasks.
fn unmask_after(pending: PendingBit, posted: usize, taken: usize) -> (Host<TestPort>, Pair) {
    let config = Config { pending, ..Config::new(Profile::null()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 64);
    host.port.masked.set(true);
    issue(&mut host, &mut pair, posted);
    assert_eq!(host.reap(&mut pair, taken).len(), taken);
    host.settle();
    assert!(host.port.pended.borrow().is_empty(), "it is masked");
    host.port.masked.set(false);
    host.settle();
    (host, pair)
}

#[test]
fn unmasking_sends_a_pending_message() {
    let sent =
        |pending, posted, taken| unmask_after(pending, posted, taken).0.port.pended.borrow().len();
    for (posted, taken) in [(1, 0), (5, 0), (5, 4)] {
        assert_eq!(
            [PendingBit::Cleared, PendingBit::Kept, PendingBit::Absent]
                .map(|p| sent(p, posted, taken)),
            [1, 1, 0]
        );
    }
    for n in [1, 5] {
        assert_eq!(
            [PendingBit::Cleared, PendingBit::Kept, PendingBit::Absent].map(|p| sent(p, n, n)),
            [0, 1, 0]
        );
    }
}

#[test]
fn satisfied_event_can_pend_again() {
    let (mut host, mut pair) = unmask_after(PendingBit::Cleared, 3, 3);
    host.port.masked.set(true);
    issue(&mut host, &mut pair, 1);
    host.port.masked.set(false);
    host.settle();
    assert_eq!(*host.port.pended.borrow(), [Vector(1)]);
    let counters = host.device.counters();
    assert_eq!(
        counters.messages_sent,
        counters.messages - 3,
        "of four held back one went out after all"
    );
}

#[test]
fn shared_vector_pends_until_acknowledged() {
    let mut host = host();
    let (mut a, mut b) = (
        host.pair_with(1, 1, 16, 16, Some(Vector(1))),
        host.pair_with(2, 2, 16, 16, Some(Vector(1))),
    );
    for taken in [false, true] {
        host.port.masked.set(true);
        issue(&mut host, &mut a, 2);
        issue(&mut host, &mut b, 2);
        host.reap(&mut a, 99);
        if taken {
            host.reap(&mut b, 99);
        }
        host.port.masked.set(false);
        host.settle();
        assert_eq!(host.port.pended.borrow().len(), 1, "the first time alone");
        host.reap(&mut b, 99);
    }
}

#[test]
fn a_reset_clears_what_is_pending() {
    let mut host = host();
    let mut pair = host.pair(1, 16);
    host.port.masked.set(true);
    issue(&mut host, &mut pair, 2);
    host.set_cc(nvme::regs::Cc::new());
    host.settle();
    host.port.masked.set(false);
    host.settle();
    assert!(host.port.pended.borrow().is_empty());
}

/// A faulty host: it assumes an entry for each message.
fn a_message_brings_an_entry(pending: PendingBit) -> bool {
    let (host, mut pair) = unmask_after(pending, 4, 4);
    let told = host.port.pended.borrow().len();
    (0..told).all(|_| host.reap(&mut pair, 1).len() == 1)
}

#[test]
fn trusting_each_message_is_caught() {
    assert!(
        a_message_brings_an_entry(PendingBit::Absent)
            && a_message_brings_an_entry(PendingBit::Cleared)
    );
    assert!(!a_message_brings_an_entry(PendingBit::Kept));
}

#[test]
fn late_message_waits_for_unmask() {
    let plan = FaultPlan::new().at(0, Fault::DelayMessage(Nanos::from_micros(10)));
    let (faults, port) = (FaultInjector::new(plan), TestPort::new(1 << 20));
    assert_eq!(faults.message(Vector(1), &port, false), SendResult::Lost, "it is on its way");
    port.masked.set(true);
    for us in [5, 10, 20] {
        faults.advance(Nanos::from_micros(us), &port);
        assert_eq!(messages(&port, 1), 0);
    }
    assert_eq!(faults.next(), Nanos::MAX, "only the host can bring that about");
    port.masked.set(false);
    faults.advance(Nanos::from_micros(20), &port);
    faults.advance(Nanos::from_micros(21), &port);
    assert_eq!(messages(&port, 1), 1);
}

#[test]
fn entries_are_gathered_until_the_threshold() {
    let mut host = host();
    let mut pair = host.pair(1, 64);
    coalesce(&mut host, 8, 255);
    for (n, expected) in [(7, 0), (1, 1), (16, 3), (5, 3), (3, 4)] {
        issue(&mut host, &mut pair, n);
        host.reap(&mut pair, 99);
        assert_eq!(messages(&host.port, 1), expected);
    }
}

#[test]
fn coalescing_time_bounds_the_wait() {
    let mut host = host();
    let mut pair = host.pair(1, 64);
    coalesce(&mut host, 200, 3);
    issue(&mut host, &mut pair, 2);
    let due = host.now + Nanos::from_micros(300);
    host.run_until(host.now + Nanos::from_micros(100));
    issue(&mut host, &mut pair, 2);
    assert_eq!((host.settle().next, messages(&host.port, 1)), (Some(due), 0));
    host.run_until(due);
    assert_eq!((host.settle().next, messages(&host.port, 1)), (None, 1));
}

#[test]
fn zero_time_or_threshold_disables_coalescing() {
    for (thr, time) in [(0, 5), (5, 0)] {
        let mut host = host();
        let mut pair = host.pair(1, 64);
        let value = InterruptCoalescing::new().with_thr(thr).with_time(time);
        set(&mut host, SetFeatures::new(fid::INTERRUPT_COALESCING, value.into_bits()).to_sqe());
        issue(&mut host, &mut pair, 5);
        assert_eq!(messages(&host.port, 1), 5);
    }
}

#[test]
fn disabling_coalescing_releases_entries() {
    let mut host = host();
    let mut pair = host.pair(1, 64);
    coalesce(&mut host, 100, 255);
    issue(&mut host, &mut pair, 5);
    assert_eq!(messages(&host.port, 1), 0);
    set(&mut host, SetFeatures::new(fid::INTERRUPT_COALESCING, 0_u32).to_sqe());
    assert_eq!(messages(&host.port, 1), 1);
}

#[test]
fn a_vector_can_be_exempt() {
    let mut host = host();
    let (mut exempt, mut held) = (host.pair(1, 64), host.pair(2, 64));
    coalesce(&mut host, 50, 255);
    set(
        &mut host,
        SetFeatures::new(
            fid::VECTOR_CONFIG,
            VectorConfig::new().with_iv(1).with_cd(true).into_bits(),
        )
        .to_sqe(),
    );
    issue(&mut host, &mut exempt, 6);
    issue(&mut host, &mut held, 6);
    assert_eq!((messages(&host.port, 1), messages(&host.port, 2)), (6, 0));
    let get = GetFeatures { value: 1, ..GetFeatures::current(fid::VECTOR_CONFIG) };
    assert!(VectorConfig::from_bits(host.admin(get.to_sqe()).result).cd());
    let none = SetFeatures::new(fid::VECTOR_CONFIG, VectorConfig::new().with_iv(999).into_bits());
    assert_eq!(host.admin(none.to_sqe()).status().kind(), Status::INVALID_FIELD);
}

#[test]
fn shared_vector_counts_all_queues() {
    let mut host = host();
    let mut pairs = [
        host.pair_with(1, 1, 16, 16, Some(Vector(3))),
        host.pair_with(2, 2, 16, 16, Some(Vector(3))),
    ];
    coalesce(&mut host, 4, 255);
    issue(&mut host, &mut pairs[0], 3);
    assert_eq!(messages(&host.port, 3), 0);
    issue(&mut host, &mut pairs[1], 1);
    assert_eq!(messages(&host.port, 3), 1);
}

#[test]
fn admin_queue_is_never_coalesced() {
    let mut host = host();
    let mut pair = host.pair_with(1, 1, 16, 16, Some(Vector(0)));
    coalesce(&mut host, 50, 255);
    let before = messages(&host.port, 0);
    issue(&mut host, &mut pair, 6);
    assert_eq!(messages(&host.port, 0), before);
    host.admin(nvme::admin::keep_alive());
    assert_eq!(messages(&host.port, 0), before + 1);
}

/// Hidden coalescing delays messages but never loses one: a host that only waits for interrupts
/// reaps all entries.
#[test]
fn last_message_is_never_lost() {
    for seed in 0..50 {
        let mut roll = crate::testing::random_below(seed);
        let mut host =
            Host::new(Config { seed, ..Config::new(Profile::cloud()) }, vec![mem(1 << 20, 512)])
                .ready();
        let mut pair = host.pair(1, 64);
        let (mut waiting, mut seen) = (0, messages(&host.port, 1));
        for _ in 0..200 {
            let n = roll(8).min(60 - waiting) as usize;
            issue(&mut host, &mut pair, n);
            waiting += n as u64;
            host.run_until(host.now + Nanos(roll(30_000)));
            if roll(3) == 0 {
                // The host reaps some entries without an interrupt.
                waiting -= host.reap(&mut pair, roll(9) as usize).len() as u64;
            }
            if messages(&host.port, 1) != seen {
                seen = messages(&host.port, 1);
                waiting -= host.reap(&mut pair, usize::MAX).len() as u64;
            }
        }
        while waiting > 0 {
            host.run_until(host.now + Nanos::from_millis(2));
            assert_ne!(messages(&host.port, 1), seen, "{waiting} commands are waited for");
            seen = messages(&host.port, 1);
            waiting -= host.reap(&mut pair, usize::MAX).len() as u64;
        }
    }
}
