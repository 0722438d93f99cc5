use nvme::io::Flags;
use nvme::prp::{Dptr, PageSize, Segment, build, list_len};
use nvme::{Cqe, Lba, Nsid, Sqe, Status};
use units::Nanos;

use super::Fetch;
use crate::testing::{Host, Pair, TestPort, mem, read, write};
use crate::{Change, Config, Loss, Profile};

const ALL: [Fetch; 2] = [Fetch::Late, Fetch::Early];

fn host(fetch: Fetch) -> (Host<TestPort>, Pair) {
    let config = Config { fetch, ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let pair = host.pair(1, 64);
    (host, pair)
}

/// Submits a command, runs `meanwhile` after its fetch, and completes it.
fn run(
    host: &mut Host<TestPort>,
    pair: &mut Pair,
    sqe: Sqe,
    meanwhile: impl FnOnce(&TestPort),
) -> Cqe {
    let cid = host.cid();
    host.post(pair, sqe, cid);
    host.ring(pair);
    host.settle();
    meanwhile(&host.port);
    host.run_until(host.now + Nanos::from_millis(1));
    let found = host.reap(pair, 9);
    assert_eq!((found.len(), found[0].cid()), (1, cid));
    found[0]
}

/// The first byte of a block.
fn stored(host: &mut Host<TestPort>, pair: &mut Pair, lba: u64) -> u8 {
    let to = host.page(1);
    assert_eq!(run(host, pair, read(lba, 1, to, 512), |_| ()).status(), Status::SUCCESS);
    host.port.memory.bytes(to, 1)[0]
}

/// Builds a PRP list for `len` bytes at `addr`; returns its address and the data pointer.
fn listed(host: &mut Host<TestPort>, addr: u64, len: u64) -> (u64, Dptr) {
    let list = Segment { addr: host.page(1), len: list_len(len, PageSize::MIN) };
    let put = |at: u64, entry: u64| host.port.memory.write(at, &entry.to_le_bytes()).unwrap();
    (list.addr, build(Segment { addr, len }, PageSize::MIN, list, put).unwrap())
}

/// The stored data of a write whose buffer the host changes while the command is in service.
fn written_although_changed(fetch: Fetch) -> u8 {
    let (mut host, mut pair) = host(fetch);
    let from = host.page(1);
    host.port.memory.write(from, &[1; 512]).unwrap();
    let change = |port: &TestPort| port.memory.write(from, &[2; 512]).unwrap();
    assert_eq!(run(&mut host, &mut pair, write(7, 1, from, 512), change).status(), Status::SUCCESS);
    stored(&mut host, &mut pair, 7)
}

/// Two faulty hosts: one fills its buffer after the doorbell, which late reads do not detect; the
/// other reuses its buffer before the completion, which early reads do not detect.
#[test]
fn touched_buffer_is_noticed() {
    let fills_late = |fetch| written_although_changed(fetch) != 2;
    let reuses_early = |fetch| written_although_changed(fetch) != 1;
    assert_eq!((ALL.map(fills_late), ALL.map(reuses_early)), ([false, true], [true, false]));
}

/// A host that frees a PRP list, or fills it late, while the command is in service.
#[test]
fn pointer_lists_are_fetched_early() {
    for (fetch, expected) in
        [(Fetch::Late, Status::DATA_TRANSFER_ERROR), (Fetch::Early, Status::SUCCESS)]
    {
        for op in [nvme::io::read, nvme::io::write] {
            let (mut host, mut pair) = host(fetch);
            let data = host.page(8);
            let (list, dptr) = listed(&mut host, data, 32 << 10);
            let sqe = op(Nsid(1), Lba(0), 64, dptr, Flags::NONE);
            let spoil = |port: &TestPort| port.memory.write(list, &[0xff; 8 * 7]).unwrap();
            let status = run(&mut host, &mut pair, sqe, spoil).status().kind();
            assert!(
                if fetch == Fetch::Late { status != Status::SUCCESS } else { status == expected },
                "{fetch:?}: {status}"
            );
        }
    }
}

#[test]
fn early_list_reads_current_data() {
    let (mut host, mut pair) = host(Fetch::Early);
    let (from, to) = (host.page(8), host.page(8));
    let pattern: Vec<u8> = (0..32 << 10).map(|n| (n % 251) as u8).collect();
    host.port.memory.write(from, &pattern).unwrap();
    let (_, out) = listed(&mut host, from, 32 << 10);
    let (_, back) = listed(&mut host, to, 32 << 10);
    assert_eq!(
        run(&mut host, &mut pair, nvme::io::write(Nsid(1), Lba(8), 64, out, Flags::NONE), |_| ())
            .status(),
        Status::SUCCESS
    );
    assert_eq!(
        run(&mut host, &mut pair, nvme::io::read(Nsid(1), Lba(8), 64, back, Flags::NONE), |_| ())
            .status(),
        Status::SUCCESS
    );
    assert_eq!(host.port.memory.bytes(to, 32 << 10), pattern);
}

#[test]
fn unreachable_memory_fails_in_time() {
    let (mut host, mut pair) = host(Fetch::Early);
    let begun = host.now;
    let status = run(&mut host, &mut pair, write(0, 1, 0x1000, 512), |_| ()).status();
    assert_eq!((status.kind(), status.do_not_retry()), (Status::DATA_TRANSFER_ERROR, true));
    assert!(host.now > begun);
}

/// By the seed some commands read early and some late: within a few commands each kind of faulty
/// host is detected.
#[test]
fn mixed_order_follows_the_seed() {
    let kinds = |seed| {
        let config = Config { fetch: Fetch::Mixed, seed, ..Config::new(Profile::optane()) };
        let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
        let mut pair = host.pair(1, 64);
        let from = host.page(1);
        let early = |lba: u64| {
            host.port.memory.write(from, &[1; 512]).unwrap();
            run(&mut host, &mut pair, write(lba, 1, from, 512), |port| {
                port.memory.write(from, &[2; 512]).unwrap()
            });
            stored(&mut host, &mut pair, lba) == 1
        };
        (0..32).map(early).collect::<Vec<_>>()
    };
    let first = kinds(3);
    assert!(first.contains(&true) && first.contains(&false), "{first:?}");
    assert_eq!(first, kinds(3));
    assert_ne!(first, kinds(4));
}

/// A lost path keeps the data that were read early, not the buffer's later content.
#[test]
fn lost_path_executes_fetched_commands() {
    for (fetch, expected) in [(Fetch::Late, 2), (Fetch::Early, 1)] {
        let (mut host, mut pair) = host(fetch);
        let from = host.page(1);
        host.port.memory.write(from, &[1; 512]).unwrap();
        let cid = host.cid();
        host.post(&mut pair, write(3, 1, from, 512), cid);
        host.ring(&pair);
        host.settle();
        host.port.memory.write(from, &[2; 512]).unwrap();
        host.device.change(host.now, Change::Lost(Loss::Frozen));
        host.settle();
        host.port.memory.write(from, &[3; 512]).unwrap();
        host.run_until(host.now + Nanos::from_millis(1));
        assert!(host.reap(&mut pair, 9).is_empty());
        let mut block = [0; 512];
        host.device
            .store
            .get_mut(Nsid(1))
            .unwrap()
            .media_mut()
            .read_at(3 * 512, &mut block)
            .unwrap();
        assert_eq!(block[0], expected, "{fetch:?}");
    }
}

/// Data are dropped when a command completes otherwise.
#[test]
fn fetched_data_goes_with_its_command() {
    let (mut host, mut pair) = host(Fetch::Early);
    let from = host.page(1);
    for n in 0..3 {
        let cid = host.cid();
        host.post(&mut pair, write(n, 1, from, 512), cid);
        host.ring(&pair);
        host.settle();
        let abort = nvme::admin::Abort { sq: nvme::QueueId(1), cid };
        assert!(host.admin(abort.to_sqe()).result == nvme::admin::Abort::ABORTED);
        assert!(host.device.early.fetched.is_empty());
    }
    host.reap(&mut pair, 9);
    let cid = host.cid();
    host.post(&mut pair, write(9, 1, from, 512), cid);
    host.ring(&pair);
    host.settle();
    assert_eq!(host.device.early.fetched.len(), 1);
    host.set_cc(nvme::regs::Cc::new());
    host.settle();
    assert!(host.device.early.fetched.is_empty(), "a reset forgets it");
}
