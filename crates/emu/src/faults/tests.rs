use nvme::regs::Cc;
use nvme::{Cqe, Status};

use super::*;
use crate::testing::{Host, Pair, TestPort, mem, read};
use crate::{Config, Profile};

type Faulty = Host<TestPort>;

fn host(plan: FaultPlan) -> (Faulty, Pair) {
    let faults = Some(FaultInjector::new(plan));
    let mut host =
        Host::new(Config { faults, ..Config::new(Profile::optane()) }, vec![mem(1 << 20, 512)])
            .ready();
    let pair = host.pair(1, 16);
    (host, pair)
}

/// Sends `n` reads and returns what the host reaps.
fn run(host: &mut Faulty, pair: &mut Pair, n: usize) -> (Vec<Cid>, Vec<Cqe>) {
    let to = host.page(1);
    let sent: Vec<_> = (0..n).map(|_| host.cid()).collect();
    for &cid in &sent {
        host.post(pair, read(0, 1, to, 512), cid);
        // One at a time, so that the order is defined.
        host.ring(pair);
        host.run_until(host.now + Nanos::from_micros(100));
    }
    (sent, host.reap(pair, 99))
}

fn injector(host: &Faulty) -> FaultInjector {
    host.device.config.faults.clone().unwrap()
}

fn cids(found: &[Cqe]) -> Vec<Cid> {
    found.iter().map(Cqe::cid).collect()
}

#[test]
fn without_a_plan_nothing_changes() {
    let (mut host, mut pair) = host(FaultPlan::new());
    for _ in 0..10 {
        let (sent, found) = run(&mut host, &mut pair, 9);
        assert_eq!(cids(&found), sent);
    }
    assert_eq!((host.device.injected(), host.port.messages.borrow()[1]), (vec![], 90));
}

#[test]
fn entries_are_falsified_as_planned() {
    for (fault, expected) in [
        (Fault::SwallowEntry, vec![0, 2, 3]),
        (Fault::SwallowCommand, vec![0, 2, 3]),
        (Fault::DoubleEntry, vec![0, 1, 1, 2, 3]),
        (Fault::StaleCid, vec![0, 0, 2, 3]),
        (Fault::WrongPhase, vec![0]),
    ] {
        let (mut host, mut pair) = host(FaultPlan::new());
        // A stale CID requires a previous entry.
        run(&mut host, &mut pair, 1);
        injector(&host).set_plan(FaultPlan::new().at(1, fault));
        let (sent, found) = run(&mut host, &mut pair, 4);
        assert_eq!(
            cids(&found),
            expected.iter().map(|&n| sent[n]).collect::<Vec<_>>(),
            "{fault:?}"
        );
        let injected = Injected { fault, command: Some((QueueId(1), sent[1])) };
        assert_eq!(host.device.injected(), [injected]);
    }
    let (mut host, mut pair) = host(FaultPlan::new().at(0, Fault::UnknownCid));
    let (sent, found) = run(&mut host, &mut pair, 1);
    assert!(found.len() == 1 && found[0].cid() != sent[0]);
}

#[test]
fn injected_status_is_returned() {
    let (mut host, mut pair) =
        host(FaultPlan::new().at(2, Fault::Status(Status::NAMESPACE_NOT_READY)));
    let (sent, found) = run(&mut host, &mut pair, 4);
    assert_eq!(cids(&found), sent);
    let expected = [Status::SUCCESS, Status::SUCCESS, Status::NAMESPACE_NOT_READY, Status::SUCCESS];
    assert_eq!(found.iter().map(Cqe::status).collect::<Vec<_>>(), expected);
}

#[test]
fn lost_command_and_lost_entry_differ() {
    for (fault, expected) in [(Fault::SwallowCommand, 9), (Fault::SwallowEntry, 0)] {
        let (mut host, mut pair) = host(FaultPlan::new().at(0, fault));
        let to = host.page(1);
        host.port.memory.write(to, &[9]).unwrap();
        let cid = host.cid();
        host.post(&mut pair, read(0, 1, to, 512), cid);
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(1));
        assert_eq!(
            (host.port.memory.bytes(to, 1)[0], host.reap(&mut pair, 9).len()),
            (expected, 0)
        );
    }
}

#[test]
fn messages_are_lost_late_and_doubled() {
    let (mut host, mut pair) = host(
        FaultPlan::new()
            .at(0, Fault::LoseMessage)
            .at(1, Fault::DoubleMessage)
            .at(2, Fault::DelayMessage(Nanos::from_millis(7))),
    );
    let sent = |host: &Faulty| host.port.messages.borrow()[1];
    for expected in [0, 2, 2, 3] {
        run(&mut host, &mut pair, 1);
        assert_eq!(sent(&host), expected);
    }
    let due = host.settle().next.unwrap();
    host.run_until(due - Nanos(1));
    assert_eq!(sent(&host), 3);
    host.run_until(due);
    assert_eq!((sent(&host), host.settle().next), (4, None));
}

#[test]
fn fatal_fault_lasts_until_reset() {
    let (mut host, mut pair) = host(FaultPlan::new().at(1, Fault::Fatal));
    let (sent, found) = run(&mut host, &mut pair, 4);
    assert_eq!((cids(&found), host.csts().cfs()), (vec![sent[0]], true));
    let before = host.port.messages.borrow()[1];
    run(&mut host, &mut pair, 3);
    assert_eq!(host.port.messages.borrow()[1], before);
    host.set_cc(Cc::new());
    host.settle();
    assert!(!host.csts().cfs() && !host.csts().rdy());
    host.enable();
    let mut pair = host.pair(1, 16);
    let (sent, found) = run(&mut host, &mut pair, 4);
    assert_eq!(cids(&found), sent);
}

#[test]
fn admin_queue_is_spared_by_default() {
    let always = FaultPlan::new().with_chance(1_000_000, Fault::Status(Status::INTERNAL_ERROR));
    let (mut host, _) = host(always.clone());
    assert_eq!(host.admin(nvme::admin::keep_alive()).status(), Status::SUCCESS);
    injector(&host).set_plan(always.admin_too());
    assert_eq!(host.admin(nvme::admin::keep_alive()).status(), Status::INTERNAL_ERROR);
}

#[test]
fn chances_are_met_and_reproducible() {
    let run = |seed| {
        let plan = FaultPlan::new()
            .with_chance(200_000, Fault::DoubleEntry)
            .with_chance(100_000, Fault::SwallowEntry)
            .with_seed(seed);
        let (mut host, mut pair) = host(plan);
        let found: usize = (0..200).map(|_| run(&mut host, &mut pair, 5).1.len()).sum();
        let injected = host.device.injected();
        let count = |fault| injected.iter().filter(|i| i.fault == fault).count();
        let (doubled, swallowed) = (count(Fault::DoubleEntry), count(Fault::SwallowEntry));
        assert_eq!(found, 1_000 + doubled - swallowed);
        assert!(
            (150..250).contains(&doubled) && (50..120).contains(&swallowed),
            "{doubled} {swallowed}"
        );
        injected
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Delayed doorbell writes, as the controller sees them.
mod late_doorbells {
    use proptest::prelude::*;

    use super::*;
    use crate::faults::{Doorbell, LateDoorbells};
    use crate::testing::write;

    const MAX: Nanos = Nanos::from_micros(40);

    proptest! {
        /// Writes to a doorbell arrive in order, within the longest delay, and none is lost.
        #[test]
        fn doorbell_writes_arrive_in_order(seed: u64, writes in prop::collection::vec((0u64..30_000, 0u16..3, any::<bool>()), 1..60)) {
            let mut doorbells = LateDoorbells::new(MAX, seed);
            let mut written: Vec<(Nanos, Doorbell, u32)> = Vec::new();
            let mut now = Nanos(1);
            let seen = |doorbells: &mut LateDoorbells, written: &[(Nanos, Doorbell, u32)], now: Nanos| -> Result<(), TestCaseError> {
                for doorbell in (0..3).flat_map(|queue| [(QueueId(queue), false), (QueueId(queue), true)]) {
                    let own = || written.iter().filter(|(_, of, _)| *of == doorbell);
                    let last = own().next_back().map_or(0, |&(.., value)| value);
                    let sees = doorbells.see(doorbell, last, now);
                    let due = own().rfind(|(at, ..)| *at + MAX <= now).map_or(0, |&(.., value)| value);
                    prop_assert!((due..=last).contains(&sees), "{sees} of {due} to {last}");
                }
                Ok(())
            };
            for (n, (gap, queue, completion)) in writes.into_iter().enumerate() {
                now += Nanos(gap);
                seen(&mut doorbells, &written, now)?;
                written.push((now, (QueueId(queue), completion), n as u32 + 1));
                seen(&mut doorbells, &written, now)?;
            }
            while let Some(next) = doorbells.next(now) {
                prop_assert!(next > now);
                now = next;
                seen(&mut doorbells, &written, now)?;
            }
            seen(&mut doorbells, &written, now + MAX)?;
        }
    }

    #[test]
    fn different_doorbells_may_be_reordered() {
        let overtakes = |seed| {
            let mut doorbells = LateDoorbells::new(MAX, seed);
            let (first, second) = ((QueueId(1), false), (QueueId(2), false));
            [first, second].into_iter().for_each(|doorbell| doorbells.set(doorbell, 0));
            doorbells.see(first, 1, Nanos(0));
            (0..=40_000)
                .map(Nanos)
                .any(|now| doorbells.see(second, 1, now) > doorbells.see(first, 1, now))
        };
        let found = (0..20).map(overtakes).collect::<Vec<_>>();
        assert!(found.contains(&true) && found.contains(&false), "{found:?}");
    }

    #[test]
    fn late_writes_end_with_their_queue() {
        let (mut doorbells, doorbell) = (LateDoorbells::new(MAX, 1), (QueueId(1), true));
        doorbells.set(doorbell, 0);
        (1..9).for_each(|value| assert!(doorbells.see(doorbell, value, Nanos(0)) <= value));
        doorbells.set(doorbell, 0);
        assert_eq!(
            (doorbells.next(Nanos(0)), doorbells.see(doorbell, 0, Nanos(99_999))),
            (None, 0)
        );
    }

    /// An enabled controller with delayed doorbell writes.
    fn late(most: Nanos, seed: u64) -> (Faulty, Pair) {
        let (mut host, pair) = host(FaultPlan::new());
        injector(&host).set_plan(FaultPlan::new().with_late_doorbells(most, seed));
        host.settle();
        (host, pair)
    }

    /// A delayed write to the doorbell of a deleted queue expires like any other.
    #[test]
    fn unread_write_is_no_endless_event() {
        let (mut doorbells, doorbell) = (LateDoorbells::new(MAX, 1), (QueueId(1), true));
        doorbells.set(doorbell, 0);
        doorbells.see(doorbell, 1, Nanos(0));
        doorbells.see(doorbell, 2, Nanos(0));
        let mut now = Nanos(0);
        let mut events = 0;
        while let Some(next) = doorbells.next(now) {
            (now, events) = (next, events + 1);
        }
        assert!(now <= MAX && events <= 2, "{events} events until {now}");
        assert_eq!(doorbells.see(doorbell, 2, MAX), 2);
    }

    fn go_on(host: &mut Faulty, span: Nanos) {
        host.run_until(host.now + span);
    }

    #[test]
    fn every_command_completes_all_the_same() {
        for seed in 0..20 {
            let (mut host, mut pair) = late(MAX, seed);
            let to = host.page(1);
            let (mut sent, mut found) = (Vec::new(), Vec::new());
            for n in 0..200 {
                let cid = host.cid();
                host.post(&mut pair, read(n % 64, 1, to, 512), cid);
                host.ring(&pair);
                sent.push(cid);
                go_on(&mut host, Nanos::from_micros(3));
                found.extend(host.reap(&mut pair, 99));
                while sent.len() - found.len() > 8 {
                    go_on(&mut host, Nanos::from_micros(5));
                    found.extend(host.reap(&mut pair, 99));
                }
            }
            go_on(&mut host, Nanos::from_millis(1));
            found.extend(host.reap(&mut pair, 99));
            let (mut all, mut answered) = (sent, cids(&found));
            all.sort();
            answered.sort();
            assert_eq!(all, answered, "seed {seed}");
            assert_eq!(host.device.injected(), [], "it is no fault");
        }
    }

    /// A faulty host: it assumes that a command has been fetched when the next one is due, and
    /// overwrites its slot without checking SQHD. Returns the data that its last write stored.
    fn trusts_the_doorbell(most: Nanos) -> Vec<u8> {
        let (mut host, mut pair) = late(most, 1);
        let from = host.page(2);
        host.port.memory.write(from, &[1; 512]).unwrap();
        host.port.memory.write(from + 4096, &[2; 512]).unwrap();
        for n in 0..2 {
            let cid = host.cid();
            let slot = pair.tail.slot();
            host.post(&mut pair, write(n, 1, from + n * 4096, 512), cid);
            host.ring(&pair);
            go_on(&mut host, Nanos(100));
            if n == 0 {
                let next = nvme::Sqe { cid: 0x7ffe, ..write(1, 1, from + 4096, 512) };
                nvme::SqSlots::store(&pair.sq, slot, &next);
            }
        }
        go_on(&mut host, Nanos::from_millis(1));
        let to = host.page(2);
        for n in 0..2 {
            let cid = host.cid();
            host.post(&mut pair, read(n, 1, to + n * 4096, 512), cid);
        }
        host.ring(&pair);
        go_on(&mut host, Nanos::from_millis(1));
        [to, to + 4096].map(|at| host.port.memory.bytes(at, 1)[0]).to_vec()
    }

    #[test]
    fn late_doorbell_catches_early_reuse() {
        assert_eq!(trusts_the_doorbell(Nanos::ZERO), [1, 2]);
        assert_ne!(trusts_the_doorbell(MAX), [1, 2]);
    }
}
