mod zeroing;

use proptest::prelude::*;

use super::*;
use crate::testing::random_below;

#[test]
fn sparse_terabyte_is_cheap() {
    let budget = Budget::new(8 << 20);
    let mut mem = Mem::new(4 << 40, budget.clone());
    let mut page = [1; 4096];
    mem.read_at((4 << 40) - 4096, &mut page).unwrap();
    assert_eq!(
        (page, mem.allocated()),
        ([0; 4096], 0),
        "unwritten blocks read as zeroes and take nothing"
    );
    for n in 0..1_000 {
        mem.write_at(n * 4_000_000_000 / 4096 * 4096, &[n as u8; 512], false).unwrap();
    }
    assert_eq!(mem.allocated(), 1_000 * 4096);
    assert!(budget.left() >= (8 << 20) - 1_000 * 4096 - (2 << 20));
    drop(mem);
    assert_eq!(budget.left(), 8 << 20);
}

#[test]
fn beyond_budget_only_writes_fail() {
    let budget = Budget::new(2 << 20);
    let (mut first, mut second) = (Mem::new(1 << 30, budget.clone()), Mem::new(1 << 30, budget));
    let fill = |mem: &mut Mem| {
        (0..).map(|n| mem.write_at(n * 4096, &[5; 4096], false)).take_while(Result::is_ok).count()
    };
    assert_eq!((fill(&mut first), fill(&mut second)), (512, 0), "the budget is shared");
    let error = first.write_at(1 << 29, &[1], false).unwrap_err();
    assert!(matches!(error, MediaError::Full { limit: 2_097_152 }), "{error}");
    first.write_at(511 * 4096, &[6; 4096], true).unwrap();
    let mut page = [0; 4096];
    first.read_at(511 * 4096, &mut page).unwrap();
    assert_eq!(page, [6; 4096]);
    first.read_at(1 << 29, &mut page).unwrap();
    assert_eq!(page, [0; 4096]);
}

#[test]
fn ranges_beyond_the_end_are_refused() {
    let mut mem = Mem::new(10_000, Budget::new(1 << 20));
    mem.write_at(9_990, &[1; 10], false).unwrap();
    assert!(matches!(mem.write_at(9_991, &[1; 10], false), Err(MediaError::OutOfRange { .. })));
    assert!(matches!(mem.read_at(u64::MAX, &mut [0; 10]), Err(MediaError::OutOfRange { .. })));
    assert!(mem.piece(10_000, 1).is_empty() && mem.piece_mut(1 << 40, 1).is_err());
}

proptest! {
    #[test]
    fn memory_is_memory(ops in prop::collection::vec((0usize..40_000, 1usize..20_000, any::<Option<u8>>()), 1..40)) {
        const BYTES: usize = 50_000;
        let mut mem = Mem::new(BYTES as u64, Budget::new(1 << 20));
        let mut model = vec![0; BYTES];
        for (at, len, write) in ops {
            let end = BYTES.min(at + len);
            if let Some(byte) = write {
                mem.write_at(at as u64, &vec![byte; end - at], false).unwrap();
                model[at..end].fill(byte);
            } else {
                let mut found = vec![1; end - at];
                mem.read_at(at as u64, &mut found).unwrap();
                prop_assert_eq!(&found[..], &model[at..end]);
            }
        }
    }
}

const BLOCK: usize = 512;
const BLOCKS: u64 = 24;

/// Negative test: a cache whose Flush does nothing.
struct LazyFlush<M>(WriteCache<M>);

trait Cut: Media {
    fn cut(&mut self, seed: u64);
}

impl<M: Media> Cut for WriteCache<M> {
    fn cut(&mut self, seed: u64) {
        WriteCache::cut(self, seed).unwrap();
    }
}

impl<M: Media> Cut for LazyFlush<M> {
    fn cut(&mut self, seed: u64) {
        self.0.cut(seed).unwrap();
    }
}

impl<M: Media> Media for LazyFlush<M> {
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

/// Negative test: a cache that ignores FUA.
struct LazyFua<M>(WriteCache<M>);

impl<M: Media> Cut for LazyFua<M> {
    fn cut(&mut self, seed: u64) {
        self.0.cut(seed).unwrap();
    }
}

impl<M: Media> Media for LazyFua<M> {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], _: bool) -> Result<(), MediaError> {
        self.0.write_at(at, from, false)
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.0.flush()
    }
}

/// Negative test: a cache that may keep half a block.
struct Torn<M>(WriteCache<M>);

impl<M: Media> Media for Torn<M> {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        from.chunks(BLOCK / 2)
            .enumerate()
            .try_for_each(|(n, half)| self.0.write_at(at + (n * BLOCK / 2) as u64, half, fua))
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.0.flush()
    }
}

impl<M: Media> Cut for Torn<M> {
    fn cut(&mut self, seed: u64) {
        self.0.cut(seed).unwrap();
    }
}

/// Random writes, flushes and power losses. Each write has a number that fills its blocks. After a
/// power loss a block must not be torn, and must be at least as new as the last version
/// acknowledged by Flush or FUA.
fn survives_power_cuts<C: Cut>(mut cache: C, seed: u64) -> Result<(), String> {
    let mut roll = random_below(seed);
    // Per block: the last durable write, and the last write.
    let (mut durable, mut last) = (vec![0u64; BLOCKS as usize], vec![0u64; BLOCKS as usize]);
    for number in 1..200u64 {
        match roll(12) {
            0 => {
                cache.flush().map_err(|e| e.to_string())?;
                durable.clone_from(&last);
            }
            1 => {
                cache.cut(roll(u64::MAX));
                for block in 0..BLOCKS as usize {
                    let found = content(&mut cache, block as u64)?;
                    if found < durable[block] || found > last[block] {
                        return Err(format!(
                            "block {block} holds write {found}; {} was acknowledged, {} is the last",
                            durable[block], last[block]
                        ));
                    }
                    (durable[block], last[block]) = (found, found);
                }
            }
            kind => {
                let first = roll(BLOCKS - 4) as usize;
                let blocks = 1 + roll(4) as usize;
                let data: Vec<u8> = number.to_le_bytes().repeat(blocks * BLOCK / 8);
                let fua = kind == 2;
                cache.write_at((first * BLOCK) as u64, &data, fua).map_err(|e| e.to_string())?;
                last[first..first + blocks].fill(number);
                if fua {
                    durable[first..first + blocks].fill(number);
                }
            }
        }
    }
    Ok(())
}

/// The number of the write whose data a block holds; an error if the block is torn.
fn content<C: Media>(cache: &mut C, block: u64) -> Result<u64, String> {
    let mut bytes = [0; BLOCK];
    cache.read_at(block * BLOCK as u64, &mut bytes).map_err(|e| e.to_string())?;
    let words: Vec<_> =
        bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
    if words.iter().all(|&w| w == words[0]) {
        Ok(words[0])
    } else {
        Err(format!("block {block} is a mix of writes"))
    }
}

fn cache(capacity: usize) -> WriteCache<Mem> {
    WriteCache::new(Mem::new(BLOCKS * BLOCK as u64, Budget::new(1 << 20)), BLOCK as u32, capacity)
}

proptest! {
    #[test]
    fn power_cut_keeps_acknowledged_blocks(seed in any::<u64>(), capacity in 0usize..30) {
        survives_power_cuts(cache(capacity), seed).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn missing_flush_and_torn_blocks_caught() {
    let caught = |mutant: &dyn Fn(u64) -> Result<(), String>| {
        (0..20).filter_map(|seed| mutant(seed).err()).next()
    };
    let lazy = caught(&|seed| survives_power_cuts(LazyFlush(cache(99)), seed));
    assert!(lazy.is_some_and(|what| what.contains("acknowledged")));
    let lazy = caught(&|seed| survives_power_cuts(LazyFua(cache(99)), seed));
    assert!(lazy.is_some_and(|what| what.contains("acknowledged")));
    let torn = caught(&|seed| survives_power_cuts(Torn(cache(99)), seed));
    assert!(torn.is_some_and(|what| what.contains("mix")));
}

#[test]
fn power_cut_keeps_some_blocks() {
    let outcomes: std::collections::HashSet<_> = (0..20)
        .map(|seed| {
            let mut cache = cache(99);
            cache.write_at(0, &[1; BLOCK], false).unwrap();
            cache.write_at(0, &[2; BLOCK], false).unwrap();
            cache.cut(seed).unwrap();
            assert_eq!(cache.dirty_blocks(), 0);
            let mut block = [9; BLOCK];
            cache.read_at(0, &mut block).unwrap();
            block[0]
        })
        .collect();
    assert_eq!(outcomes, [0, 1, 2].into());
}
