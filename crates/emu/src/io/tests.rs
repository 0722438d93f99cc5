mod bad_blocks;
mod checks;
mod dataless;
mod sgl;

use std::sync::{Arc, Mutex};

use nvme::prp::{build, list_len};
use nvme::{Lba, QueueId};
use proptest::prelude::*;
use units::Nanos;

use super::*;
use crate::media::WriteCache;
use crate::testing::{Host, Pair, TestPort, mem, random_below, read, short, write};
use crate::{Budget, Config, Media, MediaError, MediaOperation, Mem, Profile};

fn host(namespaces: Vec<NamespaceConfig>) -> (Host<TestPort>, Pair) {
    let mut host = Host::new(Config::new(Profile::optane()), namespaces).ready();
    let pair = host.pair(1, 16);
    (host, pair)
}

/// Executes one command.
fn run(host: &mut Host<TestPort>, pair: &mut Pair, sqe: Sqe) -> Status {
    let cid = host.cid();
    host.post(pair, sqe, cid);
    host.ring(pair);
    host.run_until(host.now + Nanos::from_millis(10));
    let found = host.reap(pair, 9);
    assert_eq!((found.len(), found[0].cid()), (1, cid));
    found[0].status()
}

/// PRPs to any number of pages, with a list in its own memory.
fn pointer(host: &mut Host<TestPort>, addr: u64, len: u64) -> Dptr {
    let list_bytes = list_len(len, PageSize::MIN);
    let list = Segment { addr: host.page(list_bytes.div_ceil(4096)), len: list_bytes };
    let put = |at: u64, entry: u64| host.port.memory.write(at, &entry.to_le_bytes()).unwrap();
    build(Segment { addr, len }, PageSize::MIN, list, put).unwrap()
}

#[test]
fn bad_commands_get_their_status() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512), mem(8 << 20, 4096)]);
    let to = host.page(2);
    let valid = read(0, 1, to, 512);
    let list = pointer(&mut host, to, 512);
    let too_long = nvme::io::read(Nsid(2), Lba(0), 257, list, Flags::NONE);
    for (sqe, expected) in [
        (valid, Status::SUCCESS),
        (Sqe { opcode: 0x7f, ..valid }, Status::INVALID_OPCODE),
        (Sqe { nsid: 0, ..valid }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { nsid: 3, ..valid }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { nsid: u32::MAX, ..valid }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { flags: 0x40, ..valid }, Status::INVALID_FIELD),
        (Sqe { flags: 1, ..valid }, Status::INVALID_FIELD),
        (Sqe { cdw12: valid.cdw12 | 1 << 29, ..valid }, Status::INVALID_PROTECTION_INFORMATION),
        (read(2048, 1, to, 512), Status::LBA_OUT_OF_RANGE),
        (read(2047, 2, to, 1024), Status::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 1, to, 512), Status::LBA_OUT_OF_RANGE),
        (too_long, Status::INVALID_FIELD),
        (Sqe { prp1: to + 2, ..valid }, Status::PRP_OFFSET_INVALID),
        (Sqe { prp1: 0x1000, ..valid }, Status::DATA_TRANSFER_ERROR),
        (write(0, 1, 0x1000, 512), Status::DATA_TRANSFER_ERROR),
        (Sqe { prp1: !3, prp2: to, ..valid }, Status::DATA_TRANSFER_ERROR),
        (nvme::io::flush(Nsid(1)), Status::SUCCESS),
        (nvme::io::flush(Nsid::ALL), Status::SUCCESS),
        (nvme::io::flush(Nsid(9)), Status::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        let status = run(&mut host, &mut pair, sqe);
        assert_eq!(status.kind(), expected, "{sqe:?}");
        assert_eq!(
            (status.more(), status.do_not_retry()),
            (expected != Status::SUCCESS, expected != Status::SUCCESS)
        );
    }
}

#[test]
fn list_outside_memory_is_refused() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512)]);
    let to = host.page(8);
    let sqe = Sqe {
        prp2: 0xdead_0000,
        ..nvme::io::read(Nsid(1), Lba(0), 64, Dptr { prp1: to, prp2: 0 }, Flags::NONE)
    };
    assert_eq!(run(&mut host, &mut pair, sqe).kind(), Status::DATA_TRANSFER_ERROR);
}

#[test]
fn read_overwrites_the_buffer() {
    for profile in [Profile::optane(), Profile::tlc(), Profile::cloud(), Profile::bimodal()] {
        let mut host = Host::new(Config::new(profile), vec![mem(1 << 20, 512)]).ready();
        let mut pair = host.pair(1, 16);
        let to = host.page(1);
        host.port.memory.write(to, &[3; 4096]).unwrap();
        let before = host.port.dma_written.get();
        assert_eq!(run(&mut host, &mut pair, read(0, 8, to, 4096)), Status::SUCCESS);
        assert_eq!(
            (host.port.memory.bytes(to, 4096), host.port.dma_written.get() - before),
            (vec![0; 4096], 4096)
        );
    }
}

#[test]
fn null_moves_nothing() {
    let mut host = Host::new(Config::new(Profile::null()), vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 16);
    let to = host.page(1);
    host.port.memory.write(to, &[3; 4096]).unwrap();
    let before = host.port.dma_written.get();
    assert_eq!(run(&mut host, &mut pair, read(0, 8, to, 4096)), Status::SUCCESS);
    assert_eq!(
        (host.port.memory.bytes(to, 4096), host.port.dma_written.get()),
        (vec![3; 4096], before)
    );
}

/// A medium that fails a selected operation.
struct Refusing(Arc<Mutex<Option<MediaOperation>>>);

impl Refusing {
    fn answer(&self, what: MediaOperation) -> Result<(), MediaError> {
        let refused = *self.0.lock().unwrap() == Some(what);
        if refused {
            Err(MediaError::Io { what, at: 0, source: std::io::Error::other("no") })
        } else {
            Ok(())
        }
    }
}

impl Media for Refusing {
    fn bytes(&self) -> u64 {
        1 << 20
    }

    fn read_at(&mut self, _: u64, _: &mut [u8]) -> Result<(), MediaError> {
        self.answer(MediaOperation::Read)
    }

    fn write_at(&mut self, _: u64, _: &[u8], _: bool) -> Result<(), MediaError> {
        self.answer(MediaOperation::Write)
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.answer(MediaOperation::Flush)
    }
}

#[test]
fn media_errors_become_media_status() {
    let refuse = Arc::new(Mutex::new(None));
    let (mut host, mut pair) =
        host(vec![NamespaceConfig::new(Refusing(refuse.clone()), 512).unwrap()]);
    let page = host.page(1);
    let commands = [read(0, 1, page, 512), write(0, 1, page, 512), nvme::io::flush(Nsid(1))];
    for (access, bad, expected) in [
        (MediaOperation::Read, 0, Status::UNRECOVERED_READ_ERROR),
        (MediaOperation::Write, 1, Status::WRITE_FAULT),
        (MediaOperation::Flush, 2, Status::WRITE_FAULT),
    ] {
        *refuse.lock().unwrap() = Some(access);
        for (n, sqe) in commands.iter().enumerate() {
            let status = run(&mut host, &mut pair, *sqe);
            assert_eq!(status.kind(), if n == bad { expected } else { Status::SUCCESS });
        }
    }
}

#[test]
fn full_budget_fails_only_writes() {
    let mem = Mem::new(1 << 40, Budget::new(1 << 20));
    let (mut host, mut pair) = host(vec![NamespaceConfig::mem(mem, 4096).unwrap()]);
    let page = host.page(1);
    let mut statuses =
        (0..300).map(|n| run(&mut host, &mut pair, write(n * 1000, 1, page, 4096)).kind());
    assert_eq!(statuses.by_ref().take_while(|s| s.is_success()).count(), 256);
    assert!(statuses.all(|s| s == Status::CAPACITY_EXCEEDED));
    assert_eq!(run(&mut host, &mut pair, write(0, 1, page, 4096)), Status::SUCCESS);
    assert_eq!(run(&mut host, &mut pair, read(299_000, 1, page, 4096)), Status::SUCCESS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// Reads return written data, through PRPs of every shape, on memory and on another medium.
    #[test]
    fn data_match_the_model(seed in any::<u64>(), block in prop::sample::select(vec![512u32, 4096]), plain in any::<bool>()) {
        const BYTES: u64 = 1 << 20;
        let mem = Mem::new(BYTES, Budget::new(2 << 20));
        let namespace = if plain { NamespaceConfig::mem(mem, block) } else { NamespaceConfig::new(WriteCache::new(mem, block, 20), block) };
        let (mut host, mut pair) = host(vec![namespace.unwrap()]);
        let mut model = vec![0u8; BYTES as usize];
        let mut roll = random_below(seed);
        let arena = host.page(80);
        for n in 0..60u32 {
            let blocks = 1 + roll(u64::from((256 << 10) / block));
            let len = blocks * u64::from(block);
            let lba = roll(BYTES / u64::from(block) - blocks + 1);
            let addr = arena + roll(1024) * 4;
            let dptr = pointer(&mut host, addr, len);
            let range = (lba * u64::from(block)) as usize..((lba + blocks) * u64::from(block)) as usize;
            if roll(2) == 0 {
                let data: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n as u8).collect();
                host.port.memory.write(addr, &data).unwrap();
                let status = run(&mut host, &mut pair, nvme::io::write(Nsid(1), Lba(lba), blocks as u32, dptr, Flags::NONE));
                prop_assert_eq!(status, Status::SUCCESS);
                model[range].copy_from_slice(&data);
            } else {
                let status = run(&mut host, &mut pair, nvme::io::read(Nsid(1), Lba(lba), blocks as u32, dptr, Flags::NONE));
                prop_assert_eq!(status, Status::SUCCESS);
                prop_assert!(host.port.memory.bytes(addr, len as usize) == model[range]);
            }
        }
    }
}

/// Negative test: a Flush that does nothing.
struct NoFlush(Arc<Mutex<WriteCache<Mem>>>);

impl Media for NoFlush {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        self.0.write_at(at, from, fua)
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        Ok(())
    }
}

/// Writes with commands in flight, cuts the power between two steps, and reads back through a new
/// controller.
fn survives_power_cuts<M: Media + 'static>(
    seed: u64,
    medium: impl Fn(Arc<Mutex<WriteCache<Mem>>>) -> M,
) -> Result<(), String> {
    const BLOCKS: u64 = 32;
    let mut roll = random_below(seed);
    let cache = Arc::new(Mutex::new(WriteCache::new(
        Mem::new(BLOCKS * 512, Budget::new(1 << 20)),
        512,
        99,
    )));
    let (mut host, mut pair) =
        host(vec![NamespaceConfig::new(medium(cache.clone()), 512).unwrap()]);
    let from = host.page(64);
    // Per block, the last write acknowledged as durable. Write n fills its blocks with n.
    let mut durable = vec![0u8; BLOCKS as usize];
    let mut completed = durable.clone();
    let mut pending = std::collections::HashMap::new();
    for n in 1..60u8 {
        let page = from + u64::from(n) * 4096;
        let kind = roll(8);
        // One write per block at a time, as the order of commands in flight is undefined.
        let block = (u64::from(n) * 2) % BLOCKS;
        let sqe = match kind {
            0 => nvme::io::flush(Nsid(1)),
            _ => {
                host.port.memory.write(page, &[n; 1024]).unwrap();
                let flags = if kind == 1 { Flags::FUA } else { Flags::NONE };
                nvme::io::write(Nsid(1), Lba(block), 2, short(page, 1024), flags)
            }
        };
        let cid = host.cid();
        // A Flush covers the writes that had completed when it was submitted (Base 7.2).
        pending.insert(cid, (kind, n, block, completed.clone()));
        host.post(&mut pair, sqe, cid);
        host.ring(&pair);
        host.run_until(host.now + Nanos(roll(8_000)));
        for cqe in host.reap(&mut pair, 99) {
            let (kind, n, block, covered) =
                pending.remove(&cqe.cid()).ok_or("a foreign completion")?;
            if kind == 0 {
                durable.iter_mut().zip(covered).for_each(|(d, c)| *d = (*d).max(c));
            } else {
                completed[block as usize..block as usize + 2].fill(n);
                if kind == 1 {
                    durable[block as usize..block as usize + 2].fill(n);
                }
            }
        }
    }
    cache.lock().unwrap().cut(seed).map_err(|e| e.to_string())?;
    let mut bytes = vec![0; (BLOCKS * 512) as usize];
    cache.lock().unwrap().read_at(0, &mut bytes).map_err(|e| e.to_string())?;
    for (n, block) in bytes.chunks(512).enumerate() {
        if block.iter().any(|&b| b != block[0]) {
            return Err(format!("block {n} is a mix"));
        }
        if block[0] < durable[n] {
            return Err(format!(
                "block {n} holds write {}, but {} was acknowledged as durable",
                block[0], durable[n]
            ));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn flush_and_fua_survive_power_cuts(seed in any::<u64>()) {
        survives_power_cuts(seed, |cache| cache).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn missing_flush_is_caught() {
    let caught = (0..40).filter_map(|seed| survives_power_cuts(seed, NoFlush).err()).next();
    assert!(caught.is_some_and(|what| what.contains("durable")));
}

#[test]
fn flush_of_all_namespaces_reaches_each() {
    let caches = [(); 2].map(|()| {
        Arc::new(Mutex::new(WriteCache::new(Mem::new(1 << 16, Budget::new(1 << 20)), 512, 99)))
    });
    let (mut host, mut pair) =
        host(caches.iter().map(|c| NamespaceConfig::new(c.clone(), 512).unwrap()).collect());
    let page = host.page(1);
    for nsid in [1, 2] {
        assert_eq!(
            run(&mut host, &mut pair, Sqe { nsid, ..write(3, 1, page, 512) }),
            Status::SUCCESS
        );
    }
    let dirty = || caches.each_ref().map(|c| c.lock().unwrap().dirty_blocks());
    assert_eq!(dirty(), [1, 1]);
    assert_eq!(run(&mut host, &mut pair, nvme::io::flush(Nsid(2))), Status::SUCCESS);
    assert_eq!(dirty(), [1, 0]);
    assert_eq!(run(&mut host, &mut pair, nvme::io::flush(Nsid::ALL)), Status::SUCCESS);
    assert_eq!((dirty(), pair.id), ([0, 0], QueueId(1)));
}
