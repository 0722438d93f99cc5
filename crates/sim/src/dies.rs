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

/// How data is laid out on the dies of a drive. With 0 dies only the profile applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DieLayout {
    /// Number of dies. Each die serves one command at a time, in the order of arrival, for the
    /// profile's service time. A command goes to the die of its first byte. 0: there are no dies,
    /// and each of the profile's channels takes any command.
    pub dies: u32,
    /// Stripe unit: the number of consecutive bytes on one die, before the next die follows. Not 0.
    #[serde(rename = "stripe", deserialize_with = "crate::values::bytes")]
    pub stripe_unit: u32,
}

impl Default for DieLayout {
    fn default() -> DieLayout {
        DieLayout { dies: 0, stripe_unit: 4_096 }
    }
}

impl DieLayout {
    /// Maximum number of dies, far beyond any drive.
    pub const MAX_DIES: u32 = 65_536;

    pub(crate) fn check(&self, device: &str) -> Result<(), SimError> {
        let unfit = |what: &str| Err(SimError::Unfit(format!("device '{device}': {what}")));
        if self.dies > DieLayout::MAX_DIES {
            return unfit(&format!(
                "{} dies: there are at most {}",
                self.dies,
                DieLayout::MAX_DIES
            ));
        }
        if self.dies > 0 && self.stripe_unit == 0 {
            return unfit("`stripe` is 0: it has to be the number of consecutive bytes on one die");
        }
        Ok(())
    }
}

/// The dies of one drive during a run.
#[derive(Debug)]
pub(crate) struct DieTimes {
    stripe_unit: u64,
    profile: Profile,
    /// Bytes of a logical block.
    block: u64,
    /// The current time. The event loop sets it before each step of the controller.
    pub(crate) clock: Cell<Nanos>,
    /// By die: the time until which it is busy.
    dies: RefCell<Vec<Nanos>>,
    rng: RefCell<Xoshiro256PlusPlus>,
    /// Commands so far, by operation.
    served: Cell<[u64; 3]>,
}

impl DieTimes {
    /// `None`: the drive has no dies.
    pub(crate) fn new(
        layout: DieLayout,
        profile: &Profile,
        block: u32,
        seed: u64,
    ) -> Option<Rc<DieTimes>> {
        (layout.dies > 0).then(|| {
            Rc::new(DieTimes {
                stripe_unit: layout.stripe_unit.max(1).into(),
                profile: profile.clone(),
                block: block.into(),
                clock: Cell::default(),
                dies: RefCell::new(vec![Nanos::ZERO; layout.dies as usize]),
                rng: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
                served: Cell::default(),
            })
        })
    }

    /// How long a command takes that begins now, the wait for its die included. During the wait the
    /// command holds one of the profile's channels.
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
        // A simplification: a Flush, and every other command but Read and Write, waits for no die.
        let at = if op == Op::Flush {
            None
        } else {
            (offset / self.stripe_unit).checked_rem(dies.len() as u64)
        };
        // A die serves commands in the order of arrival, so this command ends after all earlier
        // ones.
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
