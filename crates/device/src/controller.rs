//! The controller: registers, and one step of time.

use units::Nanos;

use crate::{Config, Namespace, Port};

/// A controller as a state machine. Whoever owns it calls [`Controller::step`] with the time.
#[derive(Debug)]
pub struct Controller<P: Port> {
    port: P,
    #[allow(dead_code)]
    config: Config,
    #[allow(dead_code)]
    namespaces: Vec<Namespace>,
}

/// What a step did and when the next one matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Something was fetched, posted or announced, or a register changed.
    pub worked: bool,
    /// The controller's own next event; `None`: only the host can cause one.
    pub next: Option<Nanos>,
}

impl<P: Port> Controller<P> {
    /// A controller at power-on. Values of `config` outside their range are brought into it. Writes CAP, VS and CSTS.
    pub fn new(config: Config, namespaces: Vec<Namespace>, port: P) -> Controller<P> {
        Controller { port, config: config.legal(), namespaces }
    }

    /// The bus.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Looks at registers and doorbells, fetches, completes what is due at `now`, raises vectors. The work of one step
    /// is bounded. `now` never goes back.
    pub fn step(&mut self, _now: Nanos) -> Step {
        Step { worked: false, next: None }
    }
}
