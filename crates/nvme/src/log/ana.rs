//! Asymmetric Namespace Access log page: the access state of namespaces through one controller
//! (Base §8.1.1).

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::page;
use crate::{Nsid, Page, Status};

/// ANAS: access state of an ANA group through a controller (Base §5.1.12.1.13, Base §8.1.1). Bits
/// 3:0 of a byte; other values than the constants are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnaState(pub u8);

impl AnaState {
    /// ANA Optimized: the preferred path.
    pub const OPTIMIZED: AnaState = AnaState(0x1);
    /// ANA Non-Optimized: accessible, but with less performance than an Optimized path.
    pub const NON_OPTIMIZED: AnaState = AnaState(0x2);
    /// ANA Inaccessible, at present.
    pub const INACCESSIBLE: AnaState = AnaState(0x3);
    /// ANA Persistent Loss: not accessible any more.
    pub const PERSISTENT_LOSS: AnaState = AnaState(0x4);
    /// ANA Change: in transition to another state, which takes at most ANATT seconds (Identify
    /// Controller).
    pub const CHANGE: AnaState = AnaState(0xf);

    /// The defined states, in the order of their bits in ANACAP.
    pub const ALL: [AnaState; 5] = [
        AnaState::OPTIMIZED,
        AnaState::NON_OPTIMIZED,
        AnaState::INACCESSIBLE,
        AnaState::PERSISTENT_LOSS,
        AnaState::CHANGE,
    ];

    /// Whether I/O commands are executed in this state.
    pub const fn is_accessible(self) -> bool {
        self.refusal().is_none()
    }

    /// The status with which an I/O command fails in this state; `None`: it is executed (Base
    /// §8.1.1, Base §4.2.3.4). A reserved state gives Internal Path Error.
    pub const fn refusal(self) -> Option<Status> {
        match self {
            AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
            AnaState::INACCESSIBLE => Some(Status::ANA_INACCESSIBLE),
            AnaState::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::CHANGE => Some(Status::ANA_TRANSITION),
            _ => Some(Status::INTERNAL_PATH_ERROR),
        }
    }

    /// The state that an ANA status code reports; `None` for other status codes.
    pub fn of_status(status: Status) -> Option<AnaState> {
        AnaState::ALL.into_iter().find(|state| state.refusal() == Some(status.kind()))
    }

    /// The ANACAP bit for this state (Base §5.1.13.2.1); 0 for a reserved state.
    pub fn capability(self) -> u8 {
        AnaState::ALL.iter().position(|state| *state == self).map_or(0, |bit| 1 << bit)
    }

    /// The name as printed by nvme-cli; `None` for a reserved state.
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

/// Header of the Asymmetric Namespace Access log page (Base §5.1.12.1.13): 16 bytes, followed by
/// [`AnaGroup`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AnaHeader {
    /// CHGCNT, 7:0. Number of changes of the page since the last controller reset.
    pub change_count: u64,
    /// NAGD, 9:8. Number of descriptors that follow.
    pub groups: u16,
    #[doc(hidden)]
    pub reserved10: [u8; 6],
}

page!(AnaHeader, 16);

/// ANA Group Descriptor (Base §5.1.12.1.13): 32 bytes, followed by NNV namespace identifiers of 4
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AnaGroup {
    /// AGID, 3:0. Group identifier; never 0.
    pub group: u32,
    /// NNV, 7:4. Number of namespace identifiers that follow; 0 with RGO.
    pub namespaces: u32,
    /// CHGCNT, 15:8. Number of changes of this group since the last controller reset; 0: not
    /// reported.
    pub change_count: u64,
    /// ANAS, 16. Bits 3:0 are the state; see [`AnaGroup::access`].
    pub state: u8,
    #[doc(hidden)]
    pub reserved17: [u8; 15],
}

page!(AnaGroup, 32);

impl AnaGroup {
    /// State of the group.
    pub fn access(&self) -> AnaState {
        AnaState(self.state & 0xf)
    }
}

/// RGO, Return Groups Only: bit 0 of Get Log Page LSP for this page (Base §5.1.12.1.13).
pub const GROUPS_ONLY: u8 = 1;

/// A decoded Asymmetric Namespace Access log page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaLog {
    /// CHGCNT of the page.
    pub change_count: u64,
    /// Groups and their namespaces, which are empty with RGO.
    pub groups: Vec<(AnaGroup, Vec<Nsid>)>,
}

impl AnaLog {
    /// Encodes the page; with `groups_only` (RGO) without namespace identifiers.
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

    /// Decodes a page, which may be truncated: incomplete descriptors are left out, and
    /// [`AnaHeader::groups`] is the full number. Counts are checked against the number of bytes.
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

    /// State of a group; `None`: the page does not list it.
    pub fn state_of(&self, group: u32) -> Option<AnaState> {
        self.groups.iter().find(|(g, _)| g.group == group).map(|(g, _)| g.access())
    }
}
