//! Choices that the specifications leave to the controller, for testing hosts. The first variant of
//! each is the default.

use units::Nanos;

/// Handling of a message whose vector is masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingBit {
    /// The vector's Pending bit is set. It is cleared without a message once the host has consumed
    /// all entries: the interrupt condition is then satisfied, and no spurious message may be sent
    /// on unmasking (PCI Express Base, "Per-vector Masking and Function Masking").
    #[default]
    Cleared,
    /// The Pending bit is set, and cleared only when the message is sent: unmasking sends it even
    /// if the host has consumed all entries in the meantime. This is QEMU's behaviour
    /// (`msix_notify` sets the bit, and `nvme_irq_deassert` does not clear it for MSI-X).
    Kept,
    /// There is no Pending bit: the message is lost, and unmasking sends none. A host that does not
    /// poll the queue after unmasking waits for an interrupt that never comes.
    Absent,
}

impl PendingBit {
    /// Names on the command line.
    pub const NAMES: [&'static str; 3] = ["cleared", "kept", "none"];

    /// The variant with this name.
    pub fn named(name: &str) -> Option<PendingBit> {
        let all = [PendingBit::Cleared, PendingBit::Kept, PendingBit::Absent];
        PendingBit::NAMES.iter().position(|known| *known == name).map(|n| all[n])
    }
}

/// When an aborted command completes (Base 2.1, 5.1.1: immediate abort with either order of the
/// entries, or deferred abort).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AbortOrder {
    /// The command completes before its Abort command.
    #[default]
    Before,
    /// The command completes after its Abort command, which reports an immediate abort.
    After,
    /// The command completes as aborted, after its Abort command, which reports no immediate abort.
    Deferred,
    /// The command completes at its normal time and with its normal status; the Abort reports that
    /// the command was not aborted.
    Never,
}

impl AbortOrder {
    /// Names on the command line.
    pub const NAMES: [&'static str; 4] = ["before", "after", "deferred", "never"];

    /// The variant with this name.
    pub fn named(name: &str) -> Option<AbortOrder> {
        let all = [AbortOrder::Before, AbortOrder::After, AbortOrder::Deferred, AbortOrder::Never];
        AbortOrder::NAMES.iter().position(|known| *known == name).map(|n| all[n])
    }

    /// Delay between the Abort's completion and the command's.
    pub(crate) const LATER: Nanos = Nanos::from_micros(100);
}

/// When a controller reads what a command needs from host memory: PRP and SGL lists, write data and
/// lists of ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// When the command completes.
    #[default]
    Late,
    /// When the command is fetched.
    Early,
    /// Late or early, chosen per command by the controller's seed.
    Mixed,
}

impl Fetch {
    /// Names on the command line.
    pub const NAMES: [&'static str; 3] = ["late", "early", "mixed"];

    /// The variant with this name.
    pub fn named(name: &str) -> Option<Fetch> {
        let all = [Fetch::Late, Fetch::Early, Fetch::Mixed];
        Fetch::NAMES.iter().position(|known| *known == name).map(|n| all[n])
    }
}
