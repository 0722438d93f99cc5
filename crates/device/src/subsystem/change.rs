//! What can happen to a controller from outside while it runs.

use nvme::{AnaState, Nsid, Status};
use units::{Nanos, Op};

/// How a path is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The registers read as all ones: the link is down, or the device was pulled out.
    Gone,
    /// The registers keep the values that they had: the controller hangs, as far as the host can see.
    Frozen,
}

/// Something that happens to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The ANA state of a group changes; of all groups if `None` (Base 8.1.1). The state Change lasts until the next: ANATT, which
    /// bounds it, is for the script's author to keep, or not.
    Ana {
        /// Which group.
        group: Option<u32>,
        /// Its state from now on.
        state: AnaState,
    },
    /// Host and controller no longer reach each other. The controller fetches nothing, completes nothing, and neither reads
    /// nor writes host memory. Writes that it has fetched it has taken, data and all: it carries them out in their
    /// time, until its Keep Alive Timer has run out and the Command Quiesce Time has passed.
    Lost(Loss),
    /// They reach each other again. The controller says that it failed (CSTS.CFS), and works only after a reset; writes that
    /// it took it may carry out until that reset.
    Back,
    /// Every command takes this much longer than its profile says.
    Delay(Nanos),
    /// Commands that are fetched from now on, of this kind or of any if `None`, are held inside.
    Hold(Option<Op>),
    /// Those that were held are due, and no more are held.
    Release,
    /// The controller shows so many logical blocks of a namespace, at most what the medium holds, and says so by an event. Others
    /// of the subsystem go on showing what they showed.
    Resize {
        /// Which namespace.
        nsid: Nsid,
        /// Its size from now on.
        blocks: u64,
    },
    /// The controller loses its power, and is lost: nothing that was inside is carried out, and its health log counts the power
    /// cycle. The medium loses nothing by it, though of what no Flush has made durable it might.
    PowerLost,
    /// The controller fails (CSTS.CFS), until the host resets it.
    Fail,
    /// From now on the controller takes so long to follow CC.EN, both ways; [`Nanos::MAX`]: it never does. CAP.TO says what it said.
    ResetTakes(Nanos),
    /// As many I/O commands as `times` says, the next to be completed, end with this status. What they did remains done.
    WrongStatus {
        /// The status; not success.
        status: Status,
        /// How many commands.
        times: u32,
    },
    /// The entries of so many I/O commands, the next to be completed, carry an identifier that is not theirs.
    WrongCid(u32),
    /// The messages of so many I/O commands, the next to be completed, do not go out.
    LoseMessage(u32),
}
