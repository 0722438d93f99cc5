use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::*;
use crate::testing::controller::{Controller, Script};
use crate::testing::host::{End, Host, SECOND};
use crate::testing::wire::{AccessFate, Mutant, Plan, Wire};
use crate::{BringupCause, BringupError, Dead, Inventory, ResetCause, ShutdownError};

/// Answers no access by itself.
#[derive(Default)]
struct Silent(RefCell<Vec<Access>>);

impl Properties for Silent {
    fn ask(&self, access: Access) -> AccessPoll {
        self.0.borrow_mut().push(access);
        AccessPoll::Pending(Ticket(self.0.borrow().len() as u64))
    }
}

const CAP: Access = Access::Get(Property::Cap);

/// A round of three accesses.
fn stretch(
    accesses: &mut Accesses,
    now: u64,
    properties: &Silent,
) -> Result<(u64, u32), AccessError> {
    let mut round = accesses.round(Nanos(now), Nanos(100), properties);
    let cap = round.get64(Property::Cap)?;
    round.set(Property::Cc, cap + 1)?;
    Ok((cap, round.get32(Property::Csts)?))
}

#[test]
fn round_asks_each_property_once() {
    let (mut accesses, silent) = (Accesses::default(), Silent::default());
    assert_eq!(stretch(&mut accesses, 0, &silent), Err(AccessError::WouldBlock(Nanos(100))));
    assert_eq!(
        stretch(&mut accesses, 50, &silent),
        Err(AccessError::WouldBlock(Nanos(100))),
        "stepped for another reason"
    );
    accesses.answered(Ticket(1), Ok(7));
    assert_eq!(stretch(&mut accesses, 60, &silent), Err(AccessError::WouldBlock(Nanos(160))));
    // A repeated earlier answer does not count.
    accesses.answered(Ticket(1), Ok(9));
    assert_eq!(stretch(&mut accesses, 61, &silent), Err(AccessError::WouldBlock(Nanos(160))));
    accesses.answered(Ticket(2), Ok(0));
    assert_eq!(stretch(&mut accesses, 70, &silent), Err(AccessError::WouldBlock(Nanos(170))));
    accesses.answered(Ticket(3), Ok(5));
    assert_eq!(stretch(&mut accesses, 80, &silent), Ok((7, 5)));
    assert_eq!(
        *silent.0.borrow(),
        [CAP, Access::Set(Property::Cc, 8), Access::Get(Property::Csts)]
    );
    assert_eq!(accesses.registers(), RegisterValues { cap: 7, cc: 8, csts: 5 });
    accesses.end_round();
    assert_eq!(
        stretch(&mut accesses, 90, &silent),
        Err(AccessError::WouldBlock(Nanos(190))),
        "the next round begins anew"
    );
}

#[test]
fn time_outs_and_refusals_name_the_access() {
    let (mut accesses, silent) = (Accesses::default(), Silent::default());
    assert!(stretch(&mut accesses, 10, &silent).is_err());
    let Err(AccessError::Failed(error)) = stretch(&mut accesses, 110, &silent) else {
        panic!("the deadline has passed")
    };
    assert_eq!(error.to_string(), "reading CAP: no answer after 100 ns");
    // A new round makes a new access; the old answer belongs to none.
    assert_eq!(stretch(&mut accesses, 120, &silent), Err(AccessError::WouldBlock(Nanos(220))));
    accesses.answered(Ticket(1), Ok(1));
    accesses.answered(Ticket(2), Ok(2));
    assert!(stretch(&mut accesses, 130, &silent).is_err());
    accesses.answered(Ticket(3), Err(nvme::Status::INVALID_FIELD));
    let Err(AccessError::Failed(error)) = stretch(&mut accesses, 140, &silent) else {
        panic!("it was refused")
    };
    assert_eq!(
        error.to_string(),
        "writing CC: the controller returned Invalid Field in Command (00h/02h)"
    );
}

/// A free status read is made at every step, an asynchronous one at intervals.
#[test]
fn csts_poll_rate_follows_its_cost() {
    let pace = PollTiming { timeout: Nanos(100), interval: Nanos(1000) };
    let host = Host::new(Controller::new(Script::default())).0;
    let mut status_poll = StatusPoll::default();
    assert!((0..3).all(|now| status_poll.poll(Nanos(now), pace, &host.registers())
        == Ok((Some(Csts::new()), Nanos::MAX))));

    let (mut status_poll, silent) = (StatusPoll::default(), Silent::default());
    assert_eq!(status_poll.poll(Nanos(0), pace, &silent), Ok((None, Nanos(100))));
    status_poll.answered(Ticket(1), Ok(1));
    assert_eq!(
        status_poll.poll(Nanos(40), pace, &silent),
        Ok((Some(Csts::new().with_rdy(true)), Nanos(1040)))
    );
    assert_eq!(status_poll.poll(Nanos(50), pace, &silent), Ok((None, Nanos(1040))));
    assert_eq!(silent.0.borrow().len(), 1);
    assert_eq!(status_poll.poll(Nanos(1040), pace, &silent), Ok((None, Nanos(1140))));
    assert!(matches!(
        status_poll.poll(Nanos(1140), pace, &silent),
        Err(PropertyError::NoAnswer { .. })
    ));
}

/// A host whose property accesses follow this plan.
fn attempt(plan: Plan) -> (Host, Result<Inventory, BringupError>) {
    let (mut host, config) = Host::new(Controller::new(Script::default()));
    host.wire = Wire::new(host.registers(), plan);
    let result = host.bring_up(config);
    (host, result)
}

const LATE: Nanos = Nanos::from_millis(5);

fn plans() -> impl Strategy<Value = Plan> {
    let late = prop_oneof![
        Just(Nanos::ZERO),
        (1..1000u64).prop_map(Nanos::from_micros),
        Just(Nanos::from_millis(200))
    ];
    (any::<u64>(), late, 0..300u64).prop_map(|(seed, late, echoed)| Plan {
        seed,
        late,
        echoed,
        ..Plan::default()
    })
}

/// Pauses in milliseconds, each followed by a fault.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Nothing,
    Fatal,
    Reset,
    Silence(bool),
    Removed,
    Back,
}

fn troubles() -> impl Strategy<Value = Vec<(u8, u16, Trouble)>> {
    let trouble = prop_oneof![
        2 => Just(Trouble::Nothing),
        3 => Just(Trouble::Fatal),
        3 => Just(Trouble::Reset),
        2 => any::<bool>().prop_map(Trouble::Silence),
        1 => Just(Trouble::Removed),
        1 => Just(Trouble::Back),
    ];
    prop::collection::vec((0..5u8, 0..1500u16, trouble), 1..12)
}

/// Plays a script and waits for its end. Returns the number of requests. The executor asserts that
/// no command is posted before the answers that allow it, and that buffers return only from a
/// stopped controller.
fn play(host: &mut Host, script: &[(u8, u16, Trouble)]) -> u64 {
    let mut posted = 0;
    for &(requests, millis, trouble) in script {
        posted = (0..requests)
            .fold(posted, |token, _| token + u64::from(host.dead.is_none() && host.submit(token)));
        host.controller.step(host.now);
        match trouble {
            Trouble::Fatal if host.controller.csts().rdy() => host.controller.break_down(),
            Trouble::Reset => host.recovery.iter_mut().for_each(|recovery| recovery.reset()),
            Trouble::Silence(silent) => host.controller.io_silent = silent,
            Trouble::Removed => host.controller.remove(),
            Trouble::Back if host.controller.csts().is_gone() => host.controller.restore_path(),
            _ => {}
        }
        host.run_until(host.now + Nanos::from_millis(millis.into()));
    }
    host.controller.io_silent = false;
    if host.controller.csts().is_gone() {
        host.controller.restore_path();
    }
    host.run_until(host.now + Nanos::from_secs(100));
    posted
}

/// Every request of a script ended once.
fn ended_once(host: &Host, posted: u64) -> Result<(), TestCaseError> {
    for token in 0..posted {
        let ends = host.ended.get(&token).map_or(&[][..], |ends| ends);
        prop_assert_eq!(
            ends.len(),
            1,
            "request {} of {}: {:?}, dead: {:?}",
            token,
            posted,
            ends,
            host.dead
        );
        let leaked = matches!(ends[0], End::Lost { leaked: true });
        prop_assert!(
            !leaked
                || matches!(
                    host.dead,
                    Some(Dead::Gone | Dead::NotStopped { .. } | Dead::Property { .. })
                ),
            "leaked"
        );
    }
    Ok(())
}

proptest! {
    /// Late and repeated answers do not change the result of bring-up, nor its commands.
    #[test]
    fn late_answers_reach_same_outcome(plan in plans()) {
        let (at_once, expected) = attempt(Plan::default());
        let (mut host, inventory) = attempt(plan);
        prop_assert_eq!(&inventory, &expected);
        prop_assert_eq!(&host.controller.asked, &at_once.controller.asked);
        prop_assert!(host.submit(1) && host.submit(2));
        host.run_until(host.now + SECOND);
        prop_assert_eq!((host.ended.len(), host.causes.len()), (2, 0));
        prop_assert_eq!(host.shut_down(&inventory.unwrap()), Ok(()));
        prop_assert!(!host.controller.csts().rdy());
    }

    /// With late answers only, every request ends and no buffer is leaked, if the host waits.
    #[test]
    fn late_answers_end_requests_once(plan in plans(), script in troubles()) {
        let (mut host, config) = Host::new(Controller::new(Script::default()));
        host.config.lost_timeout = Nanos::MAX;
        host.wire = Wire::new(host.registers(), plan);
        host.bring_up(config).unwrap();
        let posted = play(&mut host, &script);
        ended_once(&host, posted)?;
        prop_assert!(matches!(host.dead, None | Some(Dead::NotBroughtUp { .. })), "{:?}", host.dead);
        let leaked = host.ended.values().flatten().any(|end| *end == End::Lost { leaked: true });
        prop_assert!(!leaked);
    }

    /// Lost and rejected accesses lead to resets or a dead controller, and time advances.
    #[test]
    fn lost_answers_end_requests_once(plan in plans(), lost in 0..100u64, refused in 0..50u64, script in troubles()) {
        let (mut host, result) = attempt(plan);
        prop_assert!(result.is_ok());
        host.wire.set_plan(Plan { lost, refused, ..plan });
        let posted = play(&mut host, &script);
        ended_once(&host, posted)?;
    }
}

/// Each access of a bring-up in turn is lost or rejected: the error names it, within bounded time.
/// A status read next to a command is optional.
#[test]
fn every_bringup_access_may_fail() {
    for late in [Nanos::ZERO, LATE] {
        let (host, _) = attempt(Plan { late, ..Plan::default() });
        let accesses = host.wire.asked();
        let begun = accesses.iter().rposition(|access| matches!(access, Access::Set(..))).unwrap();
        for (nth, fate) in (0..accesses.len())
            .flat_map(|nth| [(nth, AccessFate::Lost), (nth, AccessFate::Refused)])
        {
            let (host, result) = attempt(Plan { late, nth: Some((nth, fate)), ..Plan::default() });
            assert!(host.now <= Nanos::from_secs(103), "access {nth} is waited for too long");
            let asked = host.wire.asked()[nth];
            match (result.map_err(|error| error.cause), fate) {
                (Ok(_), _) => assert!(
                    nth > begun,
                    "access {nth} ({asked}) was not answered, and nobody minds"
                ),
                (
                    Err(BringupCause::Property(PropertyError::NoAnswer { access, waited })),
                    AccessFate::Lost,
                ) => {
                    assert_eq!((access, waited >= SECOND), (asked, true));
                }
                (
                    Err(BringupCause::Property(PropertyError::Refused { access, .. })),
                    AccessFate::Refused,
                ) => assert_eq!(access, asked),
                (Err(cause), _) => panic!("access {nth} ({asked}), {fate:?}: {cause}"),
            }
        }
    }
}

/// The same for shutdown. Accesses before the stop are best effort.
#[test]
fn every_shutdown_access_may_fail() {
    let plan = Plan { late: LATE, ..Plan::default() };
    let reach = |nth| {
        let (mut host, inventory) = attempt(plan);
        let (inventory, before) = (inventory.unwrap(), host.wire.asked().len());
        host.wire
            .set_plan(Plan { nth: Option::map(nth, |(nth, fate)| (before + nth, fate)), ..plan });
        let begun = host.now;
        let result = host.shut_down(&inventory);
        (
            result,
            host.now - begun,
            host.wire.asked().split_off(before),
            host.controller.csts().rdy(),
        )
    };
    let (result, _, accesses, _) = reach(None);
    assert_eq!(result, Ok(()));
    let mut failed = 0;
    for (nth, fate) in
        (0..accesses.len()).flat_map(|nth| [(nth, AccessFate::Lost), (nth, AccessFate::Refused)])
    {
        let (result, took, asked, runs) = reach(Some((nth, fate)));
        assert!(took < Nanos::from_secs(20), "access {nth}");
        match result {
            Ok(()) => assert!(!runs),
            Err(ShutdownError::Property {
                error:
                    PropertyError::NoAnswer { access, .. } | PropertyError::Refused { access, .. },
                ..
            }) => {
                failed += 1;
                assert_eq!(access, asked[nth]);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed > 0);
}

/// A status read without an answer means a hung controller: it is reset, and given up if that fails
/// too.
#[test]
fn unanswered_csts_poll_resets() {
    let (mut host, _) = attempt(Plan { late: LATE, ..Plan::default() });
    assert!(host.submit(1));
    let next = host.wire.asked().len();
    host.wire.set_plan(Plan { late: LATE, nth: Some((next, AccessFate::Lost)), ..Plan::default() });
    host.run_until(host.now + Nanos::from_secs(3));
    let [
        cause @ ResetCause::Property(PropertyError::NoAnswer {
            access: Access::Get(Property::Csts),
            ..
        }),
    ] = &host.causes[..]
    else {
        panic!("{:?}", host.causes)
    };
    assert!(cause.is_unanswered());
    let said = cause.to_string();
    assert!(
        said.starts_with("the controller's status cannot be read: reading CSTS: no answer after"),
        "{said}"
    );
    assert_eq!((&host.dead, host.ended[&1].len()), (&None, 1));
    host.wire.set_plan(Plan { late: LATE, lost: 1000, ..Plan::default() });
    host.run_until(host.now + Nanos::from_secs(10));
    assert!(
        matches!(host.dead, Some(Dead::Property { cause: ResetCause::Property(_), .. })),
        "{:?}",
        host.dead
    );
}

/// A host that waits for a silent controller recovers it when it answers again.
#[test]
fn returning_controller_is_brought_up() {
    let (mut host, config) = Host::new(Controller::new(Script::default()));
    host.config.lost_timeout = Nanos::MAX;
    host.wire = Wire::new(host.registers(), Plan { late: LATE, ..Plan::default() });
    host.bring_up(config).unwrap();
    host.wire.set_plan(Plan { late: LATE, lost: 1000, ..Plan::default() });
    host.run_until(host.now + Nanos::from_secs(60));
    assert_eq!((host.losses, &host.dead), (1, &None));
    host.wire.set_plan(Plan { late: LATE, ..Plan::default() });
    host.run_until(host.now + Nanos::from_secs(5));
    assert!(host.submit(1));
    host.run_until(host.now + SECOND);
    assert_eq!(host.ended[&1], [End::Done(nvme::Status::SUCCESS)]);
}

/// A controller that answers status reads but cannot be stopped is retried at intervals.
#[test]
fn refused_stop_does_not_spin() {
    struct Stubborn(crate::testing::controller::MemRegisters);
    impl Properties for Stubborn {
        fn ask(&self, access: Access) -> AccessPoll {
            match access {
                Access::Set(..) => AccessPoll::Ready(Err(nvme::Status::INVALID_FIELD)),
                get => self.0.ask(get),
            }
        }
    }
    let (mut host, config) = Host::new(Controller::new(Script::default()));
    host.config.lost_timeout = Nanos::MAX;
    host.bring_up(config).unwrap();
    host.controller.break_down();
    // The executor asserts that time passes.
    let stubborn = Stubborn(host.registers());
    host.run_until_with(host.now + Nanos::from_secs(100), &stubborn);
    assert_eq!((host.losses, &host.dead), (1, &None));
    host.run_until(host.now + SECOND);
    assert!(host.submit(1));
    host.run_until(host.now + SECOND);
    assert_eq!(host.ended[&1], [End::Done(nvme::Status::SUCCESS)]);
}

/// The scripts above reach every outcome of missing answers.
#[test]
fn lost_answers_reach_every_outcome() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for seed in 0..200 {
        let plan = Plan { seed, late: LATE, ..Plan::default() };
        let (mut host, _) = attempt(plan);
        host.wire.set_plan(Plan { lost: seed % 100, refused: seed % 50, ..plan });
        play(&mut host, &troubles().new_tree(&mut runner).unwrap().current());
        let name = |debug: String| debug.split([' ', '(']).next().unwrap_or_default().to_owned();
        reached.extend(host.causes.iter().map(|cause| name(format!("{cause:?}"))));
        reached.extend(host.dead.iter().map(|dead| format!("dead:{}", name(format!("{dead:?}")))));
        reached.extend(
            (host.dead.is_none() && !host.causes.is_empty()).then(|| "restored".to_owned()),
        );
    }
    let expected = [
        "Requested",
        "Fatal",
        "Gone",
        "Property",
        "dead:Gone",
        "dead:NotBroughtUp",
        "dead:Property",
        "restored",
    ];
    assert_eq!(reached, BTreeSet::from(expected.map(str::to_owned)));
}

/// Number of runs with late answers that violate an invariant.
fn caught(mutant: Option<Mutant>) -> usize {
    let script = [
        (3, 40, Trouble::Fatal),
        (3, 700, Trouble::Reset),
        (3, 900, Trouble::Fatal),
        (3, 100, Trouble::Nothing),
    ];
    let breaks = |seed: &u64| {
        let plan = Plan { seed: *seed, late: LATE, echoed: 500, mutant, ..Plan::default() };
        let run = || {
            let (mut host, result) = attempt(plan);
            result.unwrap();
            let posted = play(&mut host, &script);
            ended_once(&host, posted).unwrap();
            assert_eq!(host.dead, None);
        };
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    (0..60).filter(breaks).count()
}

/// Answers are repeated in all of these runs, without effect.
#[test]
fn stale_answers_change_nothing() {
    assert_eq!(caught(None), 0);
}

/// Mutants: one cannot distinguish stale answers, one continues before the answer.
#[test]
fn transport_breaking_its_contract_is_caught() {
    assert!(caught(Some(Mutant::OneTicket)) > 10);
    assert!(caught(Some(Mutant::Hasty)) > 10);
}
