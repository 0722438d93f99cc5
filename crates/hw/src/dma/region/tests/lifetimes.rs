//! Random sequences of operations on a region and its buffers, checked against a model: memory is
//! freed exactly once, and never while the device may access it; the device can access lent buffers
//! and nothing else.

use std::sync::mpsc::{Receiver, Sender, channel};

use proptest::prelude::*;

use super::super::super::DmaBuf;
use super::*;

const PIECE: usize = 512;
const PIECES: usize = 32;

/// The device: a thread that copies to the given address.
struct Device {
    orders: Sender<(u64, u8, usize)>,
    done: Receiver<bool>,
}

impl Device {
    fn start(pool: DmaPool) -> Device {
        let (orders, todo) = channel::<(u64, u8, usize)>();
        let (tell, done) = channel();
        thread::spawn(move || {
            for (addr, byte, len) in todo {
                let wrote = pool.dma_write(addr, &vec![byte; len]).is_ok();
                let mut seen = vec![!byte; len];
                let read =
                    pool.dma_read(addr, &mut seen).is_ok() && seen.iter().all(|&b| b == byte);
                let may = pool.check(addr, len as u64).is_ok();
                // The three results disagree: end the thread, which the host notices.
                if (wrote, read) != (may, may) || tell.send(wrote).is_err() {
                    return;
                }
            }
        });
        Device { orders, done }
    }

    /// Whether it could write `len` bytes of `byte`.
    fn write(&self, addr: u64, byte: u8, len: usize) -> bool {
        self.orders.send((addr, byte, len)).expect("it waits for orders");
        self.done.recv().expect("reads, writes and checks agree")
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take {
        start: usize,
        pieces: usize,
    },
    Lend(usize),
    TakeBack(usize),
    Drop(usize),
    DropLent(usize),
    /// The device writes.
    Write {
        start: usize,
        pieces: usize,
        byte: u8,
    },
    DropRegion,
    IntoOwner,
    DropPool,
}
use Step::{DropLent, DropPool, DropRegion, IntoOwner, Lend, Take, TakeBack, Write};

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..PIECES, 1..=PIECES / 2);
    prop_oneof![
        6 => range().prop_map(|(start, pieces)| Take { start, pieces }),
        5 => any::<usize>().prop_map(Lend),
        5 => any::<usize>().prop_map(TakeBack),
        3 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(DropLent),
        6 => (range(), any::<u8>()).prop_map(|((start, pieces), byte)| Write { start, pieces, byte }),
        1 => Just(DropRegion),
        1 => Just(IntoOwner),
        1 => Just(DropPool),
    ]
}

/// The operations that a mutant gets wrong.
#[derive(Clone, Copy)]
struct Rules {
    drop: fn(DmaBuf),
    drop_lent: fn(Lent),
}

const SOUND: Rules = Rules { drop: |buf| drop(buf), drop_lent: |lent| drop(lent) };

/// A buffer and the units of the region that it covers.
struct BufferOf<B> {
    buf: B,
    pieces: Range<usize>,
}

struct Model {
    rules: Rules,
    device: Device,
    base: u64,
    pool: Option<DmaPool>,
    region: Option<Region<Tracked>>,
    owner: Option<Tracked>,
    freed: Arc<AtomicU32>,
    held: Vec<BufferOf<DmaBuf>>,
    lent: Vec<BufferOf<Lent>>,
    leaked: Vec<Range<usize>>,
    /// Contents of each unit.
    contents: [u8; PIECES],
}

fn pick<T>(from: &mut Vec<T>, n: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(n % from.len()))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.chunks_exact(PIECE).zip(wanted).all(|(piece, want)| piece.iter().all(|byte| byte == want))
}

impl Model {
    fn new(rules: Rules) -> Model {
        let (pool, (memory, freed)) = (pool(), tracked(PIECES * PIECE));
        let device = Device::start(pool.clone());
        let region = pool.register(memory).unwrap();
        let (base, pool, region) = (region.base(), Some(pool), Some(region));
        let (held, lent, leaked) = (Vec::new(), Vec::new(), Vec::new());
        Model {
            rules,
            device,
            base,
            pool,
            region,
            owner: None,
            freed,
            held,
            lent,
            leaked,
            contents: [0; PIECES],
        }
    }

    fn ranges_in_use(&self) -> impl Iterator<Item = &Range<usize>> {
        self.held
            .iter()
            .map(|held| &held.pieces)
            .chain(self.lent.iter().map(|lent| &lent.pieces))
            .chain(&self.leaked)
    }

    fn is_lent(&self, piece: usize) -> bool {
        self.lent
            .iter()
            .map(|lent| &lent.pieces)
            .chain(&self.leaked)
            .any(|pieces| pieces.contains(&piece))
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Take { start, pieces } => self.make_buffer(start..start + pieces)?,
            Lend(n) => {
                if let Some(BufferOf { mut buf, pieces }) = pick(&mut self.held, n) {
                    buf.fill(n as u8);
                    self.contents[pieces.clone()].fill(n as u8);
                    self.lent.push(BufferOf { buf: buf.lend(), pieces });
                }
            }
            TakeBack(n) => {
                let back = pick(&mut self.lent, n)
                    .map(|BufferOf { buf, pieces }| BufferOf { buf: buf.take_back(), pieces });
                self.held.extend(back);
            }
            Step::Drop(n) => {
                if let Some(BufferOf { buf, .. }) = pick(&mut self.held, n) {
                    (self.rules.drop)(buf);
                }
            }
            DropLent(n) => {
                if let Some(BufferOf { buf, pieces }) = pick(&mut self.lent, n) {
                    (self.rules.drop_lent)(buf);
                    self.leaked.push(pieces);
                }
            }
            Write { start, pieces, byte } => self.copy(start..start + pieces, byte)?,
            DropRegion => drop(self.region.take()),
            IntoOwner => self.check_owner()?,
            DropPool => drop(self.pool.take()),
        }
        self.check()
    }

    fn make_buffer(&mut self, pieces: Range<usize>) -> Result<(), String> {
        let Some(region) = &self.region else { return Ok(()) };
        let overlaps = self.ranges_in_use().any(|ranges_in_use| {
            pieces.start < ranges_in_use.end && ranges_in_use.start < pieces.end
        });
        match region.buffer(pieces.start * PIECE..pieces.end * PIECE) {
            Ok(buf) if !overlaps && pieces.end <= PIECES => {
                self.held.push(BufferOf { buf, pieces });
                Ok(())
            }
            Err(RangeError::Shape { .. }) if pieces.end > PIECES => Ok(()),
            Err(RangeError::Taken { .. }) if overlaps => Ok(()),
            other => Err(format!("{pieces:?}, overlaps: {overlaps}: {other:?}")),
        }
    }

    fn copy(&mut self, pieces: Range<usize>, byte: u8) -> Result<(), String> {
        let may = pieces.end <= PIECES && pieces.clone().all(|piece| self.is_lent(piece));
        let did = self.device.write(
            self.base + (pieces.start * PIECE) as u64,
            byte,
            pieces.len() * PIECE,
        );
        if may && did {
            self.contents[pieces.clone()].fill(byte);
        }
        ensure(may == did, || format!("the device reaches {pieces:?}: {did}, and may: {may}"))
    }

    fn check_owner(&mut self) -> Result<(), String> {
        let alone = self.ranges_in_use().next().is_none();
        let Some(region) = self.region.take() else { return Ok(()) };
        let had = region
            .into_owner()
            .map(|owner| self.owner = Some(owner))
            .map_err(|region| self.region = Some(region))
            .is_ok();
        ensure(had == alone, || format!("the owner has it: {had}, and nothing is out: {alone}"))
    }

    fn check(&self) -> Result<(), String> {
        let alive =
            self.region.is_some() || self.owner.is_some() || self.ranges_in_use().next().is_some();
        let freed = self.freed.load(Ordering::Relaxed);
        ensure(freed == u32::from(!alive), || format!("alive: {alive}, freed {freed} times"))?;
        for BufferOf { buf, pieces } in &self.held {
            ensure(holds(buf, &self.contents[pieces.clone()]), || {
                format!("{pieces:?} hold something else")
            })?;
        }
        if let Some(owner) = &self.owner {
            ensure(holds(&owner.0, &self.contents), || "the owner has something else".into())?;
        }
        let leaked: usize = self.leaked.iter().map(|pieces| pieces.len() * PIECE).sum();
        let counted = self.pool.as_ref().map(DmaPool::leaked);
        ensure(counted.is_none_or(|counted| counted == leaked as u64), || {
            format!("leaked {leaked} bytes, counted {counted:?}")
        })
    }

    /// At the end the device tries every unit, and everything is dropped.
    fn end(&mut self) -> Result<(), String> {
        for piece in 0..PIECES {
            self.copy(piece..piece + 1, 1)?;
        }
        let back = self
            .lent
            .drain(..)
            .map(|BufferOf { buf, pieces }| BufferOf { buf: buf.take_back(), pieces });
        self.held.extend(back);
        self.check()?;
        (self.region, self.owner) = (None, None);
        self.check()?;
        self.held.drain(..).for_each(|held| (self.rules.drop)(held.buf));
        self.check()?;
        for piece in 0..PIECES {
            self.copy(piece..piece + 1, 2)?;
        }
        Ok(())
    }
}

fn check_lifetimes(steps: &[Step], rules: Rules) -> Result<(), String> {
    let mut world = Model::new(rules);
    let lived = steps
        .iter()
        .try_for_each(|&step| world.step(step).map_err(|why| format!("{step:?}: {why}")))
        .and_then(|()| world.end());
    if lived.is_err() {
        // The memory may have been freed: do not touch it again.
        std::mem::forget(world);
    }
    lived
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn region_memory_is_freed_once(steps in prop::collection::vec(step(), 1..60)) {
        prop_assert_eq!(check_lifetimes(&steps, SOUND), Ok(()));
    }
}

const STEPS: [Step; 4] = [Take { start: 0, pieces: 8 }, Lend(0), DropRegion, DropLent(0)];

#[test]
fn early_free_mutant_is_caught() {
    let caught =
        check_lifetimes(&STEPS, Rules { drop_lent: |lent| drop(lent.take_back()), ..SOUND });
    assert_eq!(caught, Err("DropLent(0): alive: true, freed 1 times".into()));
    assert_eq!(check_lifetimes(&STEPS, SOUND), Ok(()));
}

#[test]
fn leaked_range_mutant_is_caught() {
    let never_released = Rules { drop: |buf| std::mem::forget(buf), ..SOUND };
    assert!(check_lifetimes(&STEPS[..1], never_released).is_err());
    let again = [STEPS[0], Step::Drop(0), STEPS[0]];
    assert!(check_lifetimes(&again, never_released).is_err_and(|why| why.contains("Taken")));
    assert_eq!(check_lifetimes(&again, SOUND), Ok(()));
}
