use std::collections::BTreeSet;

use nvme::opcode::admin;
use nvme::regs::Cc;
use nvme::{Registers, Status, regs};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::testing::controller::{Controller, MemRegisters, Script};
use crate::testing::host::{End, Host};
use crate::testing::wire::Plan;

mod watch;

fn up(script: Script) -> Host {
    let (mut host, config) = Host::new(Controller::new(script));
    host.bring_up(config).unwrap();
    host
}

fn after(host: &Host, millis: u64) -> Nanos {
    host.now + Nanos::from_millis(millis)
}

#[test]
fn nothing_happens_while_all_is_well() {
    let mut host = up(Script::default());
    (0..8).for_each(|token| assert!(host.submit(token)));
    host.run_until(after(&host, 10_000));
    assert_eq!((host.ended.len(), host.aborts, host.causes.len()), (8, 0, 0));
}

/// A silent command is aborted after its time-out; aborted commands are posted again, and then fail
/// with their status.
#[test]
fn timed_out_command_is_aborted() {
    let mut host = up(Script::default());
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.run_until(after(&host, 1_400));
    assert_eq!((host.aborts, host.ended.len()), (1, 0));
    assert_eq!(host.waiting[&1], 1, "posted again");
    host.run_until(after(&host, 5_000));
    assert_eq!(host.ended[&1], [End::Done(Status::ABORT_REQUESTED)]);
    assert!(host.causes.is_empty());
}

/// ACL + 1 is 2 here: of eight silent commands no more than two are aborted at a time, if Aborts
/// are not answered.
#[test]
fn aborts_are_limited_then_reset() {
    let mut host = up(Script { silent: vec![(admin::ABORT, 0)], ..Script::default() });
    host.controller.io_silent = true;
    (0..8).for_each(|token| assert!(host.submit(token)));
    host.run_until(after(&host, 1_450));
    assert_eq!((host.aborts, host.causes.len()), (2, 0));
    host.controller.io_silent = false;
    host.run_until(after(&host, 1_000));
    assert!(matches!(host.causes[..], [ResetCause::Unanswered { .. }]), "{:?}", host.causes);
    assert!((0..8).all(|token| host.ended[&token] == [End::Done(Status::SUCCESS)]));
}

#[test]
fn async_events_have_no_timeout() {
    let mut host = up(Script::default());
    let mut sq = host.admin.lock_sq();
    sq.post(nvme::admin::async_event_request(), crate::Purpose::AsyncEvent.to_token(), host.now)
        .unwrap();
    sq.commit(&host.controller.doorbells);
    drop(sq);
    host.run_until(after(&host, 100_000));
    assert!(host.causes.is_empty());
    // Any other admin command does.
    host.controller.script.silent = vec![(admin::KEEP_ALIVE, 0)];
    let mut sq = host.admin.lock_sq();
    sq.post(nvme::admin::keep_alive(), crate::Purpose::KeepAlive.to_token(), host.now).unwrap();
    sq.commit(&host.controller.doorbells);
    drop(sq);
    host.run_until(after(&host, 2_000));
    assert!(matches!(host.causes[..], [ResetCause::Unanswered { queue: QueueId::ADMIN, .. }]));
}

#[test]
fn fatal_controller_is_reset() {
    let mut host = up(Script::default());
    host.controller.io_silent = true;
    assert!(host.submit(1) && host.submit(2));
    host.controller.step(host.now);
    host.controller.break_down();
    host.controller.io_silent = false;
    host.run_until(after(&host, 2_000));
    assert!(matches!(host.causes[..], [ResetCause::Fatal { .. }]));
    assert_eq!(
        (host.ended[&1][..].len(), &host.ended[&2][..]),
        (1, &[End::Done(Status::SUCCESS)][..])
    );
}

/// A controller that fails while it is being stopped, and does not stop any more.
#[test]
fn function_reset_stops_stuck_controller() {
    let mut host = up(Script { stop_after: Nanos::MAX, ..Script::default() });
    host.wire.set_plan(Plan { resets_function: true, ..Plan::default() });
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.step(host.now);
    host.controller.break_down();
    host.controller.io_silent = false;
    host.run_until(after(&host, 5_000));
    assert_eq!((&host.dead, host.losses), (&None, 0));
    assert_eq!(host.ended[&1], [End::Done(Status::SUCCESS)]);
    // Where that does not work the controller is given up.
    host.wire.set_plan(Plan::default());
    host.controller.break_down();
    host.run_until(after(&host, 5_000));
    assert!(matches!(host.dead, Some(Dead::NotStopped { .. })), "{:?}", host.dead);
}

/// It fails again at any time of its reset: before it has stopped, while stopped, and while
/// becoming ready.
#[test]
fn fatal_status_during_reset_recovers() {
    for micros in (0..1_500).step_by(25) {
        let mut host = up(Script::default());
        assert!(host.submit(1));
        host.controller.break_down();
        host.run_until(host.now + Nanos::from_micros(micros));
        host.controller.break_down();
        host.run_until(after(&host, 10_000));
        assert_eq!(host.dead, None, "fatal again after {micros} µs");
        assert!(host.submit(2));
        host.run_until(after(&host, 1_000));
        assert_eq!(host.ended[&2], [End::Done(Status::SUCCESS)], "fatal again after {micros} µs");
    }
}

#[test]
fn protocol_violation_resets_at_once() {
    let mut host = up(Script::default());
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.step(host.now);
    host.controller.post(QueueId(2), 0x7777, Status::SUCCESS);
    host.controller.io_silent = false;
    host.run_until(after(&host, 100));
    assert!(matches!(host.causes[..], [ResetCause::Violation(_)]), "{:?}", host.causes);
    assert_eq!(host.ended[&1], [End::Done(Status::SUCCESS)]);
}

/// The same during bring-up: each attempt reports its error at once, and the last error is the
/// final one.
#[test]
fn protocol_violation_ends_the_attempt() {
    let mut host = up(Script::default());
    host.controller.script.astray = vec![(nvme::opcode::admin::IDENTIFY, 1)];
    host.controller.break_down();
    host.run_until(after(&host, 2_500));
    let Some(Dead::NotBroughtUp { error, .. }) = &host.dead else { panic!("{:?}", host.dead) };
    assert!(matches!(error.cause, crate::BringupCause::Violation(_)), "{error}");
}

#[test]
fn retries_are_limited() {
    let mut host = up(Script::default());
    host.controller.io_silent = true;
    assert!(host.submit(1));
    for _ in 0..3 {
        host.controller.break_down();
        host.run_until(after(&host, 1_050));
    }
    assert_eq!(host.ended[&1], [End::Lost { leaked: false }]);
}

#[test]
fn removed_controller_leaks_buffers() {
    let mut host = up(Script::default());
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.remove();
    host.run_until(after(&host, 5_000));
    assert_eq!(host.dead, Some(Dead::Gone));
    assert_eq!(host.ended[&1], [End::Lost { leaked: true }]);
    assert!(!host.submit(2), "a dead controller takes nothing");
}

#[test]
fn stuck_controller_leaks_buffers() {
    let mut host = up(Script { stop_after: Nanos::MAX, ..Script::default() });
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.break_down();
    host.run_until(after(&host, 5_000));
    assert!(matches!(host.dead, Some(Dead::NotStopped { .. })), "{:?}", host.dead);
    assert_eq!(host.ended[&1], [End::Lost { leaked: true }]);
}

#[test]
fn dead_controller_exhausts_attempts() {
    let mut host = up(Script::default());
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.break_down();
    host.controller.script.ready_after = Nanos::MAX;
    host.run_until(after(&host, 60_000));
    assert!(matches!(host.dead, Some(Dead::NotBroughtUp { .. })), "{:?}", host.dead);
    // Stopped before each of three attempts, and after the last.
    assert_eq!(host.causes.len(), 4);
    assert_eq!(host.ended[&1], [End::Lost { leaked: false }]);
    assert!(!Cc::from_bits(host.controller.registers.read32(regs::CC)).en());
}

/// A host that waits for lost controllers.
fn patient(script: Script, backoff: Nanos) -> Host {
    let (mut host, config) = Host::new(Controller::new(script));
    host.config.lost_timeout = backoff;
    host.bring_up(config).unwrap();
    host
}

#[test]
fn returning_controller_is_stopped_first() {
    let mut host = patient(Script::default(), Nanos::MAX);
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.step(host.now);
    host.controller.remove();
    host.run_until(after(&host, 60_000));
    assert_eq!(
        (host.losses, &host.dead, host.ended.len()),
        (1, &None, 0),
        "nothing is taken back meanwhile"
    );
    let lost_since =
        |host: &Host| host.recovery.as_ref().and_then(|recovery| recovery.lost_since());
    assert!(lost_since(&host).is_some_and(|since| since < host.now));
    host.controller.io_silent = false;
    host.controller.restore_path();
    // The executor asserts that RDY is 0 when buffers are returned.
    host.run_until(after(&host, 1_000));
    assert_eq!((host.losses, &host.dead, lost_since(&host)), (1, &None, None));
    assert_eq!(host.ended[&1], [End::Done(Status::SUCCESS)]);
    assert!(host.submit(2));
    host.run_until(after(&host, 1_000));
    assert_eq!(host.ended[&2], [End::Done(Status::SUCCESS)]);
}

#[test]
fn slow_stop_is_waited_for() {
    let mut host = patient(Script { stop_after: Nanos::MAX, ..Script::default() }, Nanos::MAX);
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.break_down();
    host.run_until(after(&host, 30_000));
    assert_eq!((host.losses, &host.dead, host.ended.len()), (1, &None, 0));
    host.controller.io_silent = false;
    host.controller.answer_the_stop(Nanos::from_millis(1));
    host.run_until(after(&host, 5_000));
    assert_eq!((host.losses, &host.ended[&1][..]), (1, &[End::Done(Status::SUCCESS)][..]));
}

#[test]
fn lost_controller_is_given_up() {
    let mut host = patient(Script::default(), Nanos::from_secs(20));
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.remove();
    host.run_until(after(&host, 15_000));
    assert_eq!((host.losses, &host.dead), (1, &None));
    host.run_until(after(&host, 10_000));
    assert_eq!(host.dead, Some(Dead::Gone));
    assert_eq!(host.ended[&1], [End::Lost { leaked: true }]);
}

#[test]
fn closing_ends_the_wait() {
    let mut host = patient(Script::default(), Nanos::MAX);
    host.controller.io_silent = true;
    assert!(host.submit(1));
    host.controller.remove();
    host.run_until(after(&host, 5_000));
    assert_eq!((host.losses, &host.dead), (1, &None));
    host.recovery.as_mut().unwrap().fail_pending();
    host.run_until(after(&host, 100));
    assert_eq!(host.dead, Some(Dead::Gone));
    assert_eq!(host.ended[&1], [End::Lost { leaked: true }]);
}

#[test]
fn loss_during_bringup_waits_again() {
    let mut host =
        patient(Script { ready_after: Nanos::from_millis(50), ..Script::default() }, Nanos::MAX);
    host.controller.io_silent = true;
    assert!(host.submit(1));
    for losses in 1..=9 {
        host.controller.remove();
        host.run_until(after(&host, 2_000));
        assert_eq!(host.losses, losses);
        host.controller.restore_path();
        host.run_until(after(&host, 30));
    }
    host.controller.io_silent = false;
    host.run_until(after(&host, 5_000));
    assert_eq!((&host.dead, &host.ended[&1][..]), (&None, &[End::Done(Status::SUCCESS)][..]));
}

#[derive(Clone, Debug)]
enum Fault {
    Silence(bool),
    SilentAborts(bool),
    Fatal,
    Remove,
    ComeBack,
    Stray(u16),
    Doubled,
    Status(u16),
    Late,
    NeverStops,
    NeverReady(bool),
}

fn faults() -> impl Strategy<Value = Vec<(u8, u16, Option<Fault>)>> {
    let fault = prop_oneof![
        4 => any::<bool>().prop_map(Fault::Silence),
        2 => any::<bool>().prop_map(Fault::SilentAborts),
        2 => Just(Fault::Fatal),
        1 => Just(Fault::Remove),
        1 => Just(Fault::ComeBack),
        1 => any::<u16>().prop_map(Fault::Stray),
        1 => Just(Fault::Doubled),
        2 => any::<u16>().prop_map(Fault::Status),
        2 => Just(Fault::Late),
        1 => Just(Fault::NeverStops),
        1 => any::<bool>().prop_map(Fault::NeverReady),
    ];
    prop::collection::vec((0u8..6, 0u16..1500, prop::option::of(fault)), 1..25)
}

fn inflict(host: &mut Host, fault: Fault) {
    let controller = &mut host.controller;
    match fault {
        Fault::Silence(silent) => controller.io_silent = silent,
        Fault::SilentAborts(silent) => {
            controller.script.silent = if silent { vec![(admin::ABORT, 0)] } else { vec![] }
        }
        Fault::Fatal if controller.csts().rdy() => controller.break_down(),
        Fault::Remove => controller.remove(),
        Fault::ComeBack if controller.csts().is_gone() => controller.restore_path(),
        Fault::Stray(cid) => controller.post(QueueId(1), cid, Status::SUCCESS),
        Fault::Doubled => {
            if let Some((queue, sqe)) = controller.held.first().copied() {
                controller.complete(0, Status::SUCCESS);
                controller.post(queue, sqe.cid, Status::SUCCESS);
            }
        }
        Fault::Status(status) if !controller.held.is_empty() => {
            controller.complete(0, Status(status & 0x7fff))
        }
        Fault::Late if !controller.held.is_empty() => {
            controller.complete(controller.held.len() - 1, Status::SUCCESS)
        }
        Fault::NeverStops => controller.script.stop_after = Nanos::MAX,
        Fault::NeverReady(never) => {
            controller.script.ready_after = if never { Nanos::MAX } else { Nanos::from_millis(1) }
        }
        _ => {}
    }
}

/// Plays a script of requests, pauses in milliseconds and faults, and waits for everything to end.
/// Returns the number of requests.
fn play(host: &mut Host, script: Vec<(u8, u16, Option<Fault>)>) -> u64 {
    let mut posted = 0;
    for (requests, millis, fault) in script {
        posted = (0..requests)
            .fold(posted, |token, _| token + u64::from(host.dead.is_none() && host.submit(token)));
        host.controller.step(host.now);
        fault.into_iter().for_each(|fault| inflict(host, fault));
        host.run_until(after(host, millis.into()));
    }
    host.controller.io_silent = false;
    host.run_until(after(host, 60_000));
    posted
}

proptest! {
    /// For any sequence of faults every request ends once, buffers are leaked only if the
    /// controller did not provably stop (the executor asserts the reverse), and time advances.
    #[test]
    fn every_request_ends_once_across_faults(script in faults()) {
        let mut host = up(Script::default());
        let posted = play(&mut host, script);
        for token in 0..posted {
            let ends = host.ended.get(&token).map_or(&[][..], |ends| ends);
            prop_assert_eq!(ends.len(), 1, "request {} of {}: {:?}, dead: {:?}", token, posted, ends, host.dead);
            let leaked = matches!(ends[0], End::Lost { leaked: true });
            prop_assert!(!leaked || matches!(host.dead, Some(Dead::Gone | Dead::NotStopped { .. })), "leaked");
        }
    }
}

proptest! {
    /// The same with a host that waits for lost controllers: once they are back every request ends,
    /// and nothing was leaked.
    #[test]
    fn patient_host_leaks_nothing(script in faults()) {
        let mut host = patient(Script::default(), Nanos::MAX);
        let posted = play(&mut host, script);
        host.controller.script = Script::default();
        if host.controller.csts().is_gone() {
            host.controller.restore_path();
        }
        host.controller.answer_the_stop(Nanos::from_millis(1));
        host.run_until(after(&host, 60_000));
        for token in 0..posted {
            let ends = host.ended.get(&token).map_or(&[][..], |ends| ends);
            prop_assert_eq!(ends.len(), 1, "request {} of {}: {:?}, dead: {:?}", token, posted, ends, host.dead);
            prop_assert!(!matches!(ends[0], End::Lost { leaked: true }), "leaked: {:?}", host.dead);
        }
    }
}

/// The scripts above reach every outcome.
#[test]
fn the_faults_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..300 {
        let mut host = up(Script::default());
        play(&mut host, faults().new_tree(&mut runner).unwrap().current());
        let name = |debug: String| debug.split([' ', '(']).next().unwrap_or_default().to_owned();
        reached.extend(host.causes.iter().map(|cause| name(format!("{cause:?}"))));
        reached.extend(
            host.dead.iter().map(|dead| name(format!("dead: {dead:?}").replace(": ", ":"))),
        );
        reached.extend((host.aborts > 0).then(|| "aborts".to_owned()));
        reached.extend(
            (host.dead.is_none() && !host.causes.is_empty()).then(|| "restored".to_owned()),
        );
    }
    let expected = [
        "Fatal",
        "Gone",
        "Unanswered",
        "Violation",
        "aborts",
        "dead:Gone",
        "dead:NotBroughtUp",
        "dead:NotStopped",
        "restored",
    ];
    assert_eq!(reached.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

/// Mutant: registers on which a controller seems to stop at once, so that recovery does not wait
/// for RDY = 0.
struct Impatient(MemRegisters);

impl Registers for Impatient {
    fn read32(&self, offset: u32) -> u32 {
        let disabled = !Cc::from_bits(self.0.read32(regs::CC)).en();
        match offset {
            regs::CSTS if disabled => 0,
            _ => self.0.read32(offset),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        self.0.write32(offset, value);
    }
}

#[test]
#[should_panic(expected = "buffers returned although the controller runs")]
fn recovery_without_stop_is_caught() {
    let mut host = up(Script::default());
    host.controller.break_down();
    let registers = Impatient(host.registers());
    host.run_until_with(after(&host, 2_000), &registers);
}
