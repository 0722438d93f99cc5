//! Which faults happen when.

use nvme::QueueId;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use units::Nanos;

use super::fault::{Fault, Occasion};

/// A plan of faults: scripted ones at a certain occasion, and others by chance. Occasions are messages, entries posted
/// or commands fetched, whichever the fault concerns, counted from 0 each. The admin queue and vector 0 are spared
/// unless [`FaultPlan::admin_too`] says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    scripted: Vec<(u64, Fault)>,
    chances: Vec<(u32, Fault)>,
    late_doorbells: (Nanos, u64),
    seed: u64,
    admin_too: bool,
}

impl FaultPlan {
    /// No faults.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Adds a fault at occasion number `n`. At most one happens per occasion: the first that was added.
    pub fn at(mut self, n: u64, fault: Fault) -> FaultPlan {
        self.scripted.push((n, fault));
        self
    }

    /// Adds a fault that meets `ppm` of a million occasions.
    pub fn with_chance(mut self, ppm: u32, fault: Fault) -> FaultPlan {
        self.chances.push((ppm, fault));
        self
    }

    /// Each doorbell write, the admin queue's too, reaches the controller up to `most` after the host has made it, by this seed. Writes to one doorbell
    /// arrive in order, those to different ones in any order.
    pub fn with_late_doorbells(mut self, most: Nanos, seed: u64) -> FaultPlan {
        self.late_doorbells = (most, seed);
        self
    }

    pub(super) fn late_doorbells(&self) -> (Nanos, u64) {
        self.late_doorbells
    }

    /// The seed of the chances.
    pub fn with_seed(mut self, seed: u64) -> FaultPlan {
        self.seed = seed;
        self
    }

    /// Faults hit the admin queue pair and vector 0 as well.
    pub fn admin_too(mut self) -> FaultPlan {
        self.admin_too = true;
        self
    }
}

/// A plan at work.
#[derive(Debug)]
pub(super) struct Dice {
    plan: FaultPlan,
    random: Xoshiro256PlusPlus,
    occasions: [u64; 3],
}

impl Dice {
    pub(super) fn new(plan: FaultPlan) -> Dice {
        Dice { random: Xoshiro256PlusPlus::seed_from_u64(plan.seed), plan, occasions: [0; 3] }
    }

    pub(super) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// The fault, if any, that meets this occasion. `queue`: the submission queue, or a vector's number.
    pub(super) fn throw(&mut self, occasion: Occasion, queue: QueueId) -> Option<Fault> {
        if queue == QueueId::ADMIN && !self.plan.admin_too {
            return None;
        }
        let n = self.occasions[occasion as usize];
        self.occasions[occasion as usize] += 1;
        let meant = |fault: &Fault| fault.occasion() == occasion;
        if let Some(&(_, fault)) = self.plan.scripted.iter().find(|(at, fault)| *at == n && meant(fault)) {
            return Some(fault);
        }
        let random = &mut self.random;
        let hit = |ppm: u32| (u128::from(random.next_u64()) * 1_000_000) >> 64 < u128::from(ppm);
        let mut chances =
            self.plan.chances.iter().filter(|(_, fault)| meant(fault)).scan(hit, |hit, &(ppm, fault)| Some((hit(ppm), fault)));
        chances.find(|&(hit, _)| hit).map(|(_, fault)| fault)
    }
}
