use nvme::regs::Cc;
use nvme::{Cqe, Status};

use super::*;
use crate::testing::{Host, Pair, TestPort, mem, read};
use crate::{Config, Profile};

type Faulty = Host<FaultyPort<TestPort>>;

fn host(plan: FaultPlan) -> (Faulty, Pair) {
    let wrap = |port| FaultyPort::new(port, plan);
    let mut host = Host::with_port(Config::new(Profile::optane()), vec![mem(1 << 20, 512)], TestPort::new(16 << 20), wrap).ready();
    let pair = host.pair(1, 16);
    (host, pair)
}

/// Sends `n` reads, gives them time; what the host finds.
fn run(host: &mut Faulty, pair: &mut Pair, n: usize) -> (Vec<Cid>, Vec<Cqe>) {
    let to = host.page(1);
    let sent: Vec<_> = (0..n).map(|_| host.cid()).collect();
    for &cid in &sent {
        host.post(pair, read(0, 1, to, 512), cid);
        // One after the other, so that the order is known.
        host.ring(pair);
        host.run_until(host.now + Nanos::from_micros(100));
    }
    (sent, host.reap(pair, 99))
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
    assert_eq!((host.device.port().injected(), host.port.messages.borrow()[1]), (vec![], 90));
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
        // To post an entry twice takes a host that has taken one.
        run(&mut host, &mut pair, 1);
        host.device.port().set_plan(FaultPlan::new().at(1, fault));
        let (sent, found) = run(&mut host, &mut pair, 4);
        assert_eq!(cids(&found), expected.iter().map(|&n| sent[n]).collect::<Vec<_>>(), "{fault:?}");
        let injected = Injected { fault, command: Some((QueueId(1), sent[1])) };
        assert_eq!(host.device.port().injected(), [injected]);
    }
    let (mut host, mut pair) = host(FaultPlan::new().at(0, Fault::UnknownCid));
    let (sent, found) = run(&mut host, &mut pair, 1);
    assert!(found.len() == 1 && found[0].cid() != sent[0]);
}

#[test]
fn a_status_error_is_the_one_that_was_asked_for() {
    let (mut host, mut pair) = host(FaultPlan::new().at(2, Fault::Status(Status::NAMESPACE_NOT_READY)));
    let (sent, found) = run(&mut host, &mut pair, 4);
    assert_eq!(cids(&found), sent);
    let expected = [Status::SUCCESS, Status::SUCCESS, Status::NAMESPACE_NOT_READY, Status::SUCCESS];
    assert_eq!(found.iter().map(Cqe::status).collect::<Vec<_>>(), expected);
}

#[test]
fn a_swallowed_command_does_nothing_and_a_swallowed_entry_does() {
    for (fault, expected) in [(Fault::SwallowCommand, 9), (Fault::SwallowEntry, 0)] {
        let (mut host, mut pair) = host(FaultPlan::new().at(0, fault));
        let to = host.page(1);
        host.port.memory.write(to, &[9]).unwrap();
        let cid = host.cid();
        host.post(&mut pair, read(0, 1, to, 512), cid);
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(1));
        assert_eq!((host.port.memory.bytes(to, 1)[0], host.reap(&mut pair, 9).len()), (expected, 0));
    }
}

#[test]
fn messages_are_lost_late_and_doubled() {
    let (mut host, mut pair) =
        host(FaultPlan::new().at(0, Fault::LoseMessage).at(1, Fault::DoubleMessage).at(2, Fault::DelayMessage(Nanos::from_millis(7))));
    let sent = |host: &Faulty| host.port.messages.borrow()[1];
    for expected in [0, 2, 2, 3] {
        run(&mut host, &mut pair, 1);
        assert_eq!(sent(&host), expected);
    }
    let port = host.device.port().clone();
    let due = port.next_late().unwrap();
    port.advance(due - Nanos(1));
    assert_eq!(sent(&host), 3);
    port.advance(due);
    assert_eq!((sent(&host), port.next_late()), (4, None));
}

#[test]
fn a_fatal_controller_is_silent_until_it_is_reset() {
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
fn the_admin_queue_is_spared_unless_it_is_asked_for() {
    let always = FaultPlan::new().with_chance(1_000_000, Fault::Status(Status::INTERNAL_ERROR));
    let (mut host, _) = host(always.clone());
    assert_eq!(host.admin(nvme::admin::keep_alive()).status(), Status::SUCCESS);
    host.device.port().set_plan(always.admin_too());
    assert_eq!(host.admin(nvme::admin::keep_alive()).status(), Status::INTERNAL_ERROR);
}

#[test]
fn chances_are_met_as_often_as_they_say_and_the_same_each_time() {
    let run = |seed| {
        let plan = FaultPlan::new().with_chance(200_000, Fault::DoubleEntry).with_chance(100_000, Fault::SwallowEntry).with_seed(seed);
        let (mut host, mut pair) = host(plan);
        let found: usize = (0..200).map(|_| run(&mut host, &mut pair, 5).1.len()).sum();
        let injected = host.device.port().injected();
        let count = |fault| injected.iter().filter(|i| i.fault == fault).count();
        let (doubled, swallowed) = (count(Fault::DoubleEntry), count(Fault::SwallowEntry));
        assert_eq!(found, 1_000 + doubled - swallowed);
        assert!((150..250).contains(&doubled) && (50..120).contains(&swallowed), "{doubled} {swallowed}");
        injected
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
