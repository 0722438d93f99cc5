//! Commands with SGLs.

use nvme::sgl::{Descriptor, MAX_DESCRIPTORS};
use zerocopy::IntoBytes;

use super::*;

/// A controller with SGL support and this namespace.
fn host_with(namespace: NamespaceConfig, fetch: crate::Fetch) -> (Host<TestPort>, Pair) {
    let config = Config { sgls: true, fetch, ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![namespace]).ready();
    let pair = host.pair(1, 16);
    (host, pair)
}

fn with_sgl(sqe: Sqe, first: Descriptor) -> Sqe {
    let Dptr { prp1, prp2 } = first.dptr();
    Sqe { flags: Sqe::PSDT_SGL, prp1, prp2, ..sqe }
}

fn put(host: &Host<TestPort>, at: u64, list: &[Descriptor]) {
    host.port.memory.write(at, list.as_bytes()).unwrap();
}

#[test]
fn sgls_need_their_capability() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512)]);
    let to = host.page(1);
    let sqe = with_sgl(read(0, 1, to, 512), Descriptor::data_block(to, 512));
    assert_eq!(run(&mut host, &mut pair, sqe).kind(), Status::INVALID_FIELD);
}

#[test]
fn bad_sgls_move_no_data() {
    let (mut host, mut pair) = host_with(mem(1 << 20, 512), crate::Fetch::Late);
    let (to, list) = (host.page(2), host.page(1));
    let block = Descriptor::data_block(to, 1024);
    put(&host, list, &[Descriptor::data_block(to, 512), Descriptor::data_block(to + 512, 1024)]);
    let of_kind = |flags| Sqe { flags, ..with_sgl(read(0, 2, to, 1024), block) };
    let through = |first| with_sgl(read(0, 2, to, 1024), first);
    for (sqe, status) in [
        // PSDT: metadata SGL, and the reserved value; FUSE is not supported either.
        (of_kind(0x80), Status::INVALID_FIELD),
        (of_kind(0xc0), Status::INVALID_FIELD),
        (of_kind(0x41), Status::INVALID_FIELD),
        (through(Descriptor::data_block(to, 512)), Status::DATA_SGL_LENGTH_INVALID),
        (through(Descriptor::last_segment(list, 2)), Status::DATA_SGL_LENGTH_INVALID),
        (
            through(Descriptor::last_segment(list, MAX_DESCRIPTORS + 1)),
            Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS,
        ),
        (through(Descriptor::last_segment(0x1000, 1)), Status::DATA_TRANSFER_ERROR),
        (through(Descriptor { kind: 0x10, ..block }), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (Sqe { opcode: 0x7f, ..through(block) }, Status::INVALID_OPCODE),
    ] {
        let before = host.port.dma_written.get();
        assert_eq!(run(&mut host, &mut pair, sqe).kind(), status, "{sqe:?}");
        assert_eq!(host.port.dma_written.get(), before, "{sqe:?}");
    }
    assert_eq!(run(&mut host, &mut pair, through(block)), Status::SUCCESS);
    assert_eq!(
        run(&mut host, &mut pair, Sqe { flags: Sqe::PSDT_SGL, ..nvme::io::flush(Nsid(1)) }),
        Status::SUCCESS
    );
}

#[test]
fn admin_commands_have_prps() {
    let (mut host, _) = host_with(mem(1 << 20, 512), crate::Fetch::Late);
    let to = host.page(1);
    let identify = nvme::admin::Identify::new(
        nvme::admin::cns::CONTROLLER,
        Nsid(0),
        Dptr { prp1: to, prp2: 0 },
    )
    .to_sqe();
    assert!(host.admin(identify).status().is_success());
    let page = host.port.memory.bytes(to, 4096);
    assert_eq!(page[536..540], nvme::identify::Controller::SGLS_DWORDS.to_le_bytes());
    let refused = host.admin(with_sgl(identify, Descriptor::data_block(to, 4096)));
    assert_eq!(refused.status().kind(), Status::INVALID_FIELD);
}

/// Splits `len` bytes at `addr` into random data blocks and segments.
fn any_list(
    host: &mut Host<TestPort>,
    roll: &mut impl FnMut(u64) -> u64,
    addr: u64,
    len: u64,
) -> Descriptor {
    let (mut blocks, mut at) = (Vec::new(), addr);
    while at < addr + len {
        let piece = ((4 + roll(len / 8 + 8)) & !3).min(addr + len - at) as u32;
        blocks.push(Descriptor::data_block(at, piece));
        at += u64::from(piece);
    }
    if let [block] = blocks[..] {
        return block;
    }
    let mut first = None::<Descriptor>;
    for blocks in blocks.rchunks(1 + roll(9) as usize) {
        let list = host.page(1);
        let all: Vec<_> = blocks.iter().copied().chain(first).collect();
        put(host, list, &all);
        let make = if first.is_some() { Descriptor::segment } else { Descriptor::last_segment };
        first = Some(make(list, all.len() as u32));
    }
    first.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// Reads return written data, through SGLs of every shape, on memory and on another medium,
    /// with early and late reads of the list.
    #[test]
    fn data_match_the_model(seed in any::<u64>(), plain in any::<bool>(), fetch in 0usize..3) {
        const BYTES: u64 = 1 << 20;
        let medium = Mem::new(BYTES, Budget::new(2 << 20));
        let namespace = if plain { NamespaceConfig::mem(medium, 512) } else { NamespaceConfig::new(WriteCache::new(medium, 512, 20), 512) };
        let fetch = crate::Fetch::named(crate::Fetch::NAMES[fetch]).unwrap();
        let (mut host, mut pair) = host_with(namespace.unwrap(), fetch);
        let mut model = vec![0u8; BYTES as usize];
        let mut roll = random_below(seed);
        let arena = host.page(24);
        for n in 0..20u32 {
            let (blocks, addr) = (1 + roll(128), arena + roll(1024) * 4);
            let (lba, len) = (roll(BYTES / 512 - blocks + 1), blocks * 512);
            let first = any_list(&mut host, &mut roll, addr, len);
            let range = (lba * 512) as usize..((lba + blocks) * 512) as usize;
            if roll(2) == 0 {
                let data: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n as u8).collect();
                host.port.memory.write(addr, &data).unwrap();
                let sqe = with_sgl(nvme::io::write(Nsid(1), Lba(lba), blocks as u32, Dptr::NONE, Flags::NONE), first);
                prop_assert_eq!(run(&mut host, &mut pair, sqe), Status::SUCCESS);
                model[range].copy_from_slice(&data);
            } else {
                let sqe = with_sgl(nvme::io::read(Nsid(1), Lba(lba), blocks as u32, Dptr::NONE, Flags::NONE), first);
                prop_assert_eq!(run(&mut host, &mut pair, sqe), Status::SUCCESS);
                prop_assert!(host.port.memory.bytes(addr, len as usize) == model[range.clone()]);
                let sqe = with_sgl(nvme::io::compare(Nsid(1), Lba(lba), blocks as u32, Dptr::NONE), first);
                prop_assert_eq!(run(&mut host, &mut pair, sqe), Status::SUCCESS);
            }
        }
    }
}
