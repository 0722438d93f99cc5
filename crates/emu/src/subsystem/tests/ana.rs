//! ANA states, their log page and their events.

use super::*;

fn listen(host: &mut Host<TestPort>) {
    let config = AsyncEventConfig::new().with_ana_change(true);
    assert!(
        host.admin(SetFeatures::new(fid::ASYNC_EVENT_CONFIG, config).to_sqe())
            .status()
            .is_success()
    );
    host.post_admin(nvme::admin::async_event_request());
    host.post_admin(nvme::admin::async_event_request());
    host.settle();
}

fn events(host: &mut Host<TestPort>) -> Vec<AsyncEvent> {
    host.settle();
    host.reap_admin().iter().map(|cqe| AsyncEvent::from_bits(cqe.result)).collect()
}

#[test]
fn ana_state_affects_its_path_only() {
    let (subsystem, mut hosts) = two();
    let [(a, on_a), (b, on_b)] = &mut hosts[..] else { panic!() };
    let (at, other) = (a.fill(1), b.fill(2));
    for state in AnaState::ALL {
        subsystem.control().apply(0, Change::Ana { group: None, state }).unwrap();
        let expected = state.refusal().unwrap_or(Status::SUCCESS);
        for sqe in [
            read(0, 1, at, 512),
            write(0, 1, at, 512),
            nvme::io::flush(Nsid(1)),
            nvme::io::flush(Nsid::ALL),
        ] {
            assert_eq!(a.io(on_a, sqe).unwrap().kind(), expected, "{state} {sqe:?}");
        }
        assert_eq!(b.io(on_b, read(0, 1, other, 512)), Some(Status::SUCCESS));
        let page: NamespacePage = a.identify(cns::NAMESPACE, 1);
        assert_eq!((page.nsze, page.nuse > 0), (2048, state.is_accessible()), "{state}");
    }
    // Errors of the command itself take precedence over the ANA state, as they occur on every path.
    assert_eq!(
        a.io(on_a, Sqe { opcode: 0x7f, nsid: 1, ..Sqe::default() }).unwrap().kind(),
        Status::INVALID_OPCODE
    );
    assert_eq!(a.io(on_a, read(9999, 1, at, 512)).unwrap().kind(), Status::LBA_OUT_OF_RANGE);
}

#[test]
fn state_change_fails_commands_in_service() {
    let (subsystem, mut hosts) = two();
    let (a, on_a) = &mut hosts[0];
    let at = a.fill(1);
    a.send(on_a, write(0, 1, at, 512));
    subsystem
        .control()
        .apply(0, Change::Ana { group: None, state: AnaState::INACCESSIBLE })
        .unwrap();
    a.run_until(a.now + MS);
    assert_eq!(a.reap(on_a, 9)[0].status().kind(), Status::ANA_INACCESSIBLE);
    let (b, on_b) = &mut hosts[1];
    let to = b.fill(5);
    assert_eq!(b.io(on_b, read(0, 1, to, 512)), Some(Status::SUCCESS));
    assert_eq!(b.port.memory.bytes(to, 512), [0; 512]);
}

#[test]
fn groups_change_one_by_one() {
    let mut subsystem = Subsystem::new(NQN).unwrap();
    subsystem.share(mem(1 << 20, 512)).unwrap();
    subsystem.share(mem(1 << 20, 512).with_ana_group(2)).unwrap();
    let mut hosts = hosts_of(&mut subsystem, vec![config(1)]);
    let (host, pair) = &mut hosts[0];
    let at = host.fill(1);
    subsystem
        .control()
        .apply(0, Change::Ana { group: Some(2), state: AnaState::PERSISTENT_LOSS })
        .unwrap();
    let on = |nsid| Sqe { nsid, ..read(0, 1, at, 512) };
    assert_eq!(host.io(pair, on(1)), Some(Status::SUCCESS));
    assert_eq!(host.io(pair, on(2)).unwrap().kind(), Status::ANA_PERSISTENT_LOSS);
    assert_eq!(host.io(pair, nvme::io::flush(Nsid(1))), Some(Status::SUCCESS));
    assert_eq!(
        host.io(pair, nvme::io::flush(Nsid::ALL)).unwrap().kind(),
        Status::ANA_PERSISTENT_LOSS
    );
    let log = host.ana_log(0);
    assert_eq!(
        (log.change_count, log.state_of(1), log.state_of(2)),
        (1, Some(AnaState::OPTIMIZED), Some(AnaState::PERSISTENT_LOSS))
    );
    let listed: Vec<_> = log
        .groups
        .iter()
        .map(|(group, ids)| (group.group, group.change_count, ids.clone()))
        .collect();
    assert_eq!(listed, [(1, 0, vec![Nsid(1)]), (2, 1, vec![Nsid(2)])]);
    let groups = host.ana_log(GROUPS_ONLY);
    assert!(groups.groups.iter().all(|(group, ids)| group.namespaces == 0 && ids.is_empty()));
    assert_eq!(groups.groups.len(), 2);
}

/// One event, and no more until the log page was read, which reports all changes so far.
#[test]
fn one_event_until_log_is_read() {
    let (subsystem, mut hosts) = two();
    let (a, _) = &mut hosts[0];
    listen(a);
    let control = subsystem.control();
    let change = |state| control.apply(0, Change::Ana { group: None, state }).unwrap();
    change(AnaState::OPTIMIZED);
    assert_eq!(events(a), [], "it is as it was");
    change(AnaState::NON_OPTIMIZED);
    let told = events(a);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].event_type(), told[0].info(), told[0].lid()),
        (event_type::NOTICE, notice::ANA_CHANGE, lid::ANA)
    );
    change(AnaState::CHANGE);
    change(AnaState::INACCESSIBLE);
    assert_eq!(events(a), []);
    let log = a.ana_log(0);
    assert_eq!(
        (log.change_count, log.state_of(1), log.groups[0].0.change_count),
        (3, Some(AnaState::INACCESSIBLE), 3)
    );
    // The two changes after the report raise one event, which the read has unmasked.
    a.settle();
    assert_eq!(a.events.len() + events(a).len(), 1);
    // The other controller raises no event, as its state has not changed.
    assert_eq!((events(&mut hosts[1].0), hosts[1].0.ana_log(0).change_count), (vec![], 0));
}

#[test]
fn ana_events_need_a_request() {
    let (subsystem, mut hosts) = two();
    let (a, _) = &mut hosts[0];
    a.post_admin(nvme::admin::async_event_request());
    subsystem
        .control()
        .apply(0, Change::Ana { group: None, state: AnaState::INACCESSIBLE })
        .unwrap();
    assert_eq!(events(a), []);
    a.set_cc(nvme::regs::Cc::new());
    a.settle();
    a.enable();
    let log = a.ana_log(0);
    assert_eq!(
        (log.change_count, log.state_of(1)),
        (0, Some(AnaState::INACCESSIBLE)),
        "the state outlives the reset, its history does not"
    );
}

#[test]
fn a_script_happens_at_its_times() {
    let (subsystem, mut hosts) = two();
    let script = "at 2ms path 0 ana inaccessible; at 5ms path 0 ana optimized\nat 3ms path 1 ana non-optimized";
    let script: Script = script.parse().unwrap();
    let start = hosts[0].0.now + MS;
    subsystem.control().play(&script, start).unwrap();
    hosts.iter_mut().for_each(|(host, _)| host.now = start);
    let mut states = Vec::new();
    for millis in [1, 2, 3, 4, 5] {
        for (host, _) in &mut hosts {
            host.run_until(start + Nanos::from_millis(millis));
        }
        states.push([0, 1].map(|n: usize| hosts[n].0.ana_log(0).state_of(1).unwrap()));
    }
    let (best, second, none) =
        (AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED, AnaState::INACCESSIBLE);
    assert_eq!(
        states,
        [[best, best], [none, best], [none, second], [none, second], [best, second]]
    );
    // Each controller reports the time of its next change.
    let (host, _) = &mut hosts[0];
    let due = host.now + Nanos::from_millis(7);
    host.device.change(due, Change::Delay(MS));
    host.device.step(host.now);
    assert_eq!(host.settle().next, Some(due));
    let stranger: Script = "at 1s path 0 lost; at 1s path 2 lost".parse().unwrap();
    let refused = subsystem.control().play(&stranger, Nanos::ZERO).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is no path 2: the subsystem has 2 controllers, counted from 0"
    );
    host.run_until(host.now + Nanos::from_secs(2));
    assert!(host.csts().rdy(), "nothing of a script that is refused happens");
}
