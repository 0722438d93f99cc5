mod mandatory;

use nvme::admin::{AsyncEvent, cns, delete_cq, delete_sq, event_type, notice};
use nvme::features::{AsyncEventConfig, Capabilities};
use nvme::identify::{
    Controller as ControllerPage, DescriptorList, IdentifyNamespace as NamespacePage,
    NamespaceList, NvmController, NvmNamespace, descriptor,
};
use nvme::log::{ChangedNamespaces, ErrorEntry, Smart};
use nvme::{Lba, Nsid, Vector};
use proptest::prelude::*;

use super::*;
use crate::media::WriteCache;
use crate::testing::{BASE, Host, Pair, TestPort, mem, random_below, read, short, write};
use crate::{Change, Config, Mem, NamespaceConfig, Profile, Service};

fn slow() -> Profile {
    let fixed = Service { base: Nanos::from_micros(100), ..Service::default() };
    Profile { read: fixed, write: fixed, flush: fixed, moves_data: true, ..Profile::null() }
}

fn host() -> Host<TestPort> {
    let cached = WriteCache::new(Mem::new(1 << 20, crate::Budget::new(1 << 20)), 4096, 99);
    let namespaces = vec![mem(1 << 20, 512), NamespaceConfig::new(cached, 4096).unwrap()];
    Host::new(Config { boundary: 128 << 10, ..Config::new(slow()) }, namespaces).ready()
}

fn kind(host: &mut Host<TestPort>, sqe: Sqe) -> Status {
    host.admin(sqe).status().kind()
}

/// Executes an Identify or a Get Log Page and decodes its page.
fn fetch<T: Page>(host: &mut Host<TestPort>, command: impl FnOnce(Dptr) -> Sqe) -> T {
    let page = host.page(1);
    let answer = host.admin(command(short(page, T::LEN as u64)));
    assert_eq!(answer.status(), Status::SUCCESS);
    T::from_page(&host.port.memory.bytes(page, T::LEN)).unwrap()
}

fn identify<T: Page>(host: &mut Host<TestPort>, what: u8, nsid: u32) -> T {
    fetch(host, |data| Identify::new(what, Nsid(nsid), data).to_sqe())
}

fn log<T: Page>(host: &mut Host<TestPort>, page: u8, retain_event: bool) -> T {
    fetch(host, |data| {
        GetLogPage { retain_event, ..GetLogPage::new(page, T::LEN as u64, data) }.to_sqe()
    })
}

#[test]
fn identify_controller_describes_it() {
    let mut host = host();
    let page: ControllerPage = identify(&mut host, cns::CONTROLLER, 0);
    let cap = nvme::regs::Cap::new();
    assert_eq!(page.max_transfer(cap), Some(1 << 20));
    assert_eq!((page.sn.to_string(), page.nn, page.vwc.present()), ("REAP0001".into(), 2, true));
    assert!(page.supports_entries(6, 4) && !page.supports_entries(7, 4));
    assert_eq!((page.abort_limit(), page.async_event_limit()), (4, 4));
    assert!(page.subnqn.to_string().starts_with("nqn.2014-08.org.nvmexpress:uuid:"));
    let limits: NvmController = identify(&mut host, cns::COMMAND_SET_CONTROLLER, 0);
    assert_eq!(
        (limits.wzsl, limits.wusl, limits.dmrl, limits.dmrsl, limits.dmsl),
        (10, 10, 255, 1 << 21, 1 << 23)
    );
}

#[test]
fn identify_namespace_describes_each() {
    let mut host = host();
    for (nsid, block, blocks) in [(1, 512, 2048), (2, 4096, 256)] {
        let page: NamespacePage = identify(&mut host, cns::NAMESPACE, nsid);
        assert_eq!((page.format().block_size(), page.nsze, page.nuse), (Some(block), blocks, 0));
        assert_eq!((page.format().ms(), page.protection_type()), (0, 0));
        assert_eq!(u32::from(page.noiob), (128 << 10) / block);
        let list: DescriptorList = identify(&mut host, cns::NAMESPACE_DESCRIPTORS, nsid);
        assert_eq!(list.find(descriptor::CSI), Some(&[0][..]));
        assert_eq!(list.find(descriptor::UUID).map(<[u8]>::len), Some(16));
    }
    let after = |host: &mut _, nsid| {
        identify::<NamespaceList>(host, cns::ACTIVE_NAMESPACES, nsid)
            .iter()
            .map(|n| n.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(after(&mut host, 0), [1, 2]);
    assert_eq!(after(&mut host, 1), [2]);
    assert!(after(&mut host, 2).is_empty());
}

#[test]
fn identify_refuses_what_is_not_there() {
    let mut host = host();
    let page = host.page(1);
    let mut ask =
        |what, nsid, data| kind(&mut host, Identify::new(what, Nsid(nsid), data).to_sqe());
    let data = short(page, 4096);
    for nsid in [0, 3, u32::MAX] {
        assert_eq!(ask(cns::NAMESPACE, nsid, data), Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    assert_eq!(ask(cns::ACTIVE_NAMESPACES, u32::MAX, data), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(ask(0x7f, 1, data), Status::INVALID_FIELD);
    assert_eq!(ask(cns::CONTROLLER, 0, short(0x1000, 4096)), Status::DATA_TRANSFER_ERROR);
    let entry: ErrorEntry = log(&mut host, lid::ERROR, false);
    assert_eq!(
        (entry.status().kind(), entry.opcode),
        (Status::DATA_TRANSFER_ERROR, opcode::admin::IDENTIFY)
    );
    assert!(entry.status().do_not_retry());
}

#[test]
fn inactive_namespace_is_not_invalid() {
    let mut host =
        Host::new(Config::new(slow()), vec![mem(1 << 20, 512).with_nsid(Nsid(3))]).ready();
    assert_eq!(identify::<ControllerPage>(&mut host, cns::CONTROLLER, 0).nn, 3);
    assert_eq!(
        identify::<NamespacePage>(&mut host, cns::NAMESPACE, 2).as_page(),
        [0; NamespacePage::LEN]
    );
    assert_eq!(
        identify::<NvmNamespace>(&mut host, cns::COMMAND_SET_NAMESPACE, 2).as_page(),
        [0; NvmNamespace::LEN]
    );
    let mut pair = host.pair(1, 16);
    let page = host.page(1);
    for (nsid, expected) in
        [(1, Status::INVALID_FIELD), (3, Status::SUCCESS), (4, Status::INVALID_NAMESPACE_OR_FORMAT)]
    {
        let described =
            Identify::new(cns::NAMESPACE_DESCRIPTORS, Nsid(nsid), short(page, 4096)).to_sqe();
        assert_eq!(kind(&mut host, described), expected, "descriptors of {nsid}");
        for sqe in [Sqe { nsid, ..read(0, 1, page, 512) }, nvme::io::flush(Nsid(nsid))] {
            let cid = host.cid();
            host.post(&mut pair, sqe, cid);
        }
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(1));
        assert_eq!(
            host.reap(&mut pair, 9).iter().map(|cqe| cqe.status().kind()).collect::<Vec<_>>(),
            [expected; 2],
            "I/O to {nsid}"
        );
    }
}

#[test]
fn bad_queues_get_their_status() {
    let mut host = host();
    let ring = host.page(1);
    let cq = CreateCq {
        queue: QueueId(1),
        entries: 16,
        addr: ring,
        contiguous: true,
        vector: Some(Vector(1)),
    };
    let sq = CreateSq {
        queue: QueueId(1),
        entries: 16,
        addr: ring,
        contiguous: true,
        priority: 0,
        cq: QueueId(1),
    };
    for (command, expected) in [
        (CreateCq { queue: QueueId(0), ..cq }, Status::INVALID_QUEUE_ID),
        (CreateCq { queue: QueueId(65), ..cq }, Status::INVALID_QUEUE_ID),
        (CreateCq { entries: 1, ..cq }, Status::INVALID_QUEUE_SIZE),
        (CreateCq { entries: 1025, ..cq }, Status::INVALID_QUEUE_SIZE),
        (CreateCq { contiguous: false, ..cq }, Status::INVALID_FIELD),
        (CreateCq { addr: ring + 8, ..cq }, Status::PRP_OFFSET_INVALID),
        (CreateCq { addr: 0x1000, ..cq }, Status::DATA_TRANSFER_ERROR),
        (CreateCq { vector: Some(Vector(65)), ..cq }, Status::INVALID_INTERRUPT_VECTOR),
        (cq, Status::SUCCESS),
        (cq, Status::INVALID_QUEUE_ID),
    ] {
        assert_eq!(kind(&mut host, command.to_sqe()), expected, "{command:?}");
    }
    for (command, expected) in [
        (CreateSq { cq: QueueId(2), ..sq }, Status::COMPLETION_QUEUE_INVALID),
        (CreateSq { cq: QueueId(0), ..sq }, Status::COMPLETION_QUEUE_INVALID),
        (CreateSq { queue: QueueId(0), ..sq }, Status::INVALID_QUEUE_ID),
        (CreateSq { entries: 4096, ..sq }, Status::INVALID_QUEUE_SIZE),
        (sq, Status::SUCCESS),
        (sq, Status::INVALID_QUEUE_ID),
    ] {
        assert_eq!(kind(&mut host, command.to_sqe()), expected, "{command:?}");
    }
    let (no_cq, no_sq) = (delete_cq(QueueId(1)), delete_sq(QueueId(1)));
    assert_eq!(kind(&mut host, no_cq), Status::INVALID_QUEUE_DELETION);
    assert_eq!(kind(&mut host, delete_sq(QueueId(0))), Status::INVALID_QUEUE_ID);
    assert_eq!(kind(&mut host, no_sq), Status::SUCCESS);
    assert_eq!(kind(&mut host, no_sq), Status::INVALID_QUEUE_ID);
    assert_eq!(kind(&mut host, no_cq), Status::SUCCESS);
    assert_eq!(kind(&mut host, no_cq), Status::INVALID_QUEUE_ID);
}

fn busy(host: &mut Host<TestPort>, pair: &mut Pair, n: u64) -> Vec<Cid> {
    let to = host.page(1);
    let cids = (0..n).map(|lba| (host.cid(), read(lba, 1, to, 512)));
    let cids = cids.collect::<Vec<_>>().into_iter().map(|(cid, sqe)| {
        host.post(pair, sqe, cid);
        cid
    });
    let cids = cids.collect();
    host.ring(pair);
    host.settle();
    cids
}

#[test]
fn a_deleted_queue_ends_its_commands() {
    let mut host = host();
    let mut pair = host.pair(1, 16);
    busy(&mut host, &mut pair, 5);
    assert_eq!(kind(&mut host, delete_sq(QueueId(1))), Status::SUCCESS);
    let found = host.reap(&mut pair, 99);
    assert_eq!(
        found.iter().map(|c| c.status()).collect::<Vec<_>>(),
        [Status::ABORTED_SQ_DELETION; 5]
    );
    host.run_until(host.now + Nanos::from_millis(1));
    assert!(host.reap(&mut pair, 99).is_empty());
}

#[test]
fn abort_ends_only_its_command() {
    let mut host = host();
    let mut pair = host.pair(1, 16);
    let cids = busy(&mut host, &mut pair, 3);
    let mut abort =
        |cid, sq| host.admin(Abort { sq: QueueId(sq), cid }.to_sqe()).result == Abort::ABORTED;
    assert!(abort(cids[1], 1));
    assert!(!abort(cids[1], 1), "it is complete");
    assert!(!abort(Cid(0x7777), 1) && !abort(cids[0], 2));
    let found = host.reap(&mut pair, 99);
    assert_eq!(
        found.iter().map(|c| (c.cid(), c.status())).collect::<Vec<_>>(),
        [(cids[1], Status::ABORT_REQUESTED)]
    );
    host.run_until(host.now + Nanos::from_millis(1));
    let rest = host.reap(&mut pair, 99);
    assert_eq!(
        rest.iter().map(|c| (c.cid(), c.status())).collect::<Vec<_>>(),
        [(cids[0], Status::SUCCESS), (cids[2], Status::SUCCESS)]
    );
}

/// Aborts a command. Returns whether the Abort's entry reports an abort, the command's entries at
/// that time, and its later entries.
fn abort_as(aborts: AbortOrder) -> (bool, Vec<Status>, Vec<Status>) {
    let config = Config { aborts, ..Config::new(Profile::tlc()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 16);
    let cids = busy(&mut host, &mut pair, 3);
    let abort = Abort { sq: QueueId(1), cid: cids[1] }.to_sqe();
    let done = host.admin(abort).result == Abort::ABORTED;
    let mut entries = |host: &mut Host<TestPort>| {
        let found = host.reap(&mut pair, 99).into_iter().filter(|cqe| cqe.cid() == cids[1]);
        found.map(|cqe| cqe.status()).collect::<Vec<_>>()
    };
    let at_once = entries(&mut host);
    assert!(
        aborts == AbortOrder::Before || host.admin(abort).result != Abort::ABORTED,
        "a second one has nothing to abort"
    );
    host.run_until(host.now + Nanos::from_millis(20));
    (done, at_once, entries(&mut host))
}

#[test]
fn aborted_command_completes_in_any_order() {
    let aborted = vec![Status::ABORT_REQUESTED];
    assert_eq!(abort_as(AbortOrder::Before), (true, aborted.clone(), vec![]));
    assert_eq!(abort_as(AbortOrder::After), (true, vec![], aborted.clone()));
    assert_eq!(abort_as(AbortOrder::Deferred), (false, vec![], aborted));
    assert_eq!(abort_as(AbortOrder::Never), (false, vec![], vec![Status::SUCCESS]));
}

/// A faulty host: it reuses the CID of an aborted command as soon as the Abort has completed.
fn reuses_the_identifier(aborts: AbortOrder) -> bool {
    let config = Config { aborts, ..Config::new(Profile::tlc()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 16);
    let cid = busy(&mut host, &mut pair, 1)[0];
    assert!(host.admin(Abort { sq: QueueId(1), cid }.to_sqe()).result == Abort::ABORTED);
    host.reap(&mut pair, 99);
    let to = host.page(1);
    host.post(&mut pair, read(5, 1, to, 512), cid);
    host.ring(&pair);
    host.run_until(host.now + Nanos::from_millis(20));
    let found = host.reap(&mut pair, 99);
    found.iter().map(|cqe| cqe.status()).eq([Status::SUCCESS])
}

#[test]
fn host_confusing_abort_entries_is_caught() {
    assert!(reuses_the_identifier(AbortOrder::Before));
    assert!(!reuses_the_identifier(AbortOrder::After));
}

#[test]
fn held_command_can_be_aborted() {
    for aborts in [AbortOrder::Before, AbortOrder::After, AbortOrder::Deferred] {
        let config = Config { aborts, ..Config::new(Profile::tlc()) };
        let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
        let mut pair = host.pair(1, 16);
        host.device.change(host.now, Change::Hold(None));
        host.settle();
        let cid = busy(&mut host, &mut pair, 1)[0];
        host.admin(Abort { sq: QueueId(1), cid }.to_sqe());
        host.run_until(host.now + Nanos::from_millis(1));
        let found: Vec<_> =
            host.reap(&mut pair, 99).iter().map(|cqe| (cqe.cid(), cqe.status())).collect();
        assert_eq!(found, [(cid, Status::ABORT_REQUESTED)], "{aborts:?}");
        host.device.change(host.now, Change::Release);
        host.run_until(host.now + Nanos::from_millis(20));
        assert!(host.reap(&mut pair, 99).is_empty(), "{aborts:?}");
    }
}

#[test]
fn event_requests_are_limited_and_abortable() {
    let mut host = host();
    let waiting: Vec<_> =
        (0..5).map(|_| host.post_admin(nvme::admin::async_event_request())).collect();
    host.settle();
    let found = host.reap_admin();
    assert_eq!(
        found.iter().map(|c| (c.cid(), c.status().kind())).collect::<Vec<_>>(),
        [(waiting[4], Status::ASYNC_EVENT_LIMIT_EXCEEDED)]
    );
    let answer = host.admin(Abort { sq: QueueId::ADMIN, cid: waiting[2] }.to_sqe());
    assert!(answer.result == Abort::ABORTED);
    assert_eq!(
        host.events.iter().map(|c| (c.cid(), c.status())).collect::<Vec<_>>(),
        [(waiting[2], Status::ABORT_REQUESTED)]
    );
}

#[test]
fn abort_takes_room_of_two_entries() {
    let mut host = host();
    let waiting = host.post_admin(nvme::admin::async_event_request());
    for _ in 0..29 {
        host.post_admin(nvme::admin::keep_alive());
    }
    host.settle();
    // Two of 31 entries are free.
    host.post_admin(Abort { sq: QueueId::ADMIN, cid: waiting }.to_sqe());
    let last = host.post_admin(nvme::admin::keep_alive());
    host.settle();
    assert_eq!(host.reap_admin().len(), 31);
    host.settle();
    assert_eq!(host.reap_admin().iter().map(|c| c.cid()).collect::<Vec<_>>(), [last]);
    assert!(!host.port.bar.overrun.get());
}

#[test]
fn resized_namespace_raises_an_event() {
    let mut host = host();
    host.post_admin(nvme::admin::async_event_request());
    host.device.resize(Nsid(1), 100);
    host.settle();
    assert!(host.reap_admin().is_empty(), "nobody asked yet");
    let config = AsyncEventConfig::new().with_namespace_attribute(true);
    assert_eq!(
        kind(&mut host, SetFeatures::new(fid::ASYNC_EVENT_CONFIG, config.into_bits()).to_sqe()),
        Status::SUCCESS
    );
    assert_eq!(
        host.device.resize(Nsid(2), u64::MAX),
        Some(256),
        "no more than the medium holds, which it had"
    );
    assert_eq!(host.device.resize(Nsid(2), 50), Some(50));
    assert_eq!(host.device.resize(Nsid(3), 50), None);
    host.settle();
    let event = AsyncEvent::from_bits(host.reap_admin()[0].result);
    assert_eq!(
        (event.event_type(), event.info()),
        (event_type::NOTICE, notice::NAMESPACE_ATTRIBUTE_CHANGED)
    );
    let changed = |host: &mut _, retain| {
        log::<ChangedNamespaces>(host, lid::CHANGED_NAMESPACES, retain)
            .iter()
            .map(|n| n.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(changed(&mut host, true), [1, 2]);
    assert_eq!(changed(&mut host, false), [1, 2]);
    assert!(changed(&mut host, false).is_empty());
    assert_eq!(identify::<NamespacePage>(&mut host, cns::NAMESPACE, 2).nsze, 50);
}

#[test]
fn undelivered_change_list_is_kept() {
    let mut host = host();
    host.device.resize(Nsid(1), 100);
    let page = host.page(1);
    let asked = |len, data| GetLogPage::new(lid::CHANGED_NAMESPACES, len, data).to_sqe();
    assert_eq!(kind(&mut host, asked(4096, short(0x10, 4))), Status::DATA_TRANSFER_ERROR);
    assert_eq!(
        kind(&mut host, asked(2 << 20, short(page, 4096))),
        Status::INVALID_FIELD,
        "more than MDTS allows"
    );
    let list: ChangedNamespaces = log(&mut host, lid::CHANGED_NAMESPACES, false);
    assert_eq!(list.iter().map(|n| n.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn features_have_current_default_saved() {
    let mut host = host();
    let get = |host: &mut Host<TestPort>, id, select| {
        host.admin(GetFeatures { select, ..GetFeatures::current(id) }.to_sqe()).result
    };
    for (id, value, saveable) in [
        (fid::ARBITRATION, 0x0102_0305, true),
        (fid::VOLATILE_WRITE_CACHE, 0, true),
        (fid::INTERRUPT_COALESCING, 0x0307, true),
        (fid::ASYNC_EVENT_CONFIG, 0x100, true),
        (fid::KEEP_ALIVE_TIMER, 60_000, false),
    ] {
        let default = get(&mut host, id, select::DEFAULT);
        assert_ne!(default, value);
        let set = SetFeatures::new(id, value);
        assert_eq!(kind(&mut host, set.to_sqe()), Status::SUCCESS);
        assert_eq!(
            (get(&mut host, id, select::CURRENT), get(&mut host, id, select::SAVED)),
            (value, default)
        );
        let capabilities = Capabilities::from_bits(get(&mut host, id, select::CAPABILITIES));
        assert_eq!((capabilities.saveable(), capabilities.changeable()), (saveable, true));
        let save = SetFeatures { save: true, ..set };
        assert_eq!(
            kind(&mut host, save.to_sqe()),
            if saveable { Status::SUCCESS } else { Status::FEATURE_NOT_SAVEABLE }
        );
        assert_eq!(get(&mut host, id, select::SAVED), if saveable { value } else { default });
    }
    host.set_cc(nvme::regs::Cc::new());
    host.settle();
    host.enable();
    assert_eq!(
        get(&mut host, fid::INTERRUPT_COALESCING, select::CURRENT),
        0x0307,
        "saved over a reset"
    );
    assert_eq!(get(&mut host, fid::KEEP_ALIVE_TIMER, select::CURRENT), 0);
}

#[test]
fn bad_features_get_their_status() {
    let mut host = host();
    for (command, expected) in [
        (SetFeatures::new(0x03, 0_u32), Status::INVALID_FIELD),
        (
            SetFeatures { save: true, ..SetFeatures::new(fid::NUMBER_OF_QUEUES, 0_u32) },
            Status::FEATURE_NOT_SAVEABLE,
        ),
        (
            SetFeatures { nsid: Nsid(1), ..SetFeatures::new(fid::ARBITRATION, 0_u32) },
            Status::FEATURE_NOT_NAMESPACE_SPECIFIC,
        ),
        (SetFeatures::new(fid::NUMBER_OF_QUEUES, u32::MAX), Status::INVALID_FIELD),
    ] {
        assert_eq!(kind(&mut host, command.to_sqe()), expected, "{command:?}");
    }
    let reserved = GetFeatures { select: 5, ..GetFeatures::current(fid::ARBITRATION) };
    assert_eq!(kind(&mut host, reserved.to_sqe()), Status::INVALID_FIELD);
    // Feature 06h is not supported without a volatile write cache.
    let mut plain = Host::new(Config::new(slow()), vec![mem(1 << 20, 512)]).ready();
    assert_eq!(
        kind(&mut plain, GetFeatures::current(fid::VOLATILE_WRITE_CACHE).to_sqe()),
        Status::INVALID_FIELD
    );
}

#[test]
fn number_of_queues_is_limited() {
    let mut host = host();
    let mut ask = |n| {
        let answer = host.admin(
            SetFeatures::new(fid::NUMBER_OF_QUEUES, NumberOfQueues::of(n, n).into_bits()).to_sqe(),
        );
        (answer.status().kind(), NumberOfQueues::from_bits(answer.result).submission())
    };
    assert_eq!(ask(500), (Status::SUCCESS, 64));
    assert_eq!(ask(3), (Status::SUCCESS, 3));
    host.pair(3, 16);
    let ring = host.page(1);
    let beyond =
        CreateCq { queue: QueueId(4), entries: 16, addr: ring, contiguous: true, vector: None };
    assert_eq!(kind(&mut host, beyond.to_sqe()), Status::INVALID_QUEUE_ID);
    let again = SetFeatures::new(fid::NUMBER_OF_QUEUES, 0_u32);
    assert_eq!(kind(&mut host, again.to_sqe()), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn host_behavior_is_kept_as_data() {
    let mut host = host();
    let page = host.page(1);
    host.port.memory.write(page, &[1, 0, 1]).unwrap();
    let set = SetFeatures { data: short(page, 512), ..SetFeatures::new(fid::HOST_BEHAVIOR, 0_u32) };
    assert_eq!(kind(&mut host, set.to_sqe()), Status::SUCCESS);
    let get = |data| GetFeatures { data, ..GetFeatures::current(fid::HOST_BEHAVIOR) }.to_sqe();
    let found: HostBehavior = fetch(&mut host, get);
    assert_eq!((found.acre, found.etdas, found.lbafee), (1, 0, 1));
}

#[test]
fn logs_hold_health_firmware_errors() {
    let mut host = host();
    let mut pair = host.pair(1, 16);
    let to = host.page(1);
    for sqe in [read(0, 2, to, 1024), write(0, 1, to, 512), read(2047, 2, to, 1024)] {
        let cid = host.cid();
        host.post(&mut pair, sqe, cid);
    }
    host.ring(&pair);
    host.run_until(host.now + Nanos::from_millis(1));
    let found = host.reap(&mut pair, 9);
    assert_eq!(
        found.iter().map(|c| c.status().kind()).collect::<Vec<_>>(),
        [Status::LBA_OUT_OF_RANGE, Status::SUCCESS, Status::SUCCESS]
    );
    assert!(found[0].status().more(), "there is more in the log");
    let health: Smart = log(&mut host, lid::SMART, false);
    let count = |n: zerocopy::little_endian::U128| n.get();
    assert_eq!(
        (count(health.host_reads), count(health.host_writes), count(health.error_log_entries)),
        (1, 1, 1)
    );
    let entry: ErrorEntry = log(&mut host, lid::ERROR, false);
    assert_eq!((entry.sq_id, entry.cid, entry.lba, entry.nsid), (1, found[0].cid, 2047, 1));
    let slots: FirmwareSlots = log(&mut host, lid::FIRMWARE_SLOT, false);
    assert_eq!((slots.active, slots.revisions[0].to_string()), (1, "1".into()));
    let page = host.page(1);
    assert_eq!(
        kind(&mut host, GetLogPage::new(0x55, 64, short(page, 64)).to_sqe()),
        Status::INVALID_LOG_PAGE
    );
    let beyond = GetLogPage { offset: 4097, ..GetLogPage::new(lid::SMART, 64, short(page, 64)) };
    assert_eq!(kind(&mut host, beyond.to_sqe()), Status::INVALID_FIELD);
    let of_one = GetLogPage { nsid: Nsid(1), ..GetLogPage::new(lid::SMART, 64, short(page, 64)) };
    assert_eq!(
        kind(&mut host, of_one.to_sqe()),
        Status::INVALID_FIELD,
        "LPA says that there is none"
    );
    assert_eq!(kind(&mut host, GetLogPage { nsid: Nsid(0), ..of_one }.to_sqe()), Status::SUCCESS);
}

#[test]
fn disabled_cache_makes_writes_durable() {
    let cache = std::sync::Arc::new(std::sync::Mutex::new(WriteCache::new(
        Mem::new(1 << 20, crate::Budget::new(1 << 20)),
        512,
        99,
    )));
    let mut host =
        Host::new(Config::new(slow()), vec![NamespaceConfig::new(cache.clone(), 512).unwrap()])
            .ready();
    let mut pair = host.pair(1, 16);
    let from = host.page(1);
    let mut put = |host: &mut Host<TestPort>, lba| {
        let cid = host.cid();
        host.post(
            &mut pair,
            nvme::io::write(Nsid(1), Lba(lba), 1, short(from, 512), nvme::io::Flags::NONE),
            cid,
        );
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(1));
        cache.lock().unwrap().dirty_blocks()
    };
    assert_eq!(put(&mut host, 1), 1);
    assert_eq!(
        kind(&mut host, SetFeatures::new(fid::VOLATILE_WRITE_CACHE, 0_u32).to_sqe()),
        Status::SUCCESS
    );
    assert_eq!(put(&mut host, 2), 0, "flushed, and not filled again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn random_admin_commands_are_answered(seed in any::<u64>()) {
        let mut host = host();
        let mut roll = random_below(seed);
        let page = host.page(4);
        for _ in 0..300 {
            let noise: [u64; 8] = std::array::from_fn(|_| roll(u64::MAX) & roll(u64::MAX) & roll(u64::MAX));
            let mut sqe = Sqe { opcode: roll(0x1a) as u8, flags: 0, ..Sqe::from_words(noise) };
            (sqe.prp1, sqe.prp2) = if roll(4) == 0 { (sqe.prp1, sqe.prp2) } else { (page, page + 4096) };
            sqe.cdw10 &= [0xff, 0x1_00ff, u32::MAX][roll(3) as usize];
            let cid = host.post_admin(sqe);
            host.run_until(host.now + Nanos(roll(1_000_000)));
            if host.csts().cfs() {
                // The Keep Alive Timer has expired.
                host.set_cc(nvme::regs::Cc::new());
                host.settle();
                host.enable();
                continue;
            }
            let answers = host.reap_admin().iter().filter(|cqe| cqe.cid() == cid).count();
            prop_assert!(answers == 1 || answers == 0 && sqe.opcode == opcode::admin::ASYNC_EVENT_REQUEST, "{answers} for {sqe:?}");
        }
    }
}

fn with_shadows() -> Host<TestPort> {
    Host::new(
        Config { shadow_doorbells: true, ..Config::new(Profile::null()) },
        vec![mem(1 << 20, 512)],
    )
    .ready()
}

fn buffers(doorbells: u64, events: u64) -> Sqe {
    Sqe {
        opcode: opcode::admin::DOORBELL_BUFFER_CONFIG,
        prp1: doorbells,
        prp2: events,
        ..Sqe::default()
    }
}

#[test]
fn shadow_doorbells_need_their_option() {
    let (mut without, mut with) = (host(), with_shadows());
    let oacs =
        |host: &mut Host<TestPort>| identify::<ControllerPage>(host, cns::CONTROLLER, 0).oacs;
    assert_eq!((oacs(&mut without), oacs(&mut with)), (0, ControllerPage::OACS_DOORBELL_BUFFERS));
    assert_eq!(kind(&mut without, buffers(BASE, BASE + 4096)), Status::INVALID_OPCODE);
}

#[test]
fn bad_doorbell_buffers_are_refused() {
    let mut host = with_shadows();
    let page = host.page(2);
    for (doorbells, events) in [
        (page + 8, page + 4096),
        (page, page + 4100),
        (page, page),
        (0, page),
        (page, u64::MAX - 4095),
    ] {
        assert_eq!(
            kind(&mut host, buffers(doorbells, events)),
            Status::INVALID_FIELD,
            "{doorbells:#x}, {events:#x}"
        );
        assert_eq!(host.port.shadow.get(), None);
    }
    // Not a list and not an SGL descriptor, but a separate field.
    assert_eq!(
        kind(&mut host, Sqe { flags: 1 << 6, ..buffers(page, page + 4096) }),
        Status::INVALID_FIELD
    );
    assert_eq!(host.admin(buffers(page, page + 4096)).status(), Status::SUCCESS);
    assert_eq!(
        host.port.shadow.get(),
        Some(ShadowBuffers { doorbells: page, events: page + 4096, bytes: 4096, stride: 64 })
    );
}

#[test]
fn every_reset_ends_doorbells_in_memory() {
    let resets: [fn(&mut Host<TestPort>); 3] = [
        |host| host.set_cc(nvme::regs::Cc::new()),
        |host| host.device.reset_function(),
        |host| host.device.fail(),
    ];
    for reset in resets {
        let mut host = with_shadows();
        let page = host.page(2);
        assert_eq!(host.admin(buffers(page, page + 4096)).status(), Status::SUCCESS);
        reset(&mut host);
        host.settle();
        assert_eq!(host.port.shadow.get(), None);
        assert!(
            !host.device.arm_doorbells() && host.port.awaited.take().is_empty(),
            "it waits for nothing"
        );
    }
}

#[test]
fn event_idx_covers_tails_and_heads() {
    let mut host = with_shadows();
    let mut pair = host.pair_with(1, 1, 8, 4, Some(Vector(1)));
    let awaited = |host: &mut Host<TestPort>| {
        assert!(!host.device.arm_doorbells());
        host.port.awaited.take()
    };
    let tails = [(QueueId(0), false), (QueueId(1), false)];
    assert_eq!(awaited(&mut host), tails);
    let buffer = host.page(1);
    for _ in 0..5 {
        let cid = host.cid();
        host.post(&mut pair, read(0, 1, buffer, 512), cid);
    }
    host.ring(&pair);
    host.settle();
    assert_eq!(awaited(&mut host), [&tails[..], &[(QueueId(1), true)]].concat());
    assert_eq!(host.reap(&mut pair, 3).len(), 3);
    host.settle();
    assert_eq!((awaited(&mut host), host.reap(&mut pair, 3).len()), (tails.to_vec(), 2));
}
