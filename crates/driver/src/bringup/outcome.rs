//! How bring-up fails.

use nvme::{Nsid, QueueId, Status, TooShort};
use units::Nanos;

use crate::{PropertyError, ProtocolViolation, RegisterValues, Unusable};

/// Bring-up failed: where, why, and what the registers said then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller cannot be brought up; {phase}: {cause} ({registers})")]
#[non_exhaustive]
pub struct BringupError {
    /// Where in the sequence.
    pub phase: BringupPhase,
    /// Why.
    pub cause: BringupCause,
    /// The registers, as they were seen last.
    pub registers: RegisterValues,
}

/// Where in the sequence (Base 3.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BringupPhase {
    /// Reading CAP and VS.
    Capabilities,
    /// CC.EN = 0, waiting for CSTS.RDY = 0.
    Disable,
    /// CC.EN = 1, waiting for CSTS.RDY = 1.
    Enable,
    /// Identify Controller (CNS 01h).
    IdentifyController,
    /// Identify Controller of the NVM command set (CNS 06h).
    IdentifyCommandSet,
    /// Active namespace list (CNS 02h).
    ActiveNamespaces,
    /// Identify Namespace (CNS 00h).
    IdentifyNamespace(Nsid),
    /// Identify Namespace of the NVM command set (CNS 05h).
    IdentifyNamespaceCommandSet(Nsid),
    /// Namespace identification descriptors (CNS 03h).
    NamespaceDescriptors(Nsid),
    /// Set Features, Number of Queues (07h).
    NumberOfQueues,
    /// Set Features, Asynchronous Event Configuration (0Bh).
    AsyncEvents,
    /// Doorbell Buffer Config.
    Doorbells,
    /// Set Features, Keep Alive Timer (0Fh).
    KeepAlive,
    /// Create I/O Completion Queue.
    CreateCq(QueueId),
    /// Create I/O Submission Queue.
    CreateSq(QueueId),
    /// Done.
    Ready,
}

impl std::fmt::Display for BringupPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BringupPhase::Capabilities => f.write_str("reading CAP and VS"),
            BringupPhase::Disable => f.write_str("disabling it (CC.EN = 0, then CSTS.RDY = 0)"),
            BringupPhase::Enable => f.write_str("enabling it (CC.EN = 1, then CSTS.RDY = 1)"),
            BringupPhase::IdentifyController => f.write_str("Identify Controller"),
            BringupPhase::IdentifyCommandSet => f.write_str("Identify Controller of the NVM command set"),
            BringupPhase::ActiveNamespaces => f.write_str("Identify, active namespaces"),
            BringupPhase::IdentifyNamespace(nsid) => write!(f, "Identify Namespace {nsid}"),
            BringupPhase::IdentifyNamespaceCommandSet(nsid) => write!(f, "Identify Namespace {nsid} of the NVM command set"),
            BringupPhase::NamespaceDescriptors(nsid) => write!(f, "Identify, descriptors of namespace {nsid}"),
            BringupPhase::NumberOfQueues => f.write_str("Set Features, Number of Queues"),
            BringupPhase::AsyncEvents => f.write_str("Set Features, Asynchronous Event Configuration"),
            BringupPhase::Doorbells => f.write_str("Doorbell Buffer Config"),
            BringupPhase::KeepAlive => f.write_str("Set Features, Keep Alive Timer"),
            BringupPhase::CreateCq(id) => write!(f, "Create I/O Completion Queue {id}"),
            BringupPhase::CreateSq(id) => write!(f, "Create I/O Submission Queue {id}"),
            BringupPhase::Ready => f.write_str("ready"),
        }
    }
}

/// Why bring-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BringupCause {
    /// The registers read as all ones.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// CSTS.CFS.
    #[error("the controller reports a fatal error (CSTS.CFS)")]
    Fatal,
    /// CSTS.RDY did not become 0.
    #[error("CSTS.RDY is still 1 after {waited}: the controller may still write to memory")]
    NotStopped {
        /// For how long.
        waited: Nanos,
    },
    /// CSTS.RDY did not become 1.
    #[error("CSTS.RDY is still 0 after {waited} (CAP.TO)")]
    NotReady {
        /// For how long.
        waited: Nanos,
    },
    /// An admin command was not answered.
    #[error("no completion after {waited}")]
    NoReply {
        /// For how long.
        waited: Nanos,
    },
    /// The controller broke the protocol on the admin queue.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Each command was answered in its time, and there was no end to them.
    #[error("it is not ready {waited} after CSTS.RDY became 1, although it answers; it may have too many namespaces, or be too slow")]
    TooLong {
        /// For how long.
        waited: Nanos,
    },
    /// An admin command that bring-up cannot do without was refused.
    #[error("the controller answered {status}")]
    Rejected {
        /// Its status.
        status: Status,
    },
    /// A property could not be read or written.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// A controller that this driver cannot use.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The executor gave fewer bytes than an Identify page has.
    #[error(transparent)]
    ShortPage(TooShort),
    /// A namespace list that is not in ascending order.
    #[error("the list of active namespaces names {nsid} after {after}: it has to ascend")]
    BadNamespaceList {
        /// The namespace.
        nsid: Nsid,
        /// The one before.
        after: Nsid,
    },
    /// More namespaces than this driver deals with.
    #[error("more than {most} namespaces")]
    TooManyNamespaces {
        /// The most.
        most: usize,
    },
    /// The admin queue wanted is larger than AQA can say.
    #[error("an admin queue has at most {most} entries")]
    AdminQueueTooLarge {
        /// The most.
        most: u32,
    },
    /// After a reset the controller no longer grants the queues that it had.
    #[error("after the reset the controller allows fewer or smaller queues than before")]
    Changed,
}
