//! Fault injection into an embedded controller, for tests.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};

use emu::{FaultInjector, FaultPlan, Injected, Step};
use hw::Bar;
use nvme::{Registers, regs};
use units::Nanos;

use super::runner::Stepper;

/// Faults of an embedded controller, for tests of the layers above it: messages lost, delayed and
/// duplicated, completions and commands corrupted, a controller that hangs or is removed. Clones
/// are handles of the same controller's faults.
///
/// Goes into [`EmbeddedOptions::faults`](crate::EmbeddedOptions::faults) of one device. The admin
/// queue is spared unless the plan says otherwise, so that the device opens.
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) injector: FaultInjector,
    life: Arc<AtomicU8>,
}

/// The controller works, apart from the faults of its plan.
const WORKS: u8 = 0;
/// It does nothing, and its registers do not change.
const HANGS: u8 = 1;
/// It was removed: its registers read as all ones.
const REMOVED: u8 = 2;

impl Faults {
    /// Faults by `plan`, from the first doorbell on.
    pub fn new(plan: FaultPlan) -> Faults {
        Faults { injector: FaultInjector::new(plan), life: Arc::default() }
    }

    /// Replaces the plan; its counts start from zero.
    pub fn set(&self, plan: FaultPlan) {
        self.injector.set_plan(plan);
    }

    /// The faults injected so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        self.injector.injected()
    }

    /// The controller hangs: it fetches, completes and stops nothing, and CSTS.RDY stays as it is.
    pub fn hang(&self) {
        self.life.store(HANGS, Release);
    }

    /// The controller works again after [`Faults::hang`].
    pub fn go_on(&self) {
        self.life.store(WORKS, Release);
    }

    /// The controller is removed: from now on its status register reads as all ones.
    pub fn remove(&self) {
        self.life.store(REMOVED, Release);
    }
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::new(FaultPlan::new())
    }
}

/// A controller that may hang or be removed.
pub(super) struct FaultyController {
    pub controller: Box<dyn Stepper>,
    pub faults: Faults,
    pub bar: Arc<Bar>,
}

impl Stepper for FaultyController {
    fn step(&mut self, now: Nanos) -> Step {
        // `go_on` does not wake the device thread, so a hanging controller checks every
        // millisecond.
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
