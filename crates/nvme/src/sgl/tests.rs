use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const DATA: u64 = 0x10_0000;
const LIST: u64 = 0x20_0000;

/// Descriptors by address, and how often each was fetched.
#[derive(Debug, Default)]
struct Memory {
    stored: HashMap<u64, Descriptor>,
    fetched: HashMap<u64, u32>,
}

impl Memory {
    fn of(segments: &[(u64, &[Descriptor])]) -> Memory {
        let mut memory = Memory::default();
        for &(at, descriptors) in segments {
            memory.stored.extend((at..).step_by(16).zip(descriptors.iter().copied()));
        }
        memory
    }

    fn fetch(&mut self, addr: u64, into: &mut [u8]) -> Result<(), ()> {
        for (at, to) in (addr..).step_by(16).zip(into.chunks_exact_mut(16)) {
            to.copy_from_slice(self.stored.get(&at).ok_or(())?.as_bytes());
            *self.fetched.entry(at).or_default() += 1;
        }
        Ok(())
    }

    /// Walks a command of `len` bytes with this descriptor.
    fn walk(&mut self, first: Descriptor, len: u64) -> Result<Vec<Segment>, Status> {
        let mut found = Vec::new();
        walk(first.dptr(), len, |at, into| self.fetch(at, into), |segment| found.push(segment))
            .map(|()| found)
    }
}

fn block(addr: u64, len: u32) -> Descriptor {
    Descriptor::data_block(addr, len)
}

fn segment(addr: u64, len: u64) -> Segment {
    Segment { addr, len }
}

#[test]
fn sgl_descriptor_layout() {
    let bytes = Descriptor::last_segment(0x0102_0304_0506_0708, 2);
    assert_eq!(bytes.as_bytes(), [8, 7, 6, 5, 4, 3, 2, 1, 32, 0, 0, 0, 0, 0, 0, 0x30]);
    assert_eq!(Descriptor::segment(0, 1).kind, 0x20);
    let odd = Descriptor { addr: 1, len: 0x8000_0002, reserved: [3, 4, 5], kind: 0xf6 };
    assert_eq!(Descriptor::of(odd.dptr()), odd);
}

#[test]
fn data_block_needs_no_fetch() {
    let mut memory = Memory::default();
    assert_eq!(memory.walk(block(DATA + 4, 8192), 8192), Ok(vec![segment(DATA + 4, 8192)]));
    // Reserved bytes are ignored.
    assert_eq!(
        memory.walk(Descriptor { reserved: [1, 2, 3], ..block(DATA, 512) }, 512),
        Ok(vec![segment(DATA, 512)])
    );
}

#[test]
fn touching_segments_are_merged() {
    let mut memory = Memory::of(&[
        (
            LIST,
            &[block(DATA, 512), block(DATA + 512, 512), Descriptor::last_segment(LIST + 4096, 3)],
        ),
        (LIST + 4096, &[block(DATA + 8192, 1024), block(DATA, 0), block(DATA + 4096, 2048)]),
    ]);
    let all = vec![segment(DATA, 1024), segment(DATA + 8192, 1024), segment(DATA + 4096, 2048)];
    assert_eq!(memory.walk(Descriptor::segment(LIST, 3), 4096), Ok(all));
    assert!(
        memory.fetched.len() == 6 && memory.fetched.values().all(|&times| times == 1),
        "{:?}",
        memory.fetched
    );
}

#[test]
fn each_mistake_has_its_status() {
    let of_kind = |kind| Descriptor { kind, ..block(DATA, 512) };
    let good = [block(DATA, 256), block(DATA + 4096, 256)];
    let last = Descriptor::last_segment(LIST, 2);
    let leads_on = [block(DATA, 512), Descriptor::last_segment(LIST + 4096, 1)];
    let ends = Descriptor::last_segment(LIST + 4096, 1);
    let cases: &[(&str, Descriptor, &[Descriptor], Status)] = &[
        ("too little data", block(DATA, 508), &[], Status::DATA_SGL_LENGTH_INVALID),
        ("too much data", block(DATA, 516), &[], Status::DATA_SGL_LENGTH_INVALID),
        (
            "too little in a segment",
            Descriptor::last_segment(LIST, 1),
            &good,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "more after all of it",
            Descriptor::last_segment(LIST, 2),
            &[block(DATA, 512), block(DATA, 4)],
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "an unaligned address",
            block(DATA + 2, 512),
            &[],
            Status::SGL_DATA_BLOCK_GRANULARITY_INVALID,
        ),
        (
            "part of a dword",
            last,
            &[block(DATA, 510), block(DATA, 2)],
            Status::SGL_DATA_BLOCK_GRANULARITY_INVALID,
        ),
        ("a bit bucket", of_kind(0x10), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("a keyed data block", of_kind(0x40), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("a transport's", of_kind(0x5a), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("a vendor's", of_kind(0xf0), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("an offset", of_kind(0x01), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (
            "a segment by offset",
            Descriptor { kind: 0x31, ..last },
            &good,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            "an empty segment",
            Descriptor::last_segment(LIST, 0),
            &[],
            Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
        ),
        (
            "part of a descriptor",
            Descriptor { len: 24, ..last },
            &good,
            Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
        ),
        (
            "an unaligned segment",
            Descriptor::last_segment(LIST + 4, 2),
            &good,
            Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
        ),
        ("a last segment that leads on", last, &leads_on, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (
            "a last segment with one within",
            last,
            &[ends, block(DATA, 512)],
            Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
        ),
        (
            "a segment that leads nowhere",
            Descriptor::segment(LIST, 2),
            &good,
            Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
        ),
        (
            "a segment's in the middle",
            Descriptor::segment(LIST, 2),
            &[ends, block(DATA, 512)],
            Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS,
        ),
        (
            "too many at once",
            Descriptor::last_segment(LIST, MAX_DESCRIPTORS + 1),
            &good,
            Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS,
        ),
        (
            "memory that there is not",
            Descriptor::last_segment(LIST + 64, 1),
            &good,
            Status::DATA_TRANSFER_ERROR,
        ),
        (
            "the end of all addresses",
            Descriptor::last_segment(u64::MAX - 7, 2),
            &good,
            Status::DATA_TRANSFER_ERROR,
        ),
    ];
    for &(what, first, at_list, status) in cases {
        assert_eq!(
            Memory::of(&[(LIST, at_list)]).walk(first, 512),
            Err(status.with_dnr()),
            "{what}"
        );
    }
}

#[test]
fn endless_list_is_refused() {
    // A segment that points to itself and has no data: its length is not exceeded.
    let mut memory = Memory::of(&[(LIST, &[block(DATA, 0), Descriptor::segment(LIST, 2)])]);
    let refused = memory.walk(Descriptor::segment(LIST, 2), 512);
    assert_eq!(refused, Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS.with_dnr()));
    assert_eq!(memory.fetched.values().sum::<u32>(), MAX_DESCRIPTORS);
    // The longest possible list is accepted.
    let most: Vec<_> = (0..u64::from(MAX_DESCRIPTORS)).map(|n| block(DATA + n * 8, 4)).collect();
    let found = Memory::of(&[(LIST, &most)])
        .walk(Descriptor::last_segment(LIST, MAX_DESCRIPTORS), u64::from(MAX_DESCRIPTORS) * 4);
    assert_eq!(found.map(|found| found.len()), Ok(most.len()));
}

proptest! {
    /// For any split into data blocks and segments each byte is found once, in order, and each
    /// descriptor is fetched once.
    #[test]
    fn what_a_host_lists_is_found(
        lens in prop::collection::vec((0u32..64, 0u64..3), 1..80),
        per_segment in 2usize..40,
    ) {
        let mut at = DATA;
        let blocks: Vec<_> = lens.iter().map(|&(dwords, gap)| {
            at += gap * 4096;
            let block = block(at, dwords * 4);
            at += u64::from(dwords) * 4;
            block
        }).collect();
        let len: u64 = blocks.iter().map(|block| u64::from(block.len)).sum();
        // From the end, each segment with a descriptor for the following one.
        let (mut memory, mut first) = (Memory::default(), None::<Descriptor>);
        for (n, blocks) in blocks.chunks(per_segment - 1).enumerate().collect::<Vec<_>>().into_iter().rev() {
            let at = LIST + n as u64 * 8192;
            let all: Vec<_> = blocks.iter().copied().chain(first).collect();
            memory.stored.extend((at..).step_by(16).zip(all.iter().copied()));
            let make = if first.is_some() { Descriptor::segment } else { Descriptor::last_segment };
            first = Some(make(at, all.len() as u32));
        }
        let found = memory.walk(first.expect("one at least"), len).expect("a list as it should be");
        let bytes = |addr: u64, len: u64| (addr..addr + len).step_by(4);
        let wanted: Vec<u64> = blocks.iter().flat_map(|block| bytes(block.addr, block.len.into())).collect();
        let walked: Vec<u64> = found.iter().flat_map(|run| bytes(run.addr, run.len)).collect();
        prop_assert_eq!(walked, wanted);
        prop_assert!(memory.fetched.len() == memory.stored.len() && memory.fetched.values().all(|&times| times == 1));
    }

    /// For any memory content the walk ends, returns all data or an error, and fetches at most the
    /// allowed number of descriptors.
    #[test]
    fn any_bytes_are_judged(kinds in prop::collection::vec(any::<(u8, u8, u8)>(), 1..64), len in 0u64..4096) {
        let any = |n: usize| {
            let (kind, size, to) = kinds[n % kinds.len()];
            let kind = [0x00, 0x00, 0x20, 0x30, kind][usize::from(kind % 5)];
            let (addr, len) = if kind == 0 { (DATA, u32::from(size)) } else { (LIST, u32::from(size % 8) * 16) };
            Descriptor { addr: addr + u64::from(to & !3) * 8, len, reserved: [0; 3], kind }
        };
        let mut memory = Memory::of(&[(LIST, &(0..400).map(any).collect::<Vec<_>>())]);
        let found = memory.walk(any(0), len);
        if let Ok(found) = found {
            prop_assert_eq!(found.iter().map(|run| run.len).sum::<u64>(), len);
        }
        prop_assert!(memory.fetched.values().sum::<u32>() <= MAX_DESCRIPTORS);
    }
}
