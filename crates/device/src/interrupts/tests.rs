use nvme::admin::{GetFeatures, SetFeatures};
use nvme::features::fid;
use nvme::{Sqe, Status};
use proptest::prelude::*;

use super::*;
use crate::testing::{Host, Pair, TestPort, mem, read};
use crate::{Config, Fault, FaultPlan, FaultyPort, Profile};

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

/// The rule that keeps the device from flattering: with coalescing off, a message attempted per entry, masked or not.
fn one_message_per_entry<P: Port>(profile: Profile, batches: &[usize], wrap: impl FnOnce(TestPort) -> P) -> Result<(), String> {
    let mut host = Host::with_port(Config::new(profile), vec![mem(1 << 20, 512)], TestPort::new(16 << 20), wrap).ready();
    let mut pair = host.pair(1, 64);
    let mut entries = 0;
    for &n in batches {
        host.port.masked.set(n % 2 == 0);
        issue(&mut host, &mut pair, n);
        host.run_until(host.now + Nanos::from_millis(50));
        entries += host.reap(&mut pair, usize::MAX).len() as u64;
    }
    let messages = messages(&host.port, 1);
    if messages == entries { Ok(()) } else { Err(format!("{messages} messages for {entries} entries")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn with_coalescing_off_every_entry_has_its_message(
        name in prop::sample::select(vec!["null", "optane", "tlc", "bimodal"]),
        batches in prop::collection::vec(1usize..60, 1..12),
    ) {
        one_message_per_entry(name.parse().unwrap(), &batches, |port| port).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn the_rule_above_notices_a_message_too_many_or_too_few() {
    for fault in [Fault::LoseMessage, Fault::DoubleMessage] {
        let twin = |port| FaultyPort::new(port, FaultPlan::new().at(9, fault));
        assert!(one_message_per_entry(Profile::optane(), &[4, 30], twin).is_err(), "{fault:?}");
    }
    // The profile that coalesces in secret breaks it too.
    assert!(one_message_per_entry(Profile::cloud(), &[4, 30], |port| port).is_err());
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
fn messages_attempted_and_messages_sent_are_told_apart() {
    let mut host = host();
    let mut pair = host.pair(1, 16);
    let before = host.device.counters();
    issue(&mut host, &mut pair, 3);
    host.port.masked.set(true);
    issue(&mut host, &mut pair, 4);
    let after = host.device.counters();
    assert_eq!((after.messages - before.messages, after.messages_sent - before.messages_sent), (7, 3));
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
fn entries_wait_no_longer_than_the_time() {
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
fn a_time_or_a_threshold_of_zero_is_no_coalescing() {
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
fn switching_coalescing_off_releases_what_was_held() {
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
    set(&mut host, SetFeatures::new(fid::VECTOR_CONFIG, VectorConfig::new().with_iv(1).with_cd(true).into_bits()).to_sqe());
    issue(&mut host, &mut exempt, 6);
    issue(&mut host, &mut held, 6);
    assert_eq!((messages(&host.port, 1), messages(&host.port, 2)), (6, 0));
    let get = GetFeatures { value: 1, ..GetFeatures::current(fid::VECTOR_CONFIG) };
    assert!(VectorConfig::from_bits(host.admin(get.to_sqe()).result).cd());
    let none = SetFeatures::new(fid::VECTOR_CONFIG, VectorConfig::new().with_iv(999).into_bits());
    assert_eq!(host.admin(none.to_sqe()).status().kind(), Status::INVALID_FIELD);
}

#[test]
fn a_shared_vector_counts_the_entries_of_all_its_queues() {
    let mut host = host();
    let mut pairs = [host.pair_with(1, 1, 16, 16, Some(Vector(3))), host.pair_with(2, 2, 16, 16, Some(Vector(3)))];
    coalesce(&mut host, 4, 255);
    issue(&mut host, &mut pairs[0], 3);
    assert_eq!(messages(&host.port, 3), 0);
    issue(&mut host, &mut pairs[1], 1);
    assert_eq!(messages(&host.port, 3), 1);
}

#[test]
fn the_admin_queue_is_never_coalesced_even_on_a_shared_vector() {
    let mut host = host();
    let mut pair = host.pair_with(1, 1, 16, 16, Some(Vector(0)));
    coalesce(&mut host, 50, 255);
    let before = messages(&host.port, 0);
    issue(&mut host, &mut pair, 6);
    assert_eq!(messages(&host.port, 0), before);
    host.admin(nvme::admin::keep_alive());
    assert_eq!(messages(&host.port, 0), before + 1);
}

/// However the hidden rules hold a message back, a host that only ever sleeps until the next one is never forgotten.
#[test]
fn hidden_rules_never_lose_the_last_message() {
    for seed in 0..50 {
        let mut roll = crate::testing::dice(seed);
        let mut host = Host::new(Config { seed, ..Config::new(Profile::cloud()) }, vec![mem(1 << 20, 512)]).ready();
        let mut pair = host.pair(1, 64);
        let (mut waiting, mut seen) = (0, messages(&host.port, 1));
        for _ in 0..200 {
            let n = roll(8).min(60 - waiting) as usize;
            issue(&mut host, &mut pair, n);
            waiting += n as u64;
            host.run_until(host.now + Nanos(roll(30_000)));
            if roll(3) == 0 {
                // By itself, and not all.
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
