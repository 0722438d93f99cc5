//! The dies of a drive. Commands to the same die are served one at a time, in addition to the
//! limits of the drive's profile.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use emu::Profile;
use nvme::io::Transfer;
use nvme::{Sqe, opcode};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use units::{Nanos, Op};

use crate::SimError;

/// The dies of a drive. Without dies the profile says everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inside {
    /// Dies. Each serves one command at a time, in the order of arrival, for the profile's time. A
    /// command goes to the die of its first byte. 0: the profile's channels, each of which takes
    /// any command.
    pub dies: u32,
    /// Consecutive bytes on one die. Not 0.
    #[serde(deserialize_with = "crate::values::bytes")]
    pub stripe: u32,
}

impl Default for Inside {
    fn default() -> Inside {
        Inside { dies: 0, stripe: 4_096 }
    }
}

impl Inside {
    /// The most dies, far beyond any drive.
    pub const MOST_DIES: u32 = 65_536;

    pub(crate) fn check(&self, device: &str) -> Result<(), SimError> {
        let unfit = |what: &str| Err(SimError::Unfit(format!("device '{device}': {what}")));
        if self.dies > Inside::MOST_DIES {
            return unfit(&format!("{} dies: there are at most {}", self.dies, Inside::MOST_DIES));
        }
        if self.dies > 0 && self.stripe == 0 {
            return unfit("`stripe` is 0: it has to be the number of consecutive bytes on one die");
        }
        Ok(())
    }
}

/// The dies of one drive during a run.
#[derive(Debug)]
pub(crate) struct DieTimes {
    stripe: u64,
    profile: Profile,
    /// Bytes of a logical block.
    block: u64,
    /// The current time. It is set before each step of the controller.
    pub(crate) clock: Cell<Nanos>,
    /// By die: busy until then.
    dies: RefCell<Vec<Nanos>>,
    rng: RefCell<Xoshiro256PlusPlus>,
    /// Commands so far, by operation.
    served: Cell<[u64; 3]>,
}

impl DieTimes {
    /// `None`: the drive has no dies.
    pub(crate) fn new(
        inside: Inside,
        profile: &Profile,
        block: u32,
        seed: u64,
    ) -> Option<Rc<DieTimes>> {
        (inside.dies > 0).then(|| {
            Rc::new(DieTimes {
                stripe: inside.stripe.max(1).into(),
                profile: profile.clone(),
                block: block.into(),
                clock: Cell::default(),
                dies: RefCell::new(vec![Nanos::ZERO; inside.dies as usize]),
                rng: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
                served: Cell::default(),
            })
        })
    }

    /// How long a command takes that begins now. While it waits for its die it holds one of the
    /// profile's channels.
    pub(crate) fn time(&self, sqe: &Sqe) -> Nanos {
        let op = match sqe.opcode {
            opcode::io::READ => Op::Read,
            opcode::io::WRITE => Op::Write,
            _ => Op::Flush,
        };
        let offset = match op {
            Op::Read | Op::Write => Transfer::from_sqe(sqe).lba.0.wrapping_mul(self.block),
            _ => 0,
        };
        let now = self.clock.get();
        let mut served = self.served.get();
        let takes =
            self.profile.service(op).sample(served[op as usize], &mut self.rng.borrow_mut());
        served[op as usize] += 1;
        self.served.set(served);
        let mut dies = self.dies.borrow_mut();
        // A Flush concerns all dies, and waits for none of them.
        let at = if op == Op::Flush {
            None
        } else {
            (offset / self.stripe).checked_rem(dies.len() as u64)
        };
        // A die serves commands in the order of arrival, so this one ends after all earlier ones.
        let ends = match at.and_then(|at| dies.get_mut(at as usize)) {
            Some(free_at) => {
                *free_at = now.max(*free_at) + takes;
                *free_at
            }
            None => now + takes,
        };
        ends - now
    }
}

#[cfg(test)]
mod tests;
