//! What a drive's commands share beyond its own profile: its dies, its read tags on the bus, and a link that several
//! drives hang from.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use emu::{KnownTime, Profile};
use nvme::io::Transfer;
use nvme::{Sqe, opcode};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use units::{Nanos, Op};

use crate::SimError;

/// What a drive shares among its own commands. All zero: nothing, and its profile says all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Dies, each of which serves one command at a time, in the order of arrival. A command goes to the die of its first byte, for the
    /// profile's time. 0: the profile's channels, any of which takes any command.
    pub dies: u32,
    /// Neighbouring bytes of one die; then comes the next die. Not 0 where there are dies.
    pub stripe: u32,
    /// Reads of the host's memory that it has out at a time: the data of Writes, in pieces. 0: no limit.
    pub read_tags: u32,
    /// Bytes of each piece. Not 0 where there are tags.
    pub read_bytes: u32,
    /// From asking for a piece until it is there.
    pub round_trip: Nanos,
}

/// A link that several drives share: a switch's upstream port, a root port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLink {
    /// What drives call it.
    pub name: String,
    /// Bytes per second, each way.
    pub bytes_per_second: u64,
}

impl Inside {
    /// The most dies: no drive has a hundredth of them.
    pub const MOST_DIES: u32 = 65_536;

    /// Whether anything is shared.
    pub(crate) fn is_shared(&self) -> bool {
        *self != Inside::default()
    }

    /// Whether it can be.
    pub(crate) fn check(&self, device: &str) -> Result<(), SimError> {
        let unfit = |what: &str| Err(SimError::Unfit(format!("device '{device}': {what}")));
        if self.dies > Inside::MOST_DIES {
            return unfit(&format!("{} dies: there are at most {}", self.dies, Inside::MOST_DIES));
        }
        if self.dies > 0 && self.stripe == 0 {
            return unfit("dies without a stripe: say how many neighbouring bytes are on one die");
        }
        if self.read_tags > 0 && (self.read_bytes == 0 || self.round_trip == Nanos::ZERO) {
            return unfit("read_tags without read_bytes and round_trip: say how large a piece is, and how long it takes");
        }
        Ok(())
    }
}

/// Both ways of a link.
#[derive(Debug)]
pub(crate) struct Link {
    bytes_per_second: u64,
    /// To the host, and from it: taken until then.
    up: Cell<Nanos>,
    down: Cell<Nanos>,
}

impl Link {
    pub(crate) fn new(spec: &SharedLink) -> Rc<Link> {
        Rc::new(Link { bytes_per_second: spec.bytes_per_second.max(1), up: Cell::default(), down: Cell::default() })
    }

    /// These bytes have gone over one way of it, if they are there `at`: when they have.
    fn carry(&self, way: &Cell<Nanos>, at: Nanos, bytes: u64) -> Nanos {
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        way.set(at.max(way.get()) + Nanos(takes as u64));
        way.get()
    }
}

/// The limits of one drive at work.
#[derive(Debug)]
pub(crate) struct Limits {
    inside: Inside,
    profile: Profile,
    link: Option<Rc<Link>>,
    /// Bytes of a logical block.
    block: u64,
    /// What time it is: set before each of the controller's steps.
    pub(crate) clock: Cell<Nanos>,
    /// When each die is free.
    dies: RefCell<Vec<Nanos>>,
    /// When its tags are.
    tags: Cell<Nanos>,
    dice: RefCell<Xoshiro256PlusPlus>,
    /// Commands so far, by operation.
    served: Cell<[u64; 3]>,
}

impl Limits {
    /// Those of a drive. `None`: it has none but its profile's.
    pub(crate) fn new(inside: Inside, profile: &Profile, link: Option<Rc<Link>>, block: u32, seed: u64) -> Option<Rc<Limits>> {
        (inside.is_shared() || link.is_some()).then(|| {
            Rc::new(Limits {
                inside,
                profile: profile.clone(),
                link,
                block: block.into(),
                clock: Cell::default(),
                dies: RefCell::new(vec![Nanos::ZERO; inside.dies as usize]),
                tags: Cell::default(),
                dice: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
                served: Cell::default(),
            })
        })
    }

    /// How long a command takes that begins now. It holds one of the profile's channels, if there are any, while it waits for its die.
    pub(crate) fn time(&self, sqe: &Sqe) -> KnownTime {
        let op = match sqe.opcode {
            opcode::io::READ => Op::Read,
            opcode::io::WRITE => Op::Write,
            _ => Op::Flush,
        };
        let (offset, bytes) = match op {
            Op::Read | Op::Write => {
                let transfer = Transfer::from_sqe(sqe);
                (transfer.lba.0.wrapping_mul(self.block), u64::from(transfer.blocks) * self.block)
            }
            _ => (0, 0),
        };
        let now = self.clock.get();
        let there = if op == Op::Write { self.fetched(now, bytes) } else { now };
        let served = self.on_die(there, op, offset);
        // The profile's own link is paced beside it, by the device.
        let own = if self.profile.bandwidth > 0 {
            Nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.profile.bandwidth)) as u64)
        } else {
            Nanos::ZERO
        };
        let late = match &self.link {
            Some(link) if op == Op::Read => link.carry(&link.up, served, bytes) - served - own,
            _ => Nanos::ZERO,
        };
        KnownTime { service: served - now + own, late }
    }

    /// When the data of a Write are in the drive.
    fn fetched(&self, now: Nanos, bytes: u64) -> Nanos {
        let mut there = now;
        let Inside { read_tags, read_bytes, round_trip, .. } = self.inside;
        if read_tags > 0 {
            // Each piece holds a tag for a round trip; so many are under way.
            let pieces = bytes.div_ceil(read_bytes.max(1).into());
            let taken = Nanos((u128::from(pieces) * u128::from(round_trip.0) / u128::from(read_tags)) as u64);
            self.tags.set(now.max(self.tags.get()) + taken);
            there = self.tags.get().max(now + round_trip);
        }
        match &self.link {
            Some(link) => link.carry(&link.down, now, bytes).max(there),
            None => there,
        }
    }

    /// When its die has served it.
    fn on_die(&self, there: Nanos, op: Op, offset: u64) -> Nanos {
        let mut served = self.served.get();
        let takes = self.profile.service(op).sample(served[op as usize], &mut self.dice.borrow_mut());
        served[op as usize] += 1;
        self.served.set(served);
        let mut dies = self.dies.borrow_mut();
        // A Flush is the whole drive's business.
        let at = if op == Op::Flush { None } else { (offset / u64::from(self.inside.stripe.max(1))).checked_rem(dies.len() as u64) };
        match at.and_then(|at| dies.get_mut(at as usize)) {
            Some(free_at) => {
                *free_at = there.max(*free_at) + takes;
                *free_at
            }
            None => there + takes,
        }
    }
}

#[cfg(test)]
mod tests;
