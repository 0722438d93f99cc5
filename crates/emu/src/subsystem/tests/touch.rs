//! Lost and restored paths, delayed and held commands.

use nvme::Registers;
use nvme::regs::{self, Cc, Csts};
use proptest::prelude::*;
use units::Op;

use super::*;
use crate::testing::random_below;

fn change(subsystem: &Subsystem, path: usize, change: Change) {
    subsystem.control().apply(path, change).unwrap();
}

fn block(host: &mut Host<TestPort>, pair: &mut Pair, lba: u64) -> u8 {
    let to = host.fill(0xee);
    assert_eq!(host.io(pair, read(lba, 1, to, 512)), Some(Status::SUCCESS));
    host.port.memory.bytes(to, 1)[0]
}

fn registers(host: &Host<TestPort>) -> Vec<u32> {
    [regs::CAP, regs::CAP + 4, regs::VS, regs::CC, regs::CSTS]
        .map(|at| host.port.bar.read32(at))
        .into()
}

#[test]
fn lost_path_reads_all_ones() {
    let (subsystem, mut hosts) = two();
    let (a, on_a) = &mut hosts[0];
    let before = registers(a);
    change(&subsystem, 0, Change::Lost(Loss::Gone));
    a.settle();
    assert_eq!(registers(a), [u32::MAX; 5]);
    let at = a.fill(1);
    assert_eq!(a.io(on_a, write(0, 1, at, 512)), None);
    a.set_cc(Cc::new());
    a.run_until(a.now + Nanos::from_secs(1));
    assert_eq!(
        registers(a),
        [u32::MAX; 5],
        "a write to a register that is not there changes nothing"
    );
    change(&subsystem, 0, Change::Back);
    a.settle();
    assert_eq!(registers(a)[..4], before[..4]);
    assert!(a.csts().cfs(), "it works only after a reset");
    assert_eq!(a.io(on_a, write(0, 1, at, 512)), None);
    a.set_cc(Cc::new());
    a.settle();
    assert_eq!(a.csts(), Csts::new());
    a.enable();
    let mut again = a.pair(1, 16);
    assert_eq!(a.io(&mut again, write(0, 1, at, 512)), Some(Status::SUCCESS));
    assert_eq!(block(a, &mut again, 0), 1);
}

#[test]
fn frozen_path_keeps_its_registers() {
    let (subsystem, mut hosts) = two();
    let (a, on_a) = &mut hosts[0];
    let before = registers(a);
    change(&subsystem, 0, Change::Lost(Loss::Frozen));
    let at = a.fill(1);
    assert_eq!(a.io(on_a, write(0, 1, at, 512)), None);
    assert_eq!(registers(a), before);
    a.set_cc(Cc::new());
    a.run_until(a.now + Nanos::from_secs(1));
    assert!(a.csts().rdy(), "nobody acknowledges the reset");
    change(&subsystem, 0, Change::Back);
    a.settle();
    assert_eq!(a.csts(), Csts::new(), "now it is");
    a.enable();
    let mut again = a.pair(1, 16);
    assert_eq!(block(a, &mut again, 0), 0, "the write was never fetched");
}

/// A write that was fetched is executed although its completion is not delivered; a read does not
/// change host memory.
#[test]
fn lost_controller_finishes_its_commands() {
    for loss in [Loss::Gone, Loss::Frozen] {
        let (subsystem, mut hosts) = two();
        let (a, on_a) = &mut hosts[0];
        let (from, to) = (a.fill(1), a.fill(2));
        a.send(on_a, write(0, 1, from, 512));
        a.send(on_a, read(1, 1, to, 512));
        change(&subsystem, 0, Change::Lost(loss));
        let touched = a.port.dma_written.get();
        a.device.step(a.now);
        // The data were copied when the path was lost: a later change of the buffer has no effect.
        a.port.memory.write(from, &[9; 512]).unwrap();
        a.run_until(a.now + MS);
        assert!(a.reap(on_a, 9).is_empty());
        assert_eq!(
            (a.port.dma_written.get(), a.port.memory.bytes(to, 512)),
            (touched, vec![2; 512])
        );
        let (b, on_b) = &mut hosts[1];
        assert_eq!(block(b, on_b, 0), 1, "{loss:?}");
    }
}

#[test]
fn reset_cancels_a_held_write() {
    for (reset, expected) in [(false, 1), (true, 0)] {
        let (subsystem, mut hosts) = two();
        let (a, on_a) = &mut hosts[0];
        let from = a.fill(1);
        change(&subsystem, 0, Change::Hold(Some(Op::Write)));
        assert_eq!(block(a, on_a, 5), 0, "reads are not held");
        assert_eq!(a.io(on_a, write(0, 1, from, 512)), None);
        change(&subsystem, 0, Change::Lost(Loss::Gone));
        a.run_until(a.now + Nanos::from_secs(9));
        change(&subsystem, 0, Change::Back);
        a.settle();
        if reset {
            a.set_cc(Cc::new());
            a.settle();
            assert!(!a.csts().rdy());
        }
        change(&subsystem, 0, Change::Release);
        a.run_until(a.now + MS);
        let (b, on_b) = &mut hosts[1];
        assert_eq!(block(b, on_b, 0), expected, "reset: {reset}");
    }
}

#[test]
fn held_commands_complete_on_release() {
    let (subsystem, mut hosts) = two();
    let (a, on_a) = &mut hosts[0];
    let from = a.fill(1);
    change(&subsystem, 0, Change::Hold(None));
    a.device.step(a.now);
    for lba in 0..3 {
        a.send(on_a, write(lba, 1, from, 512));
    }
    a.run_until(a.now + Nanos::from_secs(1));
    assert!(a.reap(on_a, 9).is_empty());
    let middle = nvme::Cid(a.last_cid().0 - 1);
    let abort = nvme::admin::Abort { sq: on_a.id, cid: middle };
    assert!(a.admin(abort.to_sqe()).result == nvme::admin::Abort::ABORTED);
    change(&subsystem, 0, Change::Release);
    a.settle();
    let statuses: Vec<_> =
        a.reap(on_a, 9).iter().map(|cqe| (cqe.cid() == middle, cqe.status().kind())).collect();
    assert_eq!(
        statuses,
        [(true, Status::ABORT_REQUESTED), (false, Status::SUCCESS), (false, Status::SUCCESS)]
    );
    assert_eq!(a.io(on_a, write(0, 1, from, 512)), Some(Status::SUCCESS), "no more are held");
}

/// Writes of a lost path stop after the Keep Alive Timeout and the Command Quiesce Time.
#[test]
fn lost_controller_quiesces_in_time() {
    for (released_after, expected) in [(100, 1), (249, 1), (251, 0)] {
        let mut subsystem = Subsystem::new(NQN).unwrap();
        subsystem.share(mem(1 << 20, 512)).unwrap();
        let slow_to_stop = Config { quiesce_time: Nanos::from_millis(50), ..config(1) };
        let mut hosts = hosts_of(&mut subsystem, vec![slow_to_stop, config(2)]);
        let (a, on_a) = &mut hosts[0];
        assert!(
            a.admin(SetFeatures::new(fid::KEEP_ALIVE_TIMER, 200_u32).to_sqe())
                .status()
                .is_success()
        );
        let from = a.fill(1);
        change(&subsystem, 0, Change::Hold(Some(Op::Write)));
        a.device.step(a.now);
        a.send(on_a, write(0, 1, from, 512));
        let start = a.now;
        change(&subsystem, 0, Change::Lost(Loss::Gone));
        subsystem
            .control()
            .at(start + Nanos::from_millis(released_after), 0, Change::Release)
            .unwrap();
        a.run_until(start + Nanos::from_secs(1));
        change(&subsystem, 0, Change::Back);
        a.settle();
        assert!(a.csts().cfs());
        let (b, on_b) = &mut hosts[1];
        assert_eq!(block(b, on_b, 0), expected, "released after {released_after} ms");
    }
}

/// Time advances in every state (`run_until` asserts that no due event is left).
#[test]
fn lost_during_shutdown_also_quiesces() {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    subsystem.share(mem(1 << 20, 512)).unwrap();
    let slow = Config { shutdown_delay: Nanos::from_secs(5), ..config(1) };
    let (a, _) = &mut hosts_of(&mut subsystem, vec![slow])[0];
    assert!(
        a.admin(SetFeatures::new(fid::KEEP_ALIVE_TIMER, 200_u32).to_sqe()).status().is_success()
    );
    a.set_cc(Host::<TestPort>::cc().with_shn(Cc::SHN_NORMAL));
    a.settle();
    change(&subsystem, 0, Change::Lost(Loss::Gone));
    a.run_until(a.now + Nanos::from_secs(9));
    change(&subsystem, 0, Change::Back);
    a.settle();
    assert!(a.csts().cfs());
}

#[test]
fn unused_controller_stays_unchanged() {
    let (subsystem, mut hosts) = two();
    let (a, _) = &mut hosts[0];
    a.set_cc(Cc::new());
    a.settle();
    change(&subsystem, 0, Change::Lost(Loss::Gone));
    a.run_until(a.now + MS);
    change(&subsystem, 0, Change::Back);
    a.settle();
    assert_eq!(a.csts(), Csts::new());
    a.enable();
    assert!(a.csts().rdy());
}

#[test]
fn delay_adds_to_every_command() {
    for profile in [profile(), Profile::null()] {
        let usual = if profile.is_instant() { Nanos::ZERO } else { Nanos::from_micros(100) };
        let mut subsystem = Subsystem::new(NQN).unwrap();
        subsystem.share(mem(1 << 20, 512)).unwrap();
        let mut hosts = hosts_of(&mut subsystem, vec![Config { profile, ..config(1) }]);
        let (host, pair) = &mut hosts[0];
        let at = host.fill(1);
        let mut took = |host: &mut Host<TestPort>| {
            let start = host.now;
            host.send(pair, read(0, 1, at, 512));
            while host.reap(pair, 9).is_empty() {
                let next = host.settle().next.expect("it completes");
                host.run_until(next);
            }
            host.now - start
        };
        assert_eq!(took(host), usual);
        change(&subsystem, 0, Change::Delay(MS));
        host.device.step(host.now);
        assert_eq!(took(host), usual + MS);
        change(&subsystem, 0, Change::Delay(Nanos::ZERO));
        host.device.step(host.now);
        assert_eq!(took(host), usual);
    }
}

fn changes() -> impl Strategy<Value = Vec<(usize, Change)>> {
    let any = prop::sample::select(vec![
        Change::Lost(Loss::Gone),
        Change::Lost(Loss::Frozen),
        Change::Back,
        Change::Hold(None),
        Change::Hold(Some(Op::Write)),
        Change::Release,
        Change::Delay(MS),
        Change::Delay(Nanos::ZERO),
        Change::Ana { group: None, state: AnaState::INACCESSIBLE },
        Change::Ana { group: None, state: AnaState::OPTIMIZED },
    ]);
    prop::collection::vec((0usize..2, any), 0..30)
}

/// Applies changes and checks the invariants; `Err` describes a violation.
fn survive(changes: &[(usize, Change)], seed: u64, mutant: Mutant) -> Result<(), String> {
    let (subsystem, mut hosts) = two();
    let mut roll = random_below(seed);
    let mut lost = [false; 2];
    let mut sent: [Vec<nvme::Cid>; 2] = Default::default();
    for &(path, what) in changes {
        for (n, (host, pair)) in hosts.iter_mut().enumerate() {
            let at = host.fill(n as u8 + 1);
            if roll(2) == 0 && !host.csts().is_gone() && host.csts().rdy() {
                host.send(
                    pair,
                    [read(roll(64), 1, at, 512), write(roll(64), 1, at, 512)][roll(2) as usize],
                );
                sent[n].push(host.last_cid());
            }
            if roll(8) == 0 {
                host.set_cc(if roll(2) == 0 { Cc::new() } else { Host::<TestPort>::cc() });
            }
            let touched = host.port.dma_written.get();
            host.run_until(host.now + Nanos(roll(300_000)));
            for cqe in host.reap(pair, 99) {
                let known = sent[n].iter().position(|&cid| cid == cqe.cid());
                sent[n].remove(known.ok_or_else(|| {
                    format!("command {} completes, and is not outstanding", cqe.cid())
                })?);
            }
            if lost[n] && host.port.dma_written.get() != touched {
                return Err("a lost controller wrote to the host's memory".into());
            }
        }
        match what {
            Change::Lost(_) => lost[path] = true,
            Change::Back => lost[path] = false,
            _ => {}
        }
        if mutant == Mutant::Right || !matches!(what, Change::Lost(_)) {
            change(&subsystem, path, what);
        }
        hosts[path].0.settle();
    }
    hosts.iter_mut().enumerate().try_for_each(|(n, (host, _))| {
        for what in [
            Change::Back,
            Change::Release,
            Change::Delay(Nanos::ZERO),
            Change::Ana { group: None, state: AnaState::OPTIMIZED },
        ] {
            change(&subsystem, n, what);
        }
        host.settle();
        host.set_cc(Cc::new());
        host.run_until(host.now + MS);
        host.enable();
        let mut pair = host.pair(1, 16);
        let at = host.fill(7);
        let done = host.io(&mut pair, write(0, 1, at, 512));
        (done == Some(Status::SUCCESS))
            .then_some(())
            .ok_or_else(|| format!("in the end a write gives {done:?}"))
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Mutant {
    Right,
    /// Negative test: the path is not lost.
    InTouch,
}

proptest! {
    /// Invariants for any sequence of changes and register writes: host memory is not accessed
    /// while a path is lost, no command completes twice, time advances, and after a reset of every
    /// path all commands succeed.
    #[test]
    fn any_changes_are_survived(changes in changes(), seed in any::<u64>()) {
        survive(&changes, seed, Mutant::Right).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn controller_not_lost_is_caught() {
    let changes: Vec<_> = std::iter::once((0, Change::Lost(Loss::Frozen)))
        .chain([(1, Change::Release); 20])
        .collect();
    let broken = (0..20).find_map(|seed| survive(&changes, seed, Mutant::InTouch).err());
    assert_eq!(broken.as_deref(), Some("a lost controller wrote to the host's memory"));
    assert!((0..20).all(|seed| survive(&changes, seed, Mutant::Right).is_ok()));
}
