use std::collections::HashMap;

use nvme::identify::{DescriptorList, ExtendedFormat, NamespaceList};
use nvme::opcode::admin;
use nvme::regs::{self, Cap, Cc, Csts};
use nvme::{Nsid, Registers, Status, Vector};

use super::*;
use crate::testing::controller::{Controller, Script, namespace};
use crate::testing::host::Host;
use crate::{ProtocolViolation, ShutdownError, UnsupportedNamespace};

fn attempt(script: Script) -> (Host, Result<Inventory, BringupError>) {
    let (mut host, config) = Host::new(Controller::new(script));
    let result = host.bring_up(config);
    (host, result)
}

fn fails(script: Script) -> (BringupPhase, BringupCause) {
    let (host, result) = attempt(script);
    let error = result.unwrap_err();
    // Every wait has a deadline, and none of them is longer than an admin command or CAP.TO (1 s
    // each), twice.
    assert!(host.now <= Nanos::from_secs(103), "{error}");
    (error.phase, error.cause)
}

#[test]
fn bringup_follows_the_specification() {
    let (mut host, result) = attempt(Script::default());
    let inventory = result.unwrap();
    let (identify, create) = (admin::IDENTIFY, |opcode| (opcode, 0));
    let mut expected = vec![(identify, 1), (identify, 6), (identify, 2)];
    expected.extend([(identify, 0), (identify, 5), (identify, 3)].repeat(2));
    expected.extend([(admin::SET_FEATURES, 0x07), (admin::SET_FEATURES, 0x0b)]);
    expected.extend([create(admin::CREATE_CQ), create(admin::CREATE_SQ)].repeat(2));
    assert_eq!(host.controller.asked, expected);

    assert_eq!(inventory.model.model, "Scripted");
    assert_eq!(
        inventory.namespaces.iter().map(|n| (n.nsid.0, n.block_log2)).collect::<Vec<_>>(),
        [(1, 9), (3, 12)]
    );
    assert_eq!(
        inventory.queues.iter().map(|q| (q.id.0, q.sizes.tags, q.vector)).collect::<Vec<_>>(),
        [(1, 8, Some(Vector(1))), (2, 8, None)]
    );
    let cc = Cc::from_bits(host.controller.registers.read32(regs::CC));
    assert!(cc.en() && cc.iosqes() == 6 && cc.iocqes() == 4);

    // And its queues work.
    assert!(host.submit(1) && host.submit(2));
    host.controller.step(host.now);
    host.reap();
    assert_eq!(host.ended.len(), 2);
    assert_eq!(host.shut_down(&inventory), Ok(()));
    assert_eq!(
        host.controller.asked[expected.len()..],
        [
            (admin::DELETE_SQ, 0),
            (admin::DELETE_SQ, 0),
            (admin::DELETE_CQ, 0),
            (admin::DELETE_CQ, 0)
        ]
    );
    assert!(!host.controller.csts().rdy());
}

/// The executor was suspended or too busy: the controller had no time to answer either.
#[test]
fn late_steps_extend_deadlines() {
    let millis = Nanos::from_millis;
    let slow = Script {
        ready_after: millis(100),
        stop_after: millis(100),
        shutdown_after: millis(100),
        thinks: millis(30),
        ..Script::default()
    };
    let (mut host, config) = Host::new(Controller::new(slow));
    host.stands_still = Nanos::from_secs(5);
    let inventory = host.bring_up(config).unwrap();
    assert_eq!(host.shut_down(&inventory), Ok(()));
    assert!(!host.controller.csts().rdy());
    // A controller that never answers is still an error.
    let identify = Script { silent: vec![(admin::IDENTIFY, 1)], ..Script::default() };
    for never in [identify, Script { ready_after: Nanos::MAX, ..Script::default() }] {
        let (mut host, config) = Host::new(Controller::new(never));
        host.stands_still = Nanos::from_secs(5);
        let cause = host.bring_up(config).unwrap_err().cause;
        assert!(
            matches!(cause, BringupCause::NoReply { .. } | BringupCause::NotReady { .. }),
            "{cause}"
        );
    }
}

/// In units of KAS. Not set if the controller has no timer, or rejects it.
#[test]
fn keep_alive_is_set_where_supported() {
    let attempt = |kas, wanted, refused: bool| {
        let mut script = Script::default();
        script.identify.kas = kas;
        script
            .refuse
            .extend(refused.then_some(((admin::SET_FEATURES, 0x0f), Status::INVALID_FIELD)));
        let (mut host, config) = Host::new(Controller::new(script));
        let inventory = host
            .bring_up(BringupConfig { keep_alive: Nanos::from_millis(wanted), ..config })
            .unwrap();
        let started =
            host.controller.asked.iter().position(|asked| *asked == (admin::SET_FEATURES, 0x0f));
        assert!(
            started.is_none_or(|at| at + 1 == host.controller.asked.len()),
            "it runs while queues are made: {:x?}",
            host.controller.asked
        );
        (inventory.keep_alive, started.is_some())
    };
    assert_eq!(attempt(2, 250, false), (Nanos::from_millis(400), true));
    assert_eq!(attempt(1, 0, false), (Nanos::ZERO, false));
    assert_eq!(attempt(0, 250, false), (Nanos::ZERO, false));
    assert_eq!(attempt(1, 250, true), (Nanos::ZERO, true));
}

/// Configured before the first I/O queue, so no doorbell has moved. If the controller does not
/// support it, rejects it, or the host has no memory for it, registers are used.
#[test]
fn shadow_doorbells_need_both_sides() {
    let attempt = |offered: bool, wanted, refused: bool| {
        let mut script = Script::default();
        script.identify.oacs =
            if offered { nvme::identify::Controller::OACS_DOORBELL_BUFFERS } else { 0 };
        script
            .refuse
            .extend(refused.then_some(((admin::DOORBELL_BUFFER_CONFIG, 0), Status::INVALID_FIELD)));
        let (mut host, config) = Host::new(Controller::new(script));
        let inventory =
            host.bring_up(BringupConfig { doorbells: wanted, ..config.clone() }).unwrap();
        let asked = |host: &Host| {
            host.controller
                .asked
                .iter()
                .filter(|asked| asked.0 == admin::DOORBELL_BUFFER_CONFIG)
                .count()
        };
        if let Some(at) =
            host.controller.asked.iter().position(|asked| asked.0 == admin::DOORBELL_BUFFER_CONFIG)
        {
            assert_eq!(
                host.controller.asked[at + 1],
                (admin::CREATE_CQ, 0),
                "{:x?}",
                host.controller.asked
            );
        }
        assert_eq!(inventory.shadow_doorbells_supported, offered);
        let first = asked(&host);
        // After a reset it has forgotten them.
        host.admin.exclusive().abandon();
        host.admin.exclusive().reopen();
        let again = BringupConfig {
            doorbells: wanted,
            queues: WantedQueues::Existing(inventory.queues.clone()),
            ..config
        };
        assert_eq!(
            host.bring_up(again).map(|again| again.shadow_doorbells_active),
            Ok(inventory.shadow_doorbells_active)
        );
        assert_eq!(asked(&host), 2 * first);
        (inventory.shadow_doorbells_active, first)
    };
    let pages = Some((0x1_0000, 0x1_1000));
    assert_eq!(attempt(true, pages, false), (true, 1));
    assert_eq!(attempt(true, pages, true), (false, 1));
    assert_eq!(attempt(false, pages, false), (false, 0));
    assert_eq!(attempt(true, None, false), (false, 0));
}

#[test]
fn multipath_fields_are_read() {
    let mut script = Script::default();
    (
        script.identify.cntlid,
        script.identify.anatt,
        script.identify.anagrpmax,
        script.identify.cqt,
    ) = (7, 12, 3, 40);
    script.identify.subnqn = nvme::Text::nul_terminated("nqn.2026-11.test:a");
    script.namespaces[0].1.nmic = 1;
    script.namespaces[0].1.anagrpid = 3;
    let without = attempt(script.clone()).1.unwrap().subsystem;
    assert_eq!(
        (without.ana_transition, without.ana_groups),
        (None, 0),
        "CMIC says that there is no ANA"
    );
    script.identify.cmic = nvme::identify::MultiPath::new().with_ana(true);
    let inventory = attempt(script).1.unwrap();
    let subsystem = &inventory.subsystem;
    assert_eq!(
        (subsystem.nqn.as_str(), subsystem.controller, subsystem.ana_groups),
        ("nqn.2026-11.test:a", 7, 3)
    );
    assert_eq!(
        (subsystem.ana_transition, subsystem.quiesce_time),
        (Some(Nanos::from_secs(12)), Nanos::from_millis(40))
    );
    let sharing: Vec<_> = inventory.namespaces.iter().map(|n| (n.shared, n.ana_group)).collect();
    assert_eq!(sharing, [(true, 3), (false, 0)]);
}

/// Any initial state: enabled, fatal, or about to become ready.
#[test]
fn enabled_controller_is_disabled_first() {
    for (csts, ready) in [
        (Csts::new().with_rdy(true), true),
        (Csts::new().with_cfs(true).with_rdy(true), true),
        (Csts::new(), false),
    ] {
        let (mut host, config) = Host::new(Controller::new(Script::default()));
        let (asq, acq, ..) = host.controller.memory.rings(config.admin_sizes);
        host.controller.registers.write32(regs::AQA, Aqa::of(16, 16).into_bits());
        host.controller.registers.write64(regs::ASQ, asq);
        host.controller.registers.write64(regs::ACQ, acq);
        host.controller.registers.write32(regs::CC, Cc::new().with_en(true).into_bits());
        if ready {
            host.controller.registers.write32(regs::CSTS, csts.into_bits());
        }
        assert!(host.bring_up(config).is_ok());
    }
}

/// CSTS is read before the controller has noticed CC.EN = 1.
#[test]
fn old_fatal_status_is_waited_out() {
    let (mut host, config) = Host::new(Controller::new(Script::default()));
    host.controller.break_down();
    assert!(host.bring_up(config).is_ok());
    // A controller that never becomes ready is still an error.
    let (mut host, config) =
        Host::new(Controller::new(Script { ready_after: Nanos::MAX, ..Script::default() }));
    host.controller.break_down();
    let error = host.bring_up(config).unwrap_err();
    assert!(matches!(error.cause, BringupCause::NotReady { .. }), "{error}");
}

#[test]
fn slow_ready_waits_until_the_timeout() {
    let slow = Script { ready_after: Nanos::from_millis(900), ..Script::default() };
    assert!(attempt(slow).1.is_ok());
    let never = Script { ready_after: Nanos::MAX, ..Script::default() };
    let (phase, cause) = fails(never);
    assert_eq!(phase, BringupPhase::Enable);
    assert!(
        matches!(cause, BringupCause::NotReady { waited } if waited >= Nanos::from_secs(1)),
        "{cause:?}"
    );

    let (mut host, config) =
        Host::new(Controller::new(Script { stop_after: Nanos::MAX, ..Script::default() }));
    let inventory = host.bring_up(config.clone()).unwrap();
    assert!(matches!(host.shut_down(&inventory), Err(ShutdownError::NotStopped { .. })));
    let error = host.bring_up(config).unwrap_err();
    assert!(
        matches!(
            error,
            BringupError {
                phase: BringupPhase::Disable,
                cause: BringupCause::NotStopped { .. },
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn refusals_name_step_and_status() {
    let needed = [
        ((admin::IDENTIFY, 1), BringupPhase::IdentifyController),
        ((admin::IDENTIFY, 2), BringupPhase::ActiveNamespaces),
        ((admin::IDENTIFY, 0), BringupPhase::IdentifyNamespace(Nsid(1))),
        ((admin::SET_FEATURES, 0x07), BringupPhase::NumberOfQueues),
        ((admin::CREATE_CQ, 0), BringupPhase::CreateCq(QueueId(1))),
        ((admin::CREATE_SQ, 0), BringupPhase::CreateSq(QueueId(1))),
    ];
    for (key, phase) in needed {
        let status = Status::INTERNAL_ERROR;
        let refuse = Script { refuse: [(key, status)].into(), ..Script::default() };
        assert_eq!(fails(refuse), (phase, BringupCause::Rejected { status }));
        let silent = Script { silent: vec![key], ..Script::default() };
        assert!(matches!(fails(silent), (p, BringupCause::NoReply { .. }) if p == phase));
    }
    // Optional: an older controller rejects them.
    for key in [
        (admin::IDENTIFY, 6),
        (admin::IDENTIFY, 5),
        (admin::IDENTIFY, 3),
        (admin::SET_FEATURES, 0x0b),
    ] {
        for status in [Status::INVALID_FIELD, Status::INTERNAL_ERROR.with_dnr()] {
            let refuse = Script { refuse: [(key, status)].into(), ..Script::default() };
            assert!(attempt(refuse).1.is_ok());
        }
    }
}

/// A transient error is not "unsupported": after a reset the namespaces would lack their
/// identifiers, and look like others.
#[test]
fn transient_refusal_fails_bringup() {
    let steps = [
        (6, BringupPhase::IdentifyCommandSet),
        (5, BringupPhase::IdentifyNamespaceCommandSet(Nsid(1))),
        (3, BringupPhase::NamespaceDescriptors(Nsid(1))),
    ];
    for (cns, phase) in steps {
        let status = Status::INTERNAL_ERROR;
        let refuse =
            Script { refuse: [((admin::IDENTIFY, cns), status)].into(), ..Script::default() };
        assert_eq!(fails(refuse), (phase, BringupCause::Rejected { status }));
    }
}

/// A violation is reported as such at once: a stopped queue would yield no reply.
#[test]
fn protocol_violation_is_no_timeout() {
    let steps = [
        ((admin::IDENTIFY, 1), BringupPhase::IdentifyController),
        ((admin::IDENTIFY, 3), BringupPhase::NamespaceDescriptors(Nsid(1))),
        ((admin::CREATE_SQ, 0), BringupPhase::CreateSq(QueueId(1))),
    ];
    for (key, phase) in steps {
        let (host, result) = attempt(Script { astray: vec![key], ..Script::default() });
        let error = result.unwrap_err();
        let told = matches!(
            error.cause,
            BringupCause::Violation(ProtocolViolation::UnknownCommand {
                queue: QueueId::ADMIN,
                ..
            })
        );
        assert!(told && error.phase == phase, "{error}");
        assert!(host.now < Nanos::from_secs(101), "it was waited for until {}", host.now);
        assert!(error.to_string().contains("which is not in flight"), "{error}");
    }
}

/// Each reply is in time, but there are 4,500.
#[test]
fn bringup_always_ends() {
    let namespaces: Vec<_> =
        (1..=1500).map(|n| (Nsid(n), namespace(8, 9), DescriptorList::default())).collect();
    let (host, result) =
        attempt(Script { namespaces, thinks: Nanos::from_millis(900), ..Script::default() });
    let error = result.unwrap_err();
    assert!(
        matches!(error.cause, BringupCause::TooLong { waited } if waited >= Nanos::from_secs(60)),
        "{error}"
    );
    assert!(host.now < Nanos::from_secs(100 + 62), "{}", host.now);
}

#[test]
fn errors_show_the_registers() {
    let refuse = Script {
        refuse: [((admin::CREATE_CQ, 0), Status::INVALID_QUEUE_SIZE)].into(),
        ..Script::default()
    };
    let error = attempt(refuse).1.unwrap_err().to_string();
    let expected = "the controller cannot be brought up; Create I/O Completion Queue 1: the controller rejected the command: Invalid Queue Size (01h/02h) \
                    (CAP 0x000000200201003f, CC 0x00460001, CSTS 0x00000001)";
    assert_eq!(error, expected);
}

#[test]
fn fewer_granted_queues_are_taken() {
    let (_, result) = attempt(Script { queues: 1, ..Script::default() });
    let inventory = result.unwrap();
    assert_eq!((inventory.granted, inventory.queues.len()), ((1, 1), 1));
}

#[test]
fn unusable_namespaces_are_listed() {
    let mut script = Script::default();
    script.namespaces[0].1.lbaf[0].set_ms(8);
    script.namespaces.push((Nsid(7), namespace(0, 9), DescriptorList::default()));
    let inventory = attempt(script).1.unwrap();
    assert_eq!(inventory.namespaces.len(), 1);
    assert!(matches!(
        inventory.refused[..],
        [
            UnsupportedNamespace::Metadata { nsid: Nsid(1), .. },
            UnsupportedNamespace::Inactive { nsid: Nsid(7) }
        ]
    ));
}

/// From the NVM command set's page (CNS 05h), which controllers from before 2.0 do not have.
#[test]
fn extended_formats_are_refused_by_name() {
    let mut script = Script::default();
    (script.namespaces[0].1.dps, script.namespaces[0].1.lbaf[0]) =
        (2, script.namespaces[0].1.lbaf[0].with_ms(16));
    let guard = ExtendedFormat::new().with_pif(1).with_sts(8);
    script.extended = [(Nsid(1), guard), (Nsid(3), ExtendedFormat::new().with_sts(4))].into();
    let refused = |script: Script| {
        attempt(script).1.unwrap().refused.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let both = refused(script.clone());
    assert!(
        both[0].contains("namespace 1") && both[0].contains("type 2, 32b Guard (DPS, ELBAF 0)"),
        "{both:?}"
    );
    assert!(
        both[1].contains("namespace 3") && both[1].contains("a storage tag of 4 bits"),
        "{both:?}"
    );
    script.version = Version::new().with_major(1).with_minor(4);
    let (host, result) = attempt(script.clone());
    let inventory = result.unwrap();
    assert!(
        !host.controller.asked.contains(&(admin::IDENTIFY, 5))
            && !host.controller.asked.contains(&(admin::IDENTIFY, 6))
    );
    assert_eq!(inventory.namespaces.iter().map(|n| n.nsid).collect::<Vec<_>>(), [Nsid(3)]);
    assert!(
        inventory.refused[0].to_string().contains("type 2, 16b Guard"),
        "{:?}",
        inventory.refused
    );
}

/// Version 1.0, or none: CNS 02h is never sent. A controller that rejects it is scanned by number
/// too.
#[test]
fn namespaces_without_a_list_are_numbered() {
    let version = |major, minor| Version::new().with_major(major).with_minor(minor);
    let refuse: HashMap<_, _> = [((admin::IDENTIFY, 2), Status::INVALID_FIELD)].into();
    for (version, refuse) in [
        (Version::new(), HashMap::new()),
        (version(1, 0), HashMap::new()),
        (version(1, 1), refuse.clone()),
        (version(1, 2), refuse.clone()),
        (version(2, 1), refuse),
    ] {
        for inactive_is_zeroes in [false, true] {
            let asks_first = !refuse.is_empty();
            let (host, result) = attempt(Script {
                version,
                refuse: refuse.clone(),
                inactive_is_zeroes,
                ..Script::default()
            });
            let inventory = result.unwrap();
            assert_eq!(
                inventory.namespaces.iter().map(|n| n.nsid.0).collect::<Vec<_>>(),
                [1, 3],
                "{version}"
            );
            assert_eq!(inventory.refused, []);
            let asked = |cns| {
                host.controller
                    .asked
                    .iter()
                    .filter(|asked| **asked == (admin::IDENTIFY, cns))
                    .count()
            };
            assert_eq!(
                (asked(0), asked(2)),
                (8, usize::from(asks_first)),
                "each up to NN, {version}"
            );
        }
    }
}

/// A late reply could be taken for another command's, and its page is still written to: the
/// controller is stopped first.
#[test]
fn an_unanswered_list_is_done_without() {
    let old = Script {
        version: Version::new().with_major(1).with_minor(2),
        silent: vec![(admin::IDENTIFY, 2)],
        ..Script::default()
    };
    let (mut host, config) = Host::new(Controller::new(old.clone()));
    let inventory = host.bring_up(config).unwrap();
    assert_eq!(inventory.namespaces.iter().map(|n| n.nsid.0).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(
        host.controller.asked.iter().filter(|asked| **asked == (admin::IDENTIFY, 2)).count(),
        1,
        "once"
    );
    // After a reset as well.
    host.controller.break_down();
    host.run_until(host.now + Nanos::from_secs(5));
    assert_eq!((&host.dead, host.controller.csts().cfs()), (&None, false));
    assert!(host.recovery.as_ref().unwrap().is_running());
    // A controller that stays silent, or a newer one, is an error.
    let version = Version::new().with_major(1).with_minor(3);
    for script in [
        Script { silent: vec![(admin::IDENTIFY, 2), (admin::IDENTIFY, 0)], ..old.clone() },
        Script { version, ..old },
    ] {
        assert!(matches!(attempt(script).1.unwrap_err().cause, BringupCause::NoReply { .. }));
    }
}

#[test]
fn long_namespace_lists_are_read_whole() {
    let namespaces: Vec<_> =
        (1..=1500).map(|n| (Nsid(n), namespace(8, 9), DescriptorList::default())).collect();
    let inventory = attempt(Script { namespaces, ..Script::default() }).1.unwrap();
    assert_eq!(inventory.namespaces.len(), 1500);
    // FFFFFFFEh, the highest identifier, is alone in its list.
    let namespaces: Vec<_> = (0..1025)
        .map(|n| (Nsid(u32::MAX - 1025 + n), namespace(8, 9), DescriptorList::default()))
        .collect();
    let inventory = attempt(Script { namespaces, ..Script::default() }).1.unwrap();
    assert_eq!(inventory.namespaces.last().unwrap().nsid, Nsid(u32::MAX - 1));
}

/// A list that repeats itself would be read for ever; one out of order is invalid too.
#[test]
fn wrong_namespace_lists_are_refused() {
    let full = NamespaceList::of((1..=1024).map(Nsid));
    let (phase, cause) = fails(Script { list: Some(full), ..Script::default() });
    assert_eq!(
        (phase, cause),
        (
            BringupPhase::ActiveNamespaces,
            BringupCause::BadNamespaceList { nsid: Nsid(1), after: Nsid(1024) }
        )
    );
    let (_, cause) =
        fails(Script { list: Some(NamespaceList::of([Nsid(2), Nsid(2)])), ..Script::default() });
    assert_eq!(cause, BringupCause::BadNamespaceList { nsid: Nsid(2), after: Nsid(2) });
}

#[test]
fn gone_controller_is_refused_at_once() {
    let mut gone = Controller::new(Script::default());
    gone.remove();
    let (mut host, config) = Host::new(gone);
    let error = host.bring_up(config).unwrap_err();
    assert_eq!((error.phase, error.cause), (BringupPhase::Capabilities, BringupCause::Gone));
    let cap = Script::default().cap.with_css(Cap::CSS_ADMIN_ONLY);
    assert!(matches!(
        fails(Script { cap, ..Script::default() }),
        (BringupPhase::Capabilities, BringupCause::Unusable(_))
    ));
}
