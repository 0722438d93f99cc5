//! Enable and shutdown states of a controller (CC.EN, CC.SHN, CSTS).
//!
//! ```text
//!                EN = 1                delay               SHN                  delay
//!   Disabled ─────────────► Starting ────────► Ready ─────────► ShuttingDown ────────► ShutDown
//!      ▲                                         │ EN = 0, from any state with EN = 1
//!      └──────────────── Stopping ◄──────────────┘
//!               delay                     Dead: CSTS.CFS = 1, until EN = 0
//! ```

use units::Nanos;

/// State between disabled and ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// CC.EN = 0, CSTS.RDY = 0.
    Disabled,
    /// CC.EN = 1, CSTS.RDY = 0 until this instant.
    Starting(Nanos),
    /// CC.EN = 1, CSTS.RDY = 1, no shutdown: the only state in which commands are processed.
    Ready,
    /// CC.SHN was set; the shutdown completes at this instant.
    ShuttingDown(Nanos),
    /// Shutdown is complete; a reset is required.
    ShutDown,
    /// CC.EN = 0, CSTS.RDY = 1 until this instant. Commands and queues are dropped already.
    Stopping(Nanos),
    /// CSTS.CFS = 1; a reset is required.
    Dead,
}
