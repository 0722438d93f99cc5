use nvme::regs::{self, Aqa, Cap, Cc, Crto, Csts, Version};
use nvme::{CqSlots, Doorbells, QueueId, Registers, Status, Vector};
use proptest::prelude::*;
use units::Nanos;

use crate::testing::{BASE, Host, TestPort, exercise, mem, read, write};
use crate::{Change, Config, Fault, FaultInjector, FaultPlan, Profile, Service};

fn host(profile: Profile) -> Host<TestPort> {
    Host::new(Config::new(profile), vec![mem(1 << 20, 512), mem(8 << 20, 4096)]).ready()
}

/// 100 µs for every command.
fn slow() -> Profile {
    let fixed = Service { base: Nanos::from_micros(100), ..Service::default() };
    Profile { read: fixed, write: fixed, flush: fixed, moves_data: true, ..Profile::null() }
}

#[test]
fn registers_say_what_the_controller_is() {
    let config = Config {
        queue_entries: 4096,
        ready_delay: Nanos::from_millis(1_700),
        ..Config::new(Profile::optane())
    };
    let host = Host::new(config, vec![mem(1 << 20, 512)]);
    let cap = Cap::from_bits(host.port.bar.read64(regs::CAP));
    assert_eq!(
        (cap.max_entries(), cap.dstrd(), cap.css(), cap.cqr()),
        (4096, 4, Cap::CSS_NVM, true)
    );
    assert_eq!(cap.timeout_ms(), 10_000);
    let crto = Crto::from_bits(host.port.bar.read32(regs::CRTO));
    assert_eq!((cap.crms(), crto.crwmt()), (Cap::CRMS_WITH_MEDIA, cap.to().into()));
    assert_eq!((cap.mpsmin(), cap.mpsmax()), (0, 4));
    assert_eq!(Version::from_bits(host.port.bar.read32(regs::VS)), Version::V2_1);
    assert_eq!(host.csts(), Csts::new());
}

#[test]
fn cap_timeout_exceeds_ready_delay() {
    let told = |delay: u64, timeout: u64| {
        let (ready_delay, ready_timeout) = (Nanos::from_millis(delay), Nanos::from_millis(timeout));
        let config = Config { ready_delay, ready_timeout, ..Config::new(Profile::optane()) };
        Cap::from_bits(Host::new(config, vec![mem(1 << 20, 512)]).port.bar.read64(regs::CAP))
            .timeout_ms()
    };
    // Ready delay, requested timeout, CAP.TO: rounded to whole steps, longer than the delay, at
    // most eight bits.
    for (delay, timeout, cap) in [
        (0, 0, 500),
        (0, 1_000, 1_000),
        (0, 1_001, 1_500),
        (1_700, 1_000, 2_500),
        (300_000, 0, 127_500),
    ] {
        assert_eq!(told(delay, timeout), cap, "{delay} ms, {timeout} ms");
    }
}

#[test]
fn ready_follows_enable_both_ways() {
    let config = Config { ready_delay: Nanos::from_millis(3), ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]);
    host.enable();
    assert!(!host.csts().rdy());
    let ready_at = host.now + Nanos::from_millis(3);
    assert_eq!(host.settle().next, Some(ready_at));
    host.run_until(ready_at - Nanos(1));
    assert!(!host.csts().rdy());
    host.run_until(ready_at);
    assert!(host.csts().rdy());
    host.set_cc(Cc::new());
    host.run_until(host.now + Nanos::from_millis(2));
    assert!(host.csts().rdy(), "a reset takes its time as well");
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.csts(), Csts::new());
}

#[test]
fn bad_configuration_is_fatal() {
    for (aqa, asq, cc) in [
        (Aqa::of(32, 32).into_bits(), 0x10_0000, Host::<TestPort>::cc()),
        (Aqa::of(32, 32).into_bits(), BASE + 64, Host::<TestPort>::cc()),
        (0, BASE, Host::<TestPort>::cc()),
        (Aqa::of(32, 32).into_bits(), BASE, Host::<TestPort>::cc().with_mps(9)),
        (Aqa::of(32, 32).into_bits(), BASE, Host::<TestPort>::cc().with_css(6)),
        (Aqa::of(32, 32).into_bits(), BASE, Host::<TestPort>::cc().with_ams(1)),
    ] {
        let mut host = Host::new(Config::new(Profile::optane()), vec![mem(1 << 20, 512)]);
        let bar = host.port.bar.clone();
        bar.write32(regs::AQA, aqa);
        bar.write64(regs::ASQ, asq);
        bar.write64(regs::ACQ, BASE);
        host.set_cc(cc);
        host.settle();
        assert!(host.csts().cfs() && !host.csts().rdy());
        host.set_cc(Cc::new());
        host.settle();
        host.enable();
        assert!(host.csts().rdy() && !host.csts().cfs());
    }
}

#[test]
fn reset_drops_commands_in_flight() {
    let mut host = host(slow());
    let mut pair = host.pair(1, 64);
    let to = host.page(1);
    for lba in 0..40 {
        let cid = host.cid();
        host.post(&mut pair, read(lba, 1, to, 512), cid);
    }
    host.ring(&pair);
    host.settle();
    host.port.memory.write(to, &[9; 512]).unwrap();
    host.set_cc(Cc::new());
    host.settle();
    assert!(!host.csts().rdy());
    let touched = host.port.dma_written.get();
    host.run_until(host.now + Nanos::from_millis(5));
    assert!(!pair.cq.is_new(0, true), "an entry after the reset");
    assert_eq!(
        (host.port.dma_written.get(), host.port.memory.bytes(to, 512)),
        (touched, vec![9; 512])
    );
    // The doorbells still hold 40: enabling resets them.
    host.enable();
    let mut pair = host.pair(1, 64);
    let cid = host.cid();
    host.post(&mut pair, read(0, 1, to, 512), cid);
    host.ring(&pair);
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.reap(&mut pair, 99).iter().map(|c| c.cid()).collect::<Vec<_>>(), [cid]);
}

#[test]
fn shutdown_reports_progress() {
    let config = Config { shutdown_delay: Nanos::from_millis(4), ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    host.set_cc(Host::<TestPort>::cc().with_shn(Cc::SHN_NORMAL));
    host.settle();
    assert_eq!(host.csts().shst(), Csts::SHST_OCCURRING);
    host.post_admin(nvme::admin::keep_alive());
    host.run_until(host.now + Nanos::from_millis(4));
    assert_eq!((host.csts().shst(), host.csts().rdy()), (Csts::SHST_COMPLETE, true));
    assert!(host.reap_admin().is_empty());
    host.set_cc(Cc::new());
    host.settle();
    assert_eq!(host.csts(), Csts::new());
    host.enable();
    assert_eq!((host.csts().shst(), host.csts().rdy()), (0, true));
}

#[test]
fn subsystem_reset_sets_nssro() {
    let mut host = host(Profile::optane());
    let bar = host.port.bar.clone();
    bar.write32(regs::NSSR, regs::NSSR_RESET);
    host.settle();
    assert_eq!(host.csts(), Csts::new().with_nssro(true));
    assert_eq!((bar.read32(regs::CC), bar.read32(regs::NSSR), bar.read64(regs::ASQ)), (0, 0, 0));
    host.enable();
    assert!(host.csts().rdy());
}

#[test]
fn failed_controller_posts_nothing() {
    let mut host = host(slow());
    let mut pair = host.pair(1, 8);
    let to = host.page(1);
    let cid = host.cid();
    host.post(&mut pair, read(0, 1, to, 512), cid);
    host.ring(&pair);
    host.settle();
    host.device.fail();
    host.post_admin(nvme::admin::keep_alive());
    host.run_until(host.now + Nanos::from_millis(1));
    assert!(
        host.csts().cfs() && host.reap_admin().is_empty() && host.reap(&mut pair, 9).is_empty()
    );
    host.set_cc(Cc::new());
    host.settle();
    host.enable();
    assert!(host.csts().rdy() && !host.csts().cfs());
}

#[test]
fn completions_wait_for_cq_room() {
    let mut host = host(Profile::null());
    let mut pair = host.pair_with(1, 1, 64, 8, Some(nvme::Vector(1)));
    let to = host.page(1);
    for lba in 0..40 {
        let cid = host.cid();
        host.post(&mut pair, read(lba, 1, to, 512), cid);
    }
    host.ring(&pair);
    let mut found = 0;
    for _ in 0..40 {
        host.settle();
        assert_eq!(
            host.device.counters().completed - 2,
            (found + 7).min(40),
            "a queue of 8 entries holds 7"
        );
        found += host.reap(&mut pair, 3).len() as u64;
    }
    assert_eq!(found, 40);
}

#[test]
fn round_robin_takes_bursts() {
    for (ab, expected) in [(0, [0, 1, 2, 0, 1, 2, 0, 1, 2]), (1, [0, 0, 1, 1, 2, 2, 0, 1, 2])] {
        let mut host = host(Profile::null());
        let arbitration = nvme::features::Arbitration::new().with_ab(ab);
        let set = nvme::admin::SetFeatures::new(
            nvme::features::fid::ARBITRATION,
            arbitration.into_bits(),
        );
        assert!(host.admin(set.to_sqe()).status().is_success());
        let mut first = host.pair_with(1, 1, 16, 64, None);
        let mut others = [host.sharing(2, &first, 16), host.sharing(3, &first, 16)];
        let to = host.page(1);
        for n in 0..3 {
            let [second, third] = &mut others;
            for pair in [&mut first, second, third] {
                let cid = host.cid();
                host.post(pair, read(n, 1, to, 512), cid);
            }
        }
        for pair in [&first, &others[0], &others[1]] {
            host.ring(pair);
        }
        host.settle();
        let found = host.reap(&mut first, 99);
        // Arbitration may start with any queue.
        let from_first: Vec<_> = found.iter().map(|c| (c.sq_id + 3 - found[0].sq_id) % 3).collect();
        assert_eq!(from_first, expected);
    }
}

#[test]
fn one_step_is_bounded() {
    let config = Config { step_budget: 20, ..Config::new(Profile::null()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 256);
    let to = host.page(1);
    for lba in 0..200 {
        let cid = host.cid();
        host.post(&mut pair, read(lba, 1, to, 512), cid);
    }
    host.ring(&pair);
    let before = host.device.counters().completed;
    let step = host.device.step(host.now);
    assert_eq!(
        (step.worked, step.next),
        (true, Some(host.now)),
        "it asks to be called again at once"
    );
    assert_eq!(host.device.counters().completed - before, 20);
}

#[test]
fn invalid_doorbells_are_reported_once() {
    use nvme::admin::{AsyncEvent, GetLogPage, error_event, event_type};
    use nvme::log::{ErrorEntry, lid};
    let mut host = host(Profile::optane());
    let mut pair = host.pair(1, 16);
    let bar = host.port.bar.clone();
    host.post_admin(nvme::admin::async_event_request());
    host.post_admin(nvme::admin::async_event_request());
    for (sq, value) in [(true, 16), (true, u32::MAX), (false, 3), (false, 99)] {
        if sq {
            bar.ring_sq(pair.id, value)
        } else {
            bar.ring_cq(pair.cq_id, value)
        }
        // One head doorbell is read per idle step.
        for _ in 0..200 {
            host.settle();
        }
    }
    let events = host.reap_admin();
    let event = AsyncEvent::from_bits(events[0].result);
    assert_eq!(events.len(), 1, "further ones are masked until the log is read");
    assert_eq!(
        (event.event_type(), event.info(), event.lid()),
        (event_type::ERROR, error_event::INVALID_DOORBELL_VALUE, lid::ERROR)
    );
    let page = host.page(1);
    let log = GetLogPage::new(lid::ERROR, 64 * 4, crate::testing::short(page, 256));
    assert!(host.admin(log.to_sqe()).status().is_success());
    let newest = <ErrorEntry as nvme::Page>::from_page(&host.port.memory.bytes(page, 64)).unwrap();
    assert_eq!((newest.error_count, newest.sq_id, newest.command_info), (4, 1, 99));
    host.settle();
    assert_eq!(host.events.len() + host.reap_admin().len(), 1, "reading it unmasked the next");
    // The queue still works.
    bar.ring_cq(pair.cq_id, 0);
    let cid = host.cid();
    host.post(&mut pair, read(0, 1, page, 512), cid);
    host.ring(&pair);
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!(host.reap(&mut pair, 9).len(), 1);
}

#[test]
fn backward_tail_is_invalid() {
    let mut host = host(Profile::null());
    let mut pair = host.pair_with(1, 1, 16, 4, None);
    let to = host.page(1);
    for lba in 0..9 {
        let cid = host.cid();
        host.post(&mut pair, read(lba, 1, to, 512), cid);
    }
    host.ring(&pair);
    host.settle();
    // Three commands are done and fill the completion queue; six wait. The host then takes back two
    // of them.
    host.port.bar.ring_sq(pair.id, 7);
    host.reap(&mut pair, 99);
    host.settle();
    assert_eq!(host.reap(&mut pair, 99).len(), 0);
    let log =
        nvme::admin::GetLogPage::new(nvme::log::lid::ERROR, 64, crate::testing::short(to, 64));
    assert!(host.admin(log.to_sqe()).status().is_success());
    let entry =
        <nvme::log::ErrorEntry as nvme::Page>::from_page(&host.port.memory.bytes(to, 64)).unwrap();
    assert_eq!((entry.sq_id, entry.command_info), (1, 7));
    host.ring(&pair);
    host.settle();
    assert_eq!(host.reap(&mut pair, 99).len(), 3, "with its old tail the queue goes on");
}

#[test]
fn keep_alive_timeout_is_fatal() {
    let mut host = host(Profile::optane());
    let set = nvme::admin::SetFeatures::new(nvme::features::fid::KEEP_ALIVE_TIMER, 250_u32);
    assert!(host.admin(set.to_sqe()).status().is_success());
    host.run_until(host.now + Nanos::from_millis(299));
    assert!(host.admin(nvme::admin::keep_alive()).status().is_success());
    host.run_until(host.now + Nanos::from_millis(299));
    assert!(!host.csts().cfs(), "250 ms are rounded up to 300");
    assert_eq!(host.settle().next, Some(host.now + Nanos::from_millis(1)));
    host.run_until(host.now + Nanos::from_millis(1));
    assert!(host.csts().cfs());
}

#[test]
fn what_was_written_is_read_back() {
    let mut host = host(Profile::optane());
    let mut pair = host.pair(1, 16);
    let (from, to) = (host.page(1), host.page(1));
    host.port.memory.write(from, &[7; 1024]).unwrap();
    for sqe in [write(5, 2, from, 1024), read(4, 4, to, 2048)] {
        let cid = host.cid();
        host.post(&mut pair, sqe, cid);
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(1));
        let done = host.reap(&mut pair, 9);
        assert_eq!(
            done.iter().map(|c| (c.cid(), c.status())).collect::<Vec<_>>(),
            [(cid, Status::SUCCESS)]
        );
    }
    assert_eq!(
        host.port.memory.bytes(to, 2048),
        [vec![0; 512], vec![7; 1024], vec![0; 512]].concat()
    );
}

#[test]
fn same_seed_same_run() {
    let run = |seed| {
        let mut host =
            Host::new(Config { seed, ..Config::new(Profile::tlc()) }, vec![mem(1 << 20, 512)])
                .ready();
        let mut pair = host.pair(1, 128);
        let to = host.page(1);
        for lba in 0..100 {
            let cid = host.cid();
            host.post(&mut pair, read(lba, 1, to, 512), cid);
        }
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(20));
        host.reap(&mut pair, 999).iter().map(|c| c.cid).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

fn profile() -> impl Strategy<Value = Profile> {
    prop::sample::select(Profile::NAMES.to_vec()).prop_map(|name| name.parse().unwrap())
}

proptest! {
    #[test]
    fn commands_complete_exactly_once(
        profile in profile(), seed in any::<u64>(), entries in 2u32..40, cq_entries in 2u32..40,
    ) {
        exercise(Config { seed, ..Config::new(profile) }, entries, cq_entries, |port| port).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn doubled_lost_foreign_entries_are_caught() {
    let with = |plan: Option<FaultPlan>| Config {
        seed: 1,
        faults: plan.map(FaultInjector::new),
        ..Config::new(Profile::optane())
    };
    for fault in [
        Fault::DoubleEntry,
        Fault::SwallowEntry,
        Fault::SwallowCommand,
        Fault::StaleCid,
        Fault::UnknownCid,
        Fault::WrongPhase,
    ] {
        let noticed = exercise(with(Some(FaultPlan::new().at(30, fault))), 16, 16, |port| port);
        assert!(noticed.is_err(), "{fault:?}");
    }
    // The same run succeeds without faults, and with an injector without faults.
    exercise(with(None), 16, 16, |port| port).unwrap();
    exercise(with(Some(FaultPlan::new())), 16, 16, |port| port).unwrap();
}

#[test]
fn cq_overrun_is_caught() {
    let noticed = exercise(
        Config { seed: 1, ..Config::new(Profile::null()) },
        16,
        4,
        crate::testing::never_full,
    );
    assert_eq!(noticed, Err("the completion queue was overrun".into()));
}

#[test]
fn queue_identifiers_reach_128() {
    let config = Config { queue_pairs: 128, vectors: 3, ..Config::new(Profile::null()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let to = host.page(1);
    let mut pairs: Vec<_> =
        (1..=128).map(|n| host.pair_with(n, n, 4, 4, Some(nvme::Vector(n % 3)))).collect();
    for pair in &mut pairs {
        let cid = host.cid();
        host.post(pair, read(0, 1, to, 512), cid);
        host.ring(pair);
    }
    host.settle();
    assert!(pairs.iter_mut().all(|pair| host.reap(pair, 9).len() == 1));
    assert_eq!(pairs[127].id, QueueId(128));
}

/// Reads once; returns the entry and the number of its vector's messages.
fn one_read(host: &mut Host<TestPort>, pair: &mut crate::testing::Pair) -> (bool, Status, u64) {
    let (cid, buffer) = (host.cid(), host.page(1));
    host.post(pair, read(0, 1, buffer, 512), cid);
    host.ring(pair);
    host.run_until(host.now + Nanos::from_millis(1));
    let cqe = host.reap(pair, 1)[0];
    (cqe.cid() == cid, cqe.status(), host.port.messages.borrow()[1])
}

#[test]
fn fault_counts_are_exact() {
    // With an instant profile, commands do not complete at once while faults are expected.
    for profile in [slow(), Profile::null()] {
        let mut host = host(profile);
        let mut pair = host.pair(1, 8);
        let now = host.now;
        let error = Status(0x281);
        let change = |fault, times| Change::Fault { fault, times };
        for change in [
            change(Fault::Status(error), 2),
            change(Fault::UnknownCid, 1),
            change(Fault::LoseMessage, 3),
        ] {
            host.device.change(now, change);
        }
        assert_eq!(one_read(&mut host, &mut pair), (true, error, 0));
        let left = [
            change(Fault::Status(error), 1),
            change(Fault::UnknownCid, 1),
            change(Fault::LoseMessage, 2),
        ];
        assert_eq!(host.device.circumstances(), left);
        assert_eq!(one_read(&mut host, &mut pair), (true, error, 0));
        assert_eq!(one_read(&mut host, &mut pair), (false, Status::SUCCESS, 0));
        assert_eq!(one_read(&mut host, &mut pair), (true, Status::SUCCESS, 1));
        assert!(host.device.circumstances().is_empty());
    }
}

#[test]
fn reset_may_be_slow_or_hang() {
    let mut host = host(Profile::null());
    host.device.change(host.now, Change::ResetTakes(Nanos::from_secs(3)));
    host.settle();
    host.set_cc(Cc::new());
    host.run_until(host.now + Nanos::from_millis(2_999));
    assert!(host.csts().rdy());
    host.run_until(host.now + Nanos::from_millis(1));
    assert!(!host.csts().rdy());
    host.device.change(host.now, Change::ResetTakes(Nanos::MAX));
    host.enable();
    host.run_until(host.now + Nanos::from_secs(3_600));
    assert!(!host.csts().rdy());
    assert_eq!(host.device.circumstances(), [Change::ResetTakes(Nanos::MAX)]);
    // This also applies to a transition in progress.
    host.device.change(host.now, Change::ResetTakes(Nanos::ZERO));
    host.settle();
    assert!(host.csts().rdy());
}

#[test]
fn failing_controller_still_resets() {
    let config = Config { ready_delay: Nanos::from_millis(3), ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]);
    host.enable();
    host.run_until(host.now + Nanos::from_millis(3));
    assert!(host.csts().rdy());
    host.set_cc(Cc::new());
    host.settle();
    host.device.fail();
    assert!(host.csts().cfs() && host.csts().rdy());
    host.run_until(host.now + Nanos::from_millis(3));
    assert_eq!(host.csts(), Csts::new());
    // It works again after a reset.
    host.enable();
    host.run_until(host.now + Nanos::from_millis(3));
    assert_eq!(host.csts(), Csts::new().with_rdy(true));
}

#[test]
fn controller_can_be_failed() {
    let mut host = host(Profile::null());
    host.device.change(host.now, Change::Fail);
    host.settle();
    assert!(host.csts().cfs());
}

/// The host consumes an entry right after the fetch has found the completion queue full. The
/// controller must not sleep then: no queue is full any more, so no head doorbell would be armed,
/// and the host's write would not wake it.
#[test]
fn room_during_a_step_is_used() {
    let mut host = host(Profile::null());
    let mut pair = host.pair_with(1, 1, 16, 4, Some(Vector(1)));
    let to = host.page(1);
    for _ in 0..8 {
        let cid = host.cid();
        host.post(&mut pair, read(0, 1, to, 512), cid);
    }
    host.ring(&pair);
    host.settle();
    let mut found = 0;
    for (round, head) in [1, 2, 3, 0].into_iter().enumerate() {
        // The queue that is polled when idle changes from step to step.
        (0..round % 2).for_each(|_| assert!(!host.device.step(host.now).worked));
        let before = host.device.counters().fetched;
        host.port.bar.late_head.set(Some((QueueId(1), head)));
        let step = host.device.step(host.now);
        assert!(
            host.port.bar.late_head.get().is_none() && host.device.counters().fetched == before
        );
        if step.worked {
            found += 1;
        } else {
            host.device.arm_doorbells();
            assert!(
                host.port.awaited.take().contains(&(QueueId(1), true)),
                "round {round}: it sleeps, and asks for no head"
            );
        }
        host.settle();
        assert_eq!(host.device.counters().fetched - before, 1);
    }
    assert!(found > 0, "the look at that queue was never the one in question");
}
