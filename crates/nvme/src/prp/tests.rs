use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::Status;
use crate::tests::counterexample;

const MIB: u64 = 1 << 20;

/// Memory of PRP entries: stored values, otherwise a value derived from the address.
#[derive(Clone, Debug, Default)]
struct Memory {
    stored: HashMap<u64, u64>,
    /// An entry that was not stored is `salt` mixed with its address, with its page offset masked.
    salt: u64,
    offset_mask: u64,
}

impl Memory {
    fn entry(&self, addr: u64) -> u64 {
        let mixed = || {
            (addr ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
                & self.offset_mask
        };
        self.stored.get(&addr).copied().unwrap_or_else(mixed)
    }

    fn fetch(&self, addr: u64, into: &mut [u8]) -> Result<(), ()> {
        for (entry, to) in (addr..).step_by(8).zip(into.chunks_exact_mut(8)) {
            to.copy_from_slice(&self.entry(entry).to_le_bytes());
        }
        Ok(())
    }
}

/// Rules of PRP lists; each mutant ignores one.
#[derive(Clone, Copy)]
struct Rules {
    /// A list may begin within a page.
    list_has_offset: bool,
    /// The last slot of a list page holds the last entry if only one is left.
    last_slot_may_hold_data: bool,
    /// Only the first entry may have an offset.
    offsets_are_checked: bool,
}

const RULES: Rules =
    Rules { list_has_offset: true, last_slot_may_hold_data: true, offsets_are_checked: true };

/// A reference walk, straight from the specification: reads all entries, then interprets them.
fn naive(
    dptr: Dptr,
    len: u64,
    page: PageSize,
    memory: &Memory,
    rules: Rules,
) -> Result<Vec<Segment>, Status> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let size = page.bytes();
    let pages = (dptr.prp1 % size + len).div_ceil(size);
    let mut entries = vec![dptr.prp1];
    match pages {
        1 => {}
        2 => entries.push(dptr.prp2),
        _ if !dptr.prp2.is_multiple_of(8) => return Err(Status::PRP_OFFSET_INVALID),
        _ => gather(dptr.prp2, pages - 1, size, memory, rules, &mut entries)?,
    }
    let has_offset = |entry: &u64| rules.offsets_are_checked && !entry.is_multiple_of(size);
    if entries[0] % 4 != 0 || entries[1..].iter().any(has_offset) {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    let mut left = len;
    let segments = entries.into_iter().map(|addr| {
        let len = left.min(size - addr % size);
        left -= len;
        Segment { addr, len }
    });
    Ok(segments.collect())
}

/// The entries of a list, from its page at `list`.
fn gather(
    list: u64,
    wanted: u64,
    page: u64,
    memory: &Memory,
    rules: Rules,
    entries: &mut Vec<u64>,
) -> Result<(), Status> {
    let list = if rules.list_has_offset { list } else { list - list % page };
    let slots: Vec<u64> =
        (0..(page - list % page) / 8).map(|i| memory.entry(list + 8 * i)).collect();
    if wanted < slots.len() as u64
        || (wanted == slots.len() as u64 && rules.last_slot_may_hold_data)
    {
        entries.extend(&slots[..wanted as usize]);
        return Ok(());
    }
    let (&next, data) = slots.split_last().expect("a page has slots after a qword aligned address");
    entries.extend(data);
    if !next.is_multiple_of(page) {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    gather(next, wanted - data.len() as u64, page, memory, rules, entries)
}

/// The same memory, with adjacent segments merged.
fn joined(segments: Vec<Segment>) -> Vec<Segment> {
    let mut joined: Vec<Segment> = Vec::new();
    for segment in segments {
        match joined.last_mut() {
            Some(last) if last.addr.checked_add(last.len) == Some(segment.addr) => {
                last.len += segment.len
            }
            _ => joined.push(segment),
        }
    }
    joined
}

fn walk(dptr: Dptr, len: u64, page: PageSize, memory: &Memory) -> Result<Vec<Segment>, Status> {
    let mut walker = Walker::new(dptr, len, page)?;
    let mut segments = Vec::new();
    while let Some(segment) = walker.next(|addr, into| memory.fetch(addr, into))? {
        segments.push(segment);
    }
    Ok(segments)
}

type Builder = fn(Segment, PageSize, Segment, &mut dyn FnMut(u64, u64)) -> Result<Dptr, BuildError>;

fn real(
    buffer: Segment,
    page: PageSize,
    list: Segment,
    put: &mut dyn FnMut(u64, u64),
) -> Result<Dptr, BuildError> {
    build(buffer, page, list, put)
}

/// A mutant builder that differs only at the last slot of a page: `pointer` returns for which
/// numbers of remaining entries it stores a pointer there.
fn mutant(
    buffer: Segment,
    page: PageSize,
    list: Segment,
    put: &mut dyn FnMut(u64, u64),
    pointer: fn(u64) -> bool,
) -> Dptr {
    if let Some(dptr) = Dptr::short(buffer.addr, buffer.len, page) {
        return dptr;
    }
    let pages = (buffer.addr % page.bytes() + buffer.len).div_ceil(page.bytes());
    let first = buffer.addr - buffer.addr % page.bytes();
    let mut slot = list.addr;
    for number in 1..pages {
        if (slot + 8).is_multiple_of(page.bytes()) && pointer(pages - number) {
            put(slot, slot + 8);
            slot += 8;
        }
        put(slot, first + number * page.bytes());
        slot += 8;
    }
    Dptr { prp1: buffer.addr, prp2: list.addr }
}

/// A buffer, and list memory that begins at any qword and is large enough.
fn buffers(page: PageSize) -> impl Strategy<Value = (Segment, Segment)> {
    let (size, most) = (page.bytes(), 8 * MIB);
    // Lengths near a full list page, and any others.
    let full = (0..3 * size / 8, 0..3u64)
        .prop_map(move |(slack, pages)| (pages * (size / 8) * size + slack * 4).min(8 * MIB));
    let len = prop_oneof![1..3 * size, 1..most, full.prop_map(|len| len.max(1))];
    (0..size / 4, len, prop_oneof![Just(0), 0..size / 8, size / 8 - 3..size / 8]).prop_map(
        move |(dword, len, slot)| {
            let list = Segment { addr: (1 << 40) + slot * 8, len: 2 * list_len(len, page) + size };
            (Segment { addr: (1 << 30) + dword * 4, len }, list)
        },
    )
}

/// The entries built describe exactly the buffer, to the reference walk and to [`Walker`], and only
/// the list memory is written.
fn means_the_buffer(
    page: PageSize,
    &(buffer, list): &(Segment, Segment),
    builder: Builder,
) -> bool {
    let mut memory = Memory::default();
    let mut inside = true;
    let built = builder(buffer, page, list, &mut |addr, entry| {
        inside &= addr >= list.addr && addr + 8 <= list.addr + list.len && addr % 8 == 0;
        memory.stored.insert(addr, entry);
    });
    let Ok(dptr) = built else { return false };
    // List memory that was not written reads as invalid entries.
    memory.salt = 1;
    memory.offset_mask = 7;
    inside
        && naive(dptr, buffer.len, page, &memory, RULES).map(joined) == Ok(vec![buffer])
        && walk(dptr, buffer.len, page, &memory) == Ok(vec![buffer])
}

#[test]
fn what_is_built_means_the_buffer() {
    for page in [PageSize::MIN, PageSize::from_mps(1), PageSize::from_mps(4)] {
        assert_eq!(counterexample(300, buffers(page), |b| means_the_buffer(page, b, real)), None);
    }
}

#[test]
fn mutated_prp_builder_is_caught() {
    let forgets: Builder = |buffer, page, list, put| Ok(mutant(buffer, page, list, put, |_| false));
    let too_eager: Builder =
        |buffer, page, list, put| Ok(mutant(buffer, page, list, put, |_| true));
    let right: Builder =
        |buffer, page, list, put| Ok(mutant(buffer, page, list, put, |left| left > 1));
    let law = |builder| {
        counterexample(300, buffers(PageSize::MIN), |b| means_the_buffer(PageSize::MIN, b, builder))
    };
    assert!(law(forgets).is_some());
    assert!(law(too_eager).is_some());
    assert_eq!(law(right), None);
}

#[test]
fn prp_list_length_is_exact() {
    let law = |&(dword, len, exact): &(u64, u64, bool)| {
        let page = PageSize::MIN;
        // Exact lengths begin with the last dword of a page, the worst case for which the length is
        // just sufficient.
        let buffer = Segment { addr: (1 << 30) + if exact { 4092 } else { dword * 4 }, len };
        let need = list_len(len, page);
        let fits = |list_len| {
            build(buffer, page, Segment { addr: 1 << 40, len: list_len }, |_, _| ()).is_ok()
        };
        fits(need) && (!exact || need == 0 || !fits(need - 8))
    };
    assert_eq!(counterexample(1000, (0..1024u64, 1..20 * MIB, any::<bool>()), law), None);
}

#[test]
fn list_lengths_at_the_edges() {
    let len = |pages_after_first: u64| list_len(pages_after_first * 4096 + 4, PageSize::MIN);
    // 512 entries fill a page; with the 513th the last slot becomes a pointer; 511 + 512 fill two.
    assert_eq!(
        [len(0), len(1), len(2), len(512), len(513), len(1023), len(1024)],
        [0, 0, 16, 4096, 4112, 8192, 8208]
    );
    assert_eq!(list_len(0, PageSize::MIN), 0);
    let _ = list_len(u64::MAX, PageSize::MIN);
}

#[test]
fn unreachable_memory_is_refused() {
    let list = Segment { addr: 0x10_0000, len: 64 };
    let refusal = |addr, len, list| {
        let built =
            build(Segment { addr, len }, PageSize::MIN, list, |_, _| panic!("an entry was stored"));
        built.expect_err("it has no PRPs")
    };
    let unaddressable = |addr, len| BuildError::Unaddressable(Segment { addr, len });
    assert_eq!(refusal(0x1000, 0, list), unaddressable(0x1000, 0));
    assert_eq!(refusal(0x1002, 4, list), unaddressable(0x1002, 4));
    assert_eq!(refusal(0x1000, 0x3000, Segment { addr: 4, len: 64 }), unaddressable(4, 64));
    assert_eq!(refusal(0x1000, 0xb000, list), BuildError::ListTooShort { need: 80, got: 64 });
    assert_eq!(
        refusal(0x1000, 0x3000, Segment::default()),
        BuildError::ListTooShort { need: 16, got: 0 }
    );
    assert!(matches!(refusal(0, u64::MAX, list), BuildError::ListTooShort { got: 64, .. }));
    assert_eq!(refusal(u64::MAX - 3, 8, list), unaddressable(u64::MAX - 3, 8));
    assert_eq!(
        refusal(0x1000, 0x3000, Segment { addr: u64::MAX - 7, len: 4096 }),
        unaddressable(u64::MAX - 7, 4096)
    );
}

#[test]
fn last_address_is_reachable() {
    let buffer = Segment { addr: u64::MAX - 0x3fff, len: 0x4000 };
    assert!(means_the_buffer_at_the_end(buffer));
    let two_pages = Segment { addr: u64::MAX - 0x1fff, len: 0x2000 };
    assert_eq!(
        Dptr::short(two_pages.addr, two_pages.len, PageSize::MIN),
        Some(Dptr { prp1: two_pages.addr, prp2: u64::MAX - 0xfff })
    );
}

fn means_the_buffer_at_the_end(buffer: Segment) -> bool {
    let stored = Cell::new(0);
    let mut memory = Memory::default();
    let dptr = build(buffer, PageSize::MIN, Segment { addr: 0x1000, len: 4096 }, |addr, entry| {
        stored.set(stored.get() + 1);
        memory.stored.insert(addr, entry);
    });
    let walked = dptr.map(|dptr| walk(dptr, buffer.len, PageSize::MIN, &memory));
    stored.get() == 3 && walked == Ok(Ok(vec![buffer]))
}

/// PRPs of a faulty or malicious host, below 2^63, as the reference walk does not check for
/// overflow.
fn hostile() -> impl Strategy<Value = (Dptr, u64, u8, Memory)> {
    const LOW: u64 = !(1 << 63);
    let masked =
        |masks| (any::<u64>(), masks).prop_map(|(addr, mask): (u64, u64)| addr & mask & LOW);
    let prp1 = masked(prop_oneof![4 => Just(!3), 1 => Just(!0)].boxed());
    // Lists at the start, near the end and anywhere in a page; addresses may be unaligned.
    let aligned = masked(prop_oneof![3 => Just(!0xfff), 3 => Just(!7), 1 => Just(!0)].boxed());
    let near_end = (any::<u64>(), 1..40u64)
        .prop_map(|(addr, slots)| ((addr & LOW | 0x3fff) + 1 - 8 * slots) & LOW);
    let prp2 = prop_oneof![2 => aligned, 1 => near_end];
    let len = prop_oneof![0..0x4000u64, 0..40 * 4096u64, 0..6 * MIB];
    let offset_masks =
        prop_oneof![4 => Just(!0x3fff & LOW), 1 => Just(!0x3ff8 & LOW), 1 => Just(LOW)];
    (prp1, prp2, len, 0..3u8, any::<u64>(), offset_masks).prop_map(
        |(prp1, prp2, len, mps, salt, offset_mask)| {
            (Dptr { prp1, prp2 }, len, mps, Memory { stored: HashMap::new(), salt, offset_mask })
        },
    )
}

fn agrees_with_naive((dptr, len, mps, memory): &(Dptr, u64, u8, Memory), rules: Rules) -> bool {
    let page = PageSize::from_mps(*mps);
    walk(*dptr, *len, page, memory).map_err(Status::kind)
        == naive(*dptr, *len, page, memory, rules).map(joined)
}

#[test]
fn both_walkers_agree() {
    let outcomes = (Cell::new(0), Cell::new(0));
    let law = |case: &(Dptr, u64, u8, Memory)| {
        let walked = walk(case.0, case.1, PageSize::from_mps(case.2), &case.3);
        let outcome = if walked.is_ok() { &outcomes.0 } else { &outcomes.1 };
        outcome.set(outcome.get() + 1);
        agrees_with_naive(case, RULES)
    };
    assert_eq!(counterexample(3000, hostile(), law), None);
    assert!(outcomes.0.get() > 300 && outcomes.1.get() > 300, "one-sided cases: {outcomes:?}");
}

#[test]
fn mutated_walker_is_caught() {
    let mutants = [
        Rules { list_has_offset: false, ..RULES },
        Rules { last_slot_may_hold_data: false, ..RULES },
        Rules { offsets_are_checked: false, ..RULES },
    ];
    for rules in mutants {
        assert!(counterexample(3000, hostile(), |case| agrees_with_naive(case, rules)).is_some());
    }
}

#[test]
fn walk_covers_its_length() {
    let law = |(dptr, len, mps, memory): &(Dptr, u64, u8, Memory)| {
        let page = PageSize::from_mps(*mps);
        let Ok(mut walker) = Walker::new(*dptr, *len, page) else { return true };
        let mut walked = 0;
        loop {
            let mut within = true;
            let next = walker.next(|addr, into| {
                within &= !into.is_empty()
                    && addr % 8 == 0
                    && into.len() as u64 <= page.left_in_page(addr);
                memory.fetch(addr, into)
            });
            match next {
                _ if !within => return false,
                Ok(Some(segment)) => walked += segment.len,
                Ok(None) => return walked == *len,
                // After an error the walk has ended.
                Err(_) => return walker.next(|addr, into| memory.fetch(addr, into)) == Ok(None),
            }
        }
    };
    assert_eq!(counterexample(2000, hostile(), law), None);
}

#[test]
fn malformed_pointers_get_their_status() {
    let invalid = Err(Status::PRP_OFFSET_INVALID.with_dnr());
    let mut memory = Memory::default();
    let walked =
        |prp1, prp2, len, memory: &Memory| walk(Dptr { prp1, prp2 }, len, PageSize::MIN, memory);
    assert_eq!(walked(0x1001, 0, 512, &memory), invalid);
    assert_eq!(walked(0x1000, 0x2004, 8192, &memory), invalid);
    assert_eq!(walked(0x1000, 0x2004, 12288, &memory), invalid);
    // PRP2 is ignored if no second page is needed.
    assert_eq!(
        walked(0x1000, 0x2001, 4096, &memory),
        Ok(vec![Segment { addr: 0x1000, len: 4096 }])
    );
    memory.stored.extend([(0x5000, 0x8000), (0x5008, 0x9008)]);
    assert_eq!(walked(0x1000, 0x5000, 12288, &memory), invalid);
    memory.stored.insert(0x5008, 0xb000);
    let segments =
        [(0x1000, 4096), (0x8000, 4096), (0xb000, 4096)].map(|(addr, len)| Segment { addr, len });
    assert_eq!(walked(0x1000, 0x5000, 12288, &memory), Ok(segments.to_vec()));
}

#[test]
fn unreadable_list_is_transfer_error() {
    let mut walker = Walker::new(Dptr { prp1: 0x1000, prp2: 0x5000 }, 12288, PageSize::MIN)
        .expect("the pointers are aligned");
    assert_eq!(walker.next(|_, _| Err("outside")), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(walker.next(|_, _| Ok::<(), ()>(())), Ok(None));
}

#[test]
fn no_data_no_segments() {
    assert_eq!(walk(Dptr::NONE, 0, PageSize::MIN, &Memory::default()), Ok(Vec::new()));
}

#[test]
fn page_sizes_follow_cc_mps() {
    assert_eq!(
        [0, 1, 15, 16].map(|mps| PageSize::from_mps(mps).bytes()),
        [4096, 8192, 128 << 20, 4096]
    );
}
