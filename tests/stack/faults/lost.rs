//! Controllers that are not opened, and controllers that do not come back.

use std::thread;
use std::time::Duration;

use driver::{BringupCause, BringupError};
use reap::{
    Device, EmbeddedOptions, Fault, FaultPlan, Faults, IoError, Mode, OpenError, OpenOptions,
    Request,
};

use crate::load::{BLOCK, LONG, Load, PATIENT, SOON, Watchdog, modes, open, open_to_lose};

/// Every occasion, those of the admin queue as well.
fn always(fault: Fault) -> FaultPlan {
    FaultPlan::new().admin_too().with_chance(1_000_000, fault)
}

/// In all of them at once: what a lost controller is waited for takes long, and nothing of this
/// machine's.
fn in_every_mode(test: impl Fn(Mode) + Sync) {
    thread::scope(|scope| {
        modes().into_iter().for_each(|mode| {
            _ = scope.spawn({
                let test = &test;
                move || test(mode)
            })
        })
    });
}

/// Breaks the controller while two threads use it. Every request ends, whatever is asked later
/// fails at once, and closing the device does not hang.
fn break_in_use(mode: Mode, leaks: bool, break_it: impl Fn(&Device, &Faults)) {
    let _watchdog = Watchdog::new(&format!("a controller that is lost, {mode}"));
    let (device, faults) = open_to_lose(FaultPlan::new(), mode, 2, SOON);
    let kept: u64 = thread::scope(|scope| {
        let threads = [0, 1].map(|owner| {
            let queue = device.queue().unwrap();
            scope.spawn(move || {
                let mut load = Load::new(&queue, owner);
                while load.run(100, 16).bad.is_empty() {}
                let before = load.ended.good;
                load.run(50, 16);
                assert_eq!(load.ended.good, before, "nothing succeeds on a lost controller");
                assert!(
                    load.ended.bad.iter().all(|&error| error == IoError::DeviceLost),
                    "{:?}",
                    load.ended.bad
                );
                let ns = queue.namespaces()[0];
                let (result, _) =
                    queue.block_on(queue.read(&ns, 0, queue.buffer(BLOCK).unwrap())).unwrap();
                assert_eq!(result, Err(IoError::DeviceLost));
                load.ended.kept_buffers
            })
        });
        // Well under way: what the housekeeping thread was told of the queues' beginnings it has
        // looked at.
        while device.counters().sq_doorbells < 500 {
            thread::sleep(Duration::from_millis(1));
        }
        break_it(&device, &faults);
        threads.into_iter().map(|thread| thread.join().expect("the thread has not panicked")).sum()
    });
    let (health, leaked) = (device.health(), device.counters().leaked_bytes);
    println!("{mode}: {leaked} bytes leaked, {:?}", health.dead);
    assert!(health.dead.is_some(), "{health:?}");
    assert_eq!(leaked > 0, leaks, "{mode}");
    assert!(
        leaked >= kept * BLOCK as u64 && (kept > 0) == leaks,
        "{kept} requests came back without their buffers"
    );
}

#[test]
fn hung_controller_leaks_its_buffers() {
    in_every_mode(|mode| break_in_use(mode, true, |_, faults| faults.hang()));
}

#[test]
fn removed_controller_is_lost() {
    in_every_mode(|mode| {
        break_in_use(mode, true, |device, faults| {
            // Between two batches nothing is in flight: a controller that is pulled out then has
            // nothing to leak.
            faults.hang();
            while device.in_flight() == 0 {
                thread::yield_now();
            }
            faults.remove();
        });
    });
}

#[test]
fn failed_restart_leaks_nothing() {
    in_every_mode(|mode| break_in_use(mode, false, |_, faults| faults.set(always(Fault::Fatal))));
}

#[test]
fn unanswered_request_ends_after_retries() {
    let _watchdog = Watchdog::new("a command that is always swallowed");
    let (device, faults) = open(
        FaultPlan::new().with_chance(1_000_000, Fault::SwallowCommand),
        Mode::INTERRUPT,
        1,
        SOON,
    );
    let queue = device.queue().unwrap();
    let ns = queue.namespaces()[0];
    let (result, buf) = queue.block_on(queue.read(&ns, 0, queue.buffer(BLOCK).unwrap())).unwrap();
    assert_eq!((result, buf.len(), device.health().resets), (Err(IoError::TimedOut), BLOCK, 4));
    // How many Aborts went before is not asked: a command that is looked at once the time for both
    // is over is not aborted any more.
    faults.set(FaultPlan::new());
    let (result, _) = queue.block_on(queue.read(&ns, 0, buf)).unwrap();
    result.unwrap();
}

#[test]
fn without_retries_nothing_is_resent() {
    let _watchdog = Watchdog::new("a command that is swallowed while nobody has patience");
    // The request is not to be late before the device has lost its patience.
    let (device, _faults) = open(
        FaultPlan::new().with_chance(1_000_000, Fault::SwallowCommand),
        Mode::INTERRUPT,
        1,
        PATIENT,
    );
    let queue = device.queue().unwrap();
    let read = queue.read(&queue.namespaces()[0], 0, queue.buffer(BLOCK).unwrap());
    queue.commit();
    assert_eq!(device.in_flight(), 1);
    device.fail_pending();
    let (result, _) = queue.block_on(read).unwrap();
    assert_eq!(
        (result, device.health().resets, device.in_flight()),
        (Err(IoError::TimedOut), 1, 0)
    );
}

#[test]
fn split_request_survives_a_reset() {
    let _watchdog = Watchdog::new("a request in many parts");
    for mode in modes() {
        let (device, _faults) = open(FaultPlan::new().at(3, Fault::Fatal), mode, 1, LONG);
        let queue = device.queue().unwrap();
        let ns = queue.namespaces()[0];
        let mut buf = queue.buffer(8 << 20).unwrap();
        buf.fill(7);
        let done = queue.block_on(queue.start(Request::write(&ns, 0, buf))).unwrap();
        assert_eq!((done.result, device.health().resets), (Ok(()), 1), "{mode}");
    }
}

#[test]
fn short_hang_loses_nothing() {
    let _watchdog = Watchdog::new("a controller that hangs for a while");
    for mode in modes() {
        let (device, faults) = open(FaultPlan::new(), mode, 1, SOON);
        let queue = device.queue().unwrap();
        let mut load = Load::new(&queue, 0);
        faults.hang();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                faults.go_on();
            });
            assert_eq!(load.run(300, 16).good, 300);
        });
    }
}

/// Opens a device that does not come up, and says why.
fn refused(plan: FaultPlan, prepare: impl Fn(&Faults)) -> BringupError {
    let _watchdog = Watchdog::new(&format!("opening with {plan:?}"));
    let faults = Faults::new(plan);
    prepare(&faults);
    let options = OpenOptions::new().timeout(std::time::Duration::from_millis(60)).embedded(
        EmbeddedOptions {
            faults: Some(faults),
            ready_timeout: Some(PATIENT.into()),
            ..EmbeddedOptions::default()
        },
    );
    match Device::open_with("mem:1M?profile=null", &options) {
        Err(OpenError::Bringup(error)) => {
            println!("{error}");
            error
        }
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the device has opened"),
    }
}

#[test]
fn failed_open_says_why() {
    // Silence takes as long as an admin command has.
    thread::scope(|scope| {
        for silent in [Fault::SwallowCommand, Fault::SwallowEntry, Fault::WrongPhase] {
            scope.spawn(move || {
                let cause = refused(always(silent), |_| ()).cause;
                assert!(matches!(cause, BringupCause::NoReply { .. }), "{cause}");
            });
        }
        scope.spawn(|| {
            assert!(matches!(
                refused(FaultPlan::new(), Faults::hang).cause,
                BringupCause::NotReady { .. }
            ))
        });
        scope.spawn(|| {
            assert!(matches!(refused(FaultPlan::new(), Faults::remove).cause, BringupCause::Gone))
        });
        scope.spawn(|| {
            assert!(matches!(refused(always(Fault::Fatal), |_| ()).cause, BringupCause::Fatal))
        });
    });
    let said_no = refused(always(Fault::Status(nvme::Status::INTERNAL_ERROR)), |_| ()).cause;
    assert!(
        matches!(said_no, BringupCause::Rejected { status: nvme::Status::INTERNAL_ERROR }),
        "{said_no}"
    );
    // The process has not suffered.
    let device = Device::open("mem:1M?profile=null").unwrap();
    let queue = device.queue().unwrap();
    let ns = queue.namespaces()[0];
    queue.block_on(queue.read(&ns, 0, queue.buffer(BLOCK).unwrap())).unwrap().0.unwrap();
}
