//! Identifiers, each a type of its own so that one cannot be passed for another.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// Command identifier, unique among the commands outstanding on one submission queue (Base 4.1, CDW0.CID).
    /// FFFFh is never used: it is the "no particular command" of the Error Information log (Base 5.1.12.1.2).
    Cid(u16)
}
id! {
    /// Submission or completion queue identifier; 0 is the admin queue (Base 3.3).
    QueueId(u16)
}
id! {
    /// Namespace identifier; 0 names none, FFFFFFFFh all (Base 3.2.1).
    Nsid(u32)
}
id! {
    /// Logical block address within a namespace (NVM 2.1).
    Lba(u64)
}
id! {
    /// Interrupt vector of a completion queue (Base 5.2.1, CDW11.IV).
    Vector(u16)
}

impl QueueId {
    /// The admin queue pair.
    pub const ADMIN: QueueId = QueueId(0);
}

impl Nsid {
    /// Every namespace (Base 3.2.1.2).
    pub const ALL: Nsid = Nsid(u32::MAX);
}
