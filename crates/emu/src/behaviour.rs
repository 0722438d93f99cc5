//! In what a controller may be as unkind as hardware: each choice is within the specifications, and
//! the first is the kindest.

use units::Nanos;

/// What becomes of a message whose vector is masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingBit {
    /// It sets the vector's Pending bit. The bit is cleared without a message once its entries are
    /// acknowledged, all of them, by head doorbells: the interrupt event is then satisfied, and the
    /// function must not send a spurious message when software unmasks the vector (PCI Express
    /// Base, "Per-vector Masking and Function Masking").
    #[default]
    Cleared,
    /// It sets the bit, which nothing but sending the message clears: each unmasking sends one,
    /// needed or not. So QEMU's controllers do (`msix_notify` sets the bit, `nvme_irq_deassert`
    /// leaves it alone under MSI-X).
    Kept,
    /// It is gone. The host has to look after unmasking, or it sleeps on an entry of which nothing
    /// tells.
    Absent,
}

impl PendingBit {
    /// What users call them.
    pub const NAMES: [&'static str; 3] = ["cleared", "kept", "none"];

    /// The one of this name.
    pub fn named(name: &str) -> Option<PendingBit> {
        let all = [PendingBit::Cleared, PendingBit::Kept, PendingBit::Absent];
        PendingBit::NAMES.iter().position(|known| *known == name).map(|n| all[n])
    }
}

/// When a command that is aborted completes (Base 2.1, 5.1.1: immediate aborts, in either order of
/// the two entries, and deferred ones).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AbortOrder {
    /// Before its Abort.
    #[default]
    Before,
    /// After its Abort, whose entry says that the command was aborted.
    After,
    /// After its Abort, whose entry says that no immediate abort was performed. It ends as aborted
    /// all the same.
    Deferred,
    /// In its own time, with its own status: the Abort's entry says that the command was not
    /// aborted.
    Never,
}

impl AbortOrder {
    /// What users call them.
    pub const NAMES: [&'static str; 4] = ["before", "after", "deferred", "never"];

    /// The one of this name.
    pub fn named(name: &str) -> Option<AbortOrder> {
        let all = [AbortOrder::Before, AbortOrder::After, AbortOrder::Deferred, AbortOrder::Never];
        AbortOrder::NAMES.iter().position(|known| *known == name).map(|n| all[n])
    }

    /// How much later than its Abort an aborted command completes.
    pub(crate) const LATER: Nanos = Nanos::from_micros(100);
}

/// When a controller fetches what a command needs of the host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// When the command ends.
    #[default]
    Late,
    /// With the command itself.
    Early,
    /// Of some commands so and of some otherwise, by the controller's seed.
    Mixed,
}

impl Fetch {
    /// What users call them.
    pub const NAMES: [&'static str; 3] = ["late", "early", "mixed"];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Fetch> {
        let all = [Fetch::Late, Fetch::Early, Fetch::Mixed];
        Fetch::NAMES.iter().position(|known| *known == name).map(|n| all[n])
    }
}
