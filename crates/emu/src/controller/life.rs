//! Where a controller stands in its life.

use units::Nanos;

/// Where a controller stands between disabled and ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// CC.EN = 0, CSTS.RDY = 0.
    Disabled,
    /// CC.EN = 1, CSTS.RDY = 0 until this instant.
    Starting(Nanos),
    /// CC.EN = 1, CSTS.RDY = 1, no shutdown: the only state in which commands are processed.
    Ready,
    /// CC.SHN was set; the shutdown is complete at this instant.
    ShuttingDown(Nanos),
    /// Shut down: only a reset helps.
    ShutDown,
    /// CC.EN = 0, CSTS.RDY = 1 until this instant. Commands and queues are forgotten already.
    Stopping(Nanos),
    /// CSTS.CFS = 1: only a reset helps.
    Dead,
}
