//! Zeroing and deallocation: read values, freed memory, and power loss.

use super::*;

const BYTES: usize = 9_000_000;

/// An operation, applied to a medium and to a reference vector.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize, u8),
    Zero(usize, usize, bool),
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Offsets near the boundaries of pages, slabs and leaves are frequent.
    let at = prop_oneof![
        0..BYTES,
        (0..BYTES / 4096).prop_map(|page| page * 4096),
        Just(0),
        Just(4 << 20),
        Just(8 << 20)
    ];
    let len = prop_oneof![
        1usize..9000,
        (1usize..400).prop_map(|pages| pages * 4096),
        Just(4 << 20),
        Just(BYTES)
    ];
    let step = (at, len, 0u8..6, 1u8..255).prop_map(|(at, len, kind, byte)| {
        let len = len.min(BYTES - at);
        match kind {
            0 | 1 => Step::Write(at, len, byte),
            2 => Step::Read(at, len),
            kind => Step::Zero(at, len, kind > 3),
        }
    });
    prop::collection::vec(step, 1..40)
}

/// Applies the steps to a medium and a vector; returns the first difference.
fn like_a_vector(media: &mut impl Media, steps: &[Step]) -> Result<Vec<u8>, String> {
    let mut model = vec![0u8; BYTES];
    let wrong = |step: &Step| format!("{step:?} finds something else");
    for step in steps {
        match *step {
            Step::Write(at, len, byte) => {
                media.write_at(at as u64, &vec![byte; len], false).map_err(|e| e.to_string())?;
                model[at..at + len].fill(byte);
            }
            Step::Zero(at, len, deallocate) => {
                media
                    .zero_at(at as u64, len as u64, deallocate, false)
                    .map_err(|e| e.to_string())?;
                model[at..at + len].fill(0);
            }
            Step::Read(at, len) => {
                let mut found = vec![1; len];
                media.read_at(at as u64, &mut found).map_err(|e| e.to_string())?;
                if found != model[at..at + len] {
                    return Err(wrong(step));
                }
            }
        }
    }
    let mut all = vec![1; BYTES];
    media.read_at(0, &mut all).map_err(|e| e.to_string())?;
    if all == model { Ok(model) } else { Err(wrong(&Step::Read(0, BYTES))) }
}

/// Negative test: memory that only zeroes whole pages.
struct Coarse(Mem);

impl Media for Coarse {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        self.0.write_at(at, from, fua)
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        let (at, end) = (at.next_multiple_of(4096), (at + len) / 4096 * 4096);
        if at < end { self.0.zero_at(at, end - at, deallocate, fua) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.0.flush()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn zeroing_memory_matches_the_model(steps in steps()) {
        let budget = Budget::new(16 << 20);
        let mut mem = Mem::new(BYTES as u64, budget.clone());
        let model = like_a_vector(&mut mem, &steps).map_err(TestCaseError::fail)?;
        let needed = model.chunks(4096).filter(|page| page.iter().any(|&byte| byte != 0)).count() as u64;
        prop_assert!(mem.allocated() >= needed * 4096);
        mem.zero_at(0, BYTES as u64, true, false).unwrap();
        prop_assert_eq!((mem.allocated(), budget.left()), (0, 16 << 20));
    }

    #[test]
    fn zeroing_through_a_cache_matches(steps in steps(), capacity in 0usize..3000) {
        let mem = || Mem::new(BYTES as u64, Budget::new(16 << 20));
        like_a_vector(&mut WriteCache::new(mem(), 4096, capacity), &steps).map_err(TestCaseError::fail)?;
        like_a_vector(&mut LazyFlush(WriteCache::new(mem(), 4096, capacity)), &steps).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn power_cut_keeps_a_written_value(seed in any::<u64>(), capacity in 0usize..30) {
        any_version_survives(cache(capacity), seed).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn partly_zeroed_pages_are_caught() {
    let coarse = || Coarse(Mem::new(BYTES as u64, Budget::new(16 << 20)));
    assert!(
        like_a_vector(&mut coarse(), &[Step::Write(0, 4096, 1), Step::Zero(0, 4096, true)]).is_ok()
    );
    assert!(
        like_a_vector(&mut coarse(), &[Step::Write(0, 4096, 1), Step::Zero(512, 512, true)])
            .is_err()
    );
}

/// Random writes, zeroing, flushes and power losses: a block must then hold its durable version or
/// a later one.
fn any_version_survives(mut cache: impl Cut, seed: u64) -> Result<(), String> {
    let mut roll = random_below(seed);
    // Per block, the versions that may survive; the last is the current one.
    let mut versions = vec![vec![0u64]; BLOCKS as usize];
    let settle = |versions: &mut Vec<u64>| _ = versions.drain(..versions.len() - 1);
    for number in 1..200u64 {
        let first = roll(BLOCKS - 4);
        let blocks = first as usize..(first + 1 + roll(4)) as usize;
        let (at, len, fua) = (first * BLOCK as u64, (blocks.len() * BLOCK) as u64, roll(5) == 0);
        let done = match roll(8) {
            0 => {
                versions.iter_mut().for_each(settle);
                cache.flush()
            }
            1 => {
                cache.cut(roll(u64::MAX));
                for (block, versions) in (0..).zip(&mut versions) {
                    let found = content(&mut cache, block)?;
                    if !versions.contains(&found) {
                        return Err(format!(
                            "block {block} holds {found}, which is none of {versions:?}"
                        ));
                    }
                    *versions = vec![found];
                }
                Ok(())
            }
            kind => {
                let zero = kind > 4;
                versions[blocks.clone()]
                    .iter_mut()
                    .for_each(|versions| versions.push(if zero { 0 } else { number }));
                if fua {
                    versions[blocks.clone()].iter_mut().for_each(settle);
                }
                if zero {
                    cache.zero_at(at, len, kind > 5, fua)
                } else {
                    cache.write_at(at, &number.to_le_bytes().repeat(blocks.len() * BLOCK / 8), fua)
                }
            }
        };
        done.map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[test]
fn missing_flush_loses_zeroes() {
    let caught =
        (0..20).filter_map(|seed| any_version_survives(LazyFlush(cache(99)), seed).err()).next();
    assert!(caught.is_some_and(|what| what.contains("none of")));
}

#[test]
fn deallocated_room_is_reused() {
    let budget = Budget::new(2 << 20);
    let mut mem = Mem::new(1 << 40, budget.clone());
    // Scattered, so that no slab is completely free before the end.
    for round in 0..8u64 {
        for n in 0..512 {
            mem.write_at((n << 28) + round * 4096, &[round as u8 + 1; 4096], false).unwrap();
        }
        assert!(matches!(mem.write_at(1 << 39, &[1], false), Err(MediaError::Full { .. })));
        for n in 0..512 {
            mem.zero_at((n << 28) + round * 4096, 4096, true, false).unwrap();
        }
        assert_eq!((mem.allocated(), budget.left()), (0, 2 << 20));
    }
    // A reused page must not contain old data.
    mem.write_at(0, &[9; 8192], false).unwrap();
    mem.zero_at(0, 4096, true, false).unwrap();
    mem.write_at(1 << 30, &[1], false).unwrap();
    let mut page = [7; 4096];
    mem.read_at(1 << 30, &mut page).unwrap();
    assert_eq!((page[0], &page[1..]), (1, &[0; 4095][..]));
}

#[test]
fn zeroing_without_deallocate_keeps_room() {
    let mut mem = Mem::new(1 << 20, Budget::new(1 << 20));
    mem.write_at(0, &[9; 8192], false).unwrap();
    mem.zero_at(0, 1 << 20, false, false).unwrap();
    assert_eq!(mem.allocated(), 8192);
    assert!(matches!(mem.zero_at(1, 1 << 20, true, false), Err(MediaError::OutOfRange { .. })));
    assert!(matches!(mem.zero_at(u64::MAX, 2, true, false), Err(MediaError::OutOfRange { .. })));
}

#[test]
fn a_terabyte_is_deallocated_at_once() {
    let mut mem = Mem::new(64 << 40, Budget::new(8 << 20));
    mem.write_at((63 << 40) + 5, &[9; 8192], false).unwrap();
    mem.zero_at(0, 64 << 40, true, false).unwrap();
    assert_eq!(mem.allocated(), 0);
}
