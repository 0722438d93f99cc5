//! Faults on purpose: the hand that a test keeps on an embedded controller.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};

use emu::{FaultInjector, FaultPlan, Injected, Step};
use hw::Bar;
use nvme::{Registers, regs};
use units::Nanos;

use super::runner::Stepper;

/// Faults for an embedded controller to commit, for tests of what stands above it: messages lost, late and doubled,
/// entries and commands tampered with, and a controller that hangs or is pulled out. Clones are handles on the same one.
///
/// Goes into [`EmbeddedOptions::faults`](crate::EmbeddedOptions::faults) of one device. The admin queue is spared, so that the device opens, unless the
/// plan says otherwise.
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) injector: FaultInjector,
    life: Arc<AtomicU8>,
}

/// The controller works, but for its plan.
const WORKS: u8 = 0;
/// It does nothing, and its registers stand still.
const HANGS: u8 = 1;
/// It is not there: its registers read as all ones.
const REMOVED: u8 = 2;

impl Faults {
    /// Faults by `plan`, from the first doorbell on.
    pub fn new(plan: FaultPlan) -> Faults {
        Faults { injector: FaultInjector::new(plan), life: Arc::default() }
    }

    /// From now on a different plan, whose occasions count from here.
    pub fn set(&self, plan: FaultPlan) {
        self.injector.set_plan(plan);
    }

    /// The faults so far that were planned, in order.
    pub fn injected(&self) -> Vec<Injected> {
        self.injector.injected()
    }

    /// The controller does nothing any more: it fetches, posts and stops nothing, and CSTS.RDY stays what it is.
    pub fn hang(&self) {
        self.life.store(HANGS, Release);
    }

    /// The controller goes on after [`Faults::hang`].
    pub fn go_on(&self) {
        self.life.store(WORKS, Release);
    }

    /// The controller is pulled out: from now on its status register reads as all ones.
    pub fn remove(&self) {
        self.life.store(REMOVED, Release);
    }
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::new(FaultPlan::new())
    }
}

/// A controller that may hang, or be pulled out.
pub(super) struct FaultyController {
    pub controller: Box<dyn Stepper>,
    pub faults: Faults,
    pub bar: Arc<Bar>,
}

impl Stepper for FaultyController {
    fn step(&mut self, now: Nanos) -> Step {
        // The thread that lets it go on does not tell: a controller that hangs looks every so often.
        let asleep = Step { worked: false, next: Some(now + Nanos::from_millis(1)) };
        match self.faults.life.load(Acquire) {
            WORKS => self.controller.step(now),
            REMOVED => {
                self.bar.write32(regs::CSTS, u32::MAX);
                asleep
            }
            _ => asleep,
        }
    }
}
