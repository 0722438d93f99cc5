//! Asymmetric Namespace Access: which controllers reach which namespaces, and how well (Base
//! 8.1.1).

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::page;
use crate::{Nsid, Page, Status};

/// ANAS: how a controller reaches the namespaces of an ANA group (Base 5.1.12.1.13, Base 8.1.1).
/// Bits 3:0 of a byte; a value that is none of the constants is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnaState(pub u8);

impl AnaState {
    /// The controller is the best way to the namespace.
    pub const OPTIMIZED: AnaState = AnaState(0x1);
    /// The controller reaches the namespace, but another does so better.
    pub const NON_OPTIMIZED: AnaState = AnaState(0x2);
    /// The controller does not reach the namespace at present.
    pub const INACCESSIBLE: AnaState = AnaState(0x3);
    /// The controller will never reach the namespace again.
    pub const PERSISTENT_LOSS: AnaState = AnaState(0x4);
    /// The state is about to be another: within ANATT seconds (Identify Controller).
    pub const CHANGE: AnaState = AnaState(0xf);

    /// The states that there are, in the order of their bits in ANACAP.
    pub const ALL: [AnaState; 5] = [
        AnaState::OPTIMIZED,
        AnaState::NON_OPTIMIZED,
        AnaState::INACCESSIBLE,
        AnaState::PERSISTENT_LOSS,
        AnaState::CHANGE,
    ];

    /// Whether I/O commands are carried out in this state.
    pub const fn is_accessible(self) -> bool {
        self.refusal().is_none()
    }

    /// The status of an I/O command that arrives in this state; `None`: it is carried out (Base
    /// 8.1.1, Base 4.2.3.4). A reserved state gives Internal Path Error.
    pub const fn refusal(self) -> Option<Status> {
        match self {
            AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
            AnaState::INACCESSIBLE => Some(Status::ANA_INACCESSIBLE),
            AnaState::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::CHANGE => Some(Status::ANA_TRANSITION),
            _ => Some(Status::INTERNAL_PATH_ERROR),
        }
    }

    /// The state that a status reports, if it is one of ANA.
    pub fn of_status(status: Status) -> Option<AnaState> {
        AnaState::ALL.into_iter().find(|state| state.refusal() == Some(status.kind()))
    }

    /// The bit of ANACAP that says that the controller reports this state (Base 5.1.13.2.1); 0 for
    /// a reserved one.
    pub fn capability(self) -> u8 {
        AnaState::ALL.iter().position(|state| *state == self).map_or(0, |bit| 1 << bit)
    }

    /// The name, in the spelling that tools print.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            AnaState::OPTIMIZED => "optimized",
            AnaState::NON_OPTIMIZED => "non-optimized",
            AnaState::INACCESSIBLE => "inaccessible",
            AnaState::PERSISTENT_LOSS => "persistent-loss",
            AnaState::CHANGE => "change",
            _ => return None,
        })
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "reserved ({:#x})", self.0),
        }
    }
}

/// The header of the log page Asymmetric Namespace Access (Base 5.1.12.1.13): 16 bytes.
/// [`AnaGroup`]s follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AnaHeader {
    /// CHGCNT, 7:0. Changes of the page since the last controller reset.
    pub change_count: u64,
    /// NAGD, 9:8. Descriptors that follow.
    pub groups: u16,
    #[doc(hidden)]
    pub reserved10: [u8; 6],
}

page!(AnaHeader, 16);

/// An ANA group descriptor (Base 5.1.12.1.13): 32 bytes, followed by NNV namespace identifiers of 4
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AnaGroup {
    /// AGID, 3:0. The group; never 0.
    pub group: u32,
    /// NNV, 7:4. Namespace identifiers that follow; 0 if the host asked for groups only.
    pub namespaces: u32,
    /// CHGCNT, 15:8. Changes of this group since the last controller reset; 0: not said.
    pub change_count: u64,
    /// ANAS, 16. Bits 3:0 the state; see [`AnaGroup::access`].
    pub state: u8,
    #[doc(hidden)]
    pub reserved17: [u8; 15],
}

page!(AnaGroup, 32);

impl AnaGroup {
    /// How the controller reaches the namespaces of the group.
    pub fn access(&self) -> AnaState {
        AnaState(self.state & 0xf)
    }
}

/// Get Log Page LSP, bit 0, for this page: RGO, groups only, without namespace identifiers (Base
/// 5.1.12.1.13).
pub const GROUPS_ONLY: u8 = 1;

/// The log page Asymmetric Namespace Access, read from bytes or made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaLog {
    /// CHGCNT of the page.
    pub change_count: u64,
    /// Each group with its namespaces, if the page names them.
    pub groups: Vec<(AnaGroup, Vec<Nsid>)>,
}

impl AnaLog {
    /// The bytes of the page; with `groups_only` (RGO) without namespace identifiers.
    pub fn to_bytes(&self, groups_only: bool) -> Vec<u8> {
        let header = AnaHeader {
            change_count: self.change_count,
            groups: self.groups.len() as u16,
            ..AnaHeader::default()
        };
        let mut bytes = header.as_page().to_vec();
        for (group, namespaces) in &self.groups {
            let listed = if groups_only { &[][..] } else { namespaces };
            bytes.extend_from_slice(
                AnaGroup { namespaces: listed.len() as u32, ..*group }.as_page(),
            );
            listed.iter().for_each(|nsid| bytes.extend_from_slice(&nsid.0.to_le_bytes()));
        }
        bytes
    }

    /// Reads a page, whole or cut off: descriptors that are not whole are left out, and
    /// [`AnaHeader::groups`] tells how many there should be. What a device writes is untrusted:
    /// counts are believed no further than there are bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<AnaLog, crate::TooShort> {
        let header = AnaHeader::from_page(bytes)?;
        let mut rest = bytes.get(AnaHeader::LEN..).unwrap_or_default();
        let mut groups = Vec::new();
        for _ in 0..header.groups {
            let Ok(group) = AnaGroup::from_page(rest) else { break };
            let Some(after) = rest.get(AnaGroup::LEN..) else { break };
            let Some((list, after)) =
                after.split_at_checked((group.namespaces as usize).saturating_mul(4))
            else {
                break;
            };
            let (ids, _) = list.as_chunks::<4>();
            groups.push((group, ids.iter().map(|id| Nsid(u32::from_le_bytes(*id))).collect()));
            rest = after;
        }
        Ok(AnaLog { change_count: header.change_count, groups })
    }

    /// The state of a group; `None`: the page has no such group.
    pub fn state_of(&self, group: u32) -> Option<AnaState> {
        self.groups.iter().find(|(g, _)| g.group == group).map(|(g, _)| g.access())
    }
}
