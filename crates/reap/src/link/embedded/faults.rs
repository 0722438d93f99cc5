//! Faults on purpose: the hand that a test keeps on an embedded controller.

use std::fmt;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{Controller, FaultPlan, FaultyPort, Injected, Step};
use hw::Bar;
use nvme::{Registers, regs};
use units::Nanos;

use super::port::EmbeddedPort;
use super::runner::Stepper;

/// Faults for an embedded controller to commit, for tests of what stands above it: messages lost, late and doubled,
/// entries and commands tampered with, and a controller that hangs or is pulled out. Clones are handles on the same one.
///
/// Goes into [`EmbeddedOptions::faults`](crate::EmbeddedOptions::faults) of one device. The admin queue is spared, so that the device opens, unless the
/// plan says otherwise.
#[derive(Clone, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    life: AtomicU8,
}

#[derive(Default)]
struct State {
    plan: FaultPlan,
    /// As the device's URI says: every plan has it.
    late_doorbells: Option<(Nanos, u64)>,
    port: Option<FaultyPort<EmbeddedPort>>,
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
        let faults = Faults::default();
        faults.state().plan = plan;
        faults
    }

    /// From now on a different plan, whose occasions count from here.
    pub fn set(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.plan = plan;
        if let Some(port) = &state.port {
            port.set_plan(state.plan_in_force());
        }
    }

    /// Doorbell writes are up to so late, by this seed, whatever the plan.
    pub(super) fn delay_doorbells(&self, most: Nanos, seed: u64) {
        self.state().late_doorbells = Some((most, seed));
    }

    /// The faults so far that were planned, in order.
    pub fn injected(&self) -> Vec<Injected> {
        self.state().port.as_ref().map(FaultyPort::injected).unwrap_or_default()
    }

    /// The controller does nothing any more: it fetches, posts and stops nothing, and CSTS.RDY stays what it is.
    pub fn hang(&self) {
        self.0.life.store(HANGS, Release);
    }

    /// The controller goes on after [`Faults::hang`].
    pub fn go_on(&self) {
        self.0.life.store(WORKS, Release);
    }

    /// The controller is pulled out: from now on its status register reads as all ones.
    pub fn remove(&self) {
        self.0.life.store(REMOVED, Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the faults between a controller and its port.
    pub(super) fn wrap(&self, port: EmbeddedPort) -> FaultyPort<EmbeddedPort> {
        let mut state = self.state();
        let port = FaultyPort::new(port, state.plan_in_force());
        state.port = Some(port.clone());
        port
    }
}

impl State {
    fn plan_in_force(&self) -> FaultPlan {
        let plan = self.plan.clone();
        match self.late_doorbells {
            Some((most, seed)) => plan.with_late_doorbells(most, seed),
            None => plan,
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.state().plan).finish()
    }
}

/// A controller with faults.
pub(super) struct Faulty {
    pub controller: Controller<FaultyPort<EmbeddedPort>>,
    pub port: FaultyPort<EmbeddedPort>,
    pub faults: Faults,
    pub bar: Arc<Bar>,
}

impl Stepper for Faulty {
    fn step(&mut self, now: Nanos) -> Step {
        // The thread that lets it go on does not tell: a controller that hangs looks every so often.
        let asleep = Step { worked: false, next: Some(now + Nanos::from_millis(1)) };
        match self.faults.0.life.load(Acquire) {
            WORKS => {}
            REMOVED => {
                self.bar.write32(regs::CSTS, u32::MAX);
                return asleep;
            }
            _ => return asleep,
        }
        self.port.advance(now);
        let mut step = self.controller.step(now);
        step.next = step.next.into_iter().chain(self.port.next_late()).min();
        step
    }
}
