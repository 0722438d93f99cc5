//! Checks whether controllers lead to the same namespace. Sending requests to two different ones
//! would destroy data, so every identifier is compared.

use std::fmt;

use super::{PathId, PathSet};
use crate::{Inventory, Namespace};

/// The namespace behind a path, as its controller identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathIdentity {
    /// SUBNQN (Identify Controller).
    pub nqn: String,
    /// CNTLID (Identify Controller).
    pub controller: u16,
    /// The namespace.
    pub namespace: Namespace,
}

impl PathIdentity {
    /// Identifies `namespace` of the controller that `inventory` describes.
    pub fn new(inventory: &Inventory, namespace: &Namespace) -> PathIdentity {
        let subsystem = &inventory.subsystem;
        PathIdentity {
            nqn: subsystem.nqn.clone(),
            controller: subsystem.controller,
            namespace: *namespace,
        }
    }

    /// The value of a field, formatted for messages.
    fn value(&self, field: Field) -> String {
        let ns = &self.namespace;
        match field {
            Field::Nqn => self.nqn.clone(),
            Field::Nsid => ns.nsid.to_string(),
            Field::Size => format!("{} blocks", ns.blocks),
            Field::Format => format!("blocks of {} bytes", ns.block_size()),
            Field::Nguid => hex(&ns.nguid),
            Field::Eui64 => hex(&ns.eui64),
            Field::Uuid => uuid(&ns.uuid),
            Field::Group => ns.ana_group.to_string(),
        }
    }

    /// Whether the namespace has an identifier: NGUID, EUI64 and UUID are not all zero.
    fn is_identified(&self) -> bool {
        let ns = &self.namespace;
        ns.nguid != [0; 16] || ns.eui64 != [0; 8] || ns.uuid != [0; 16]
    }
}

/// A field that must be the same on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The subsystem's name.
    Nqn,
    /// The namespace identifier.
    Nsid,
    /// NSZE.
    Size,
    /// LBADS.
    Format,
    /// NGUID.
    Nguid,
    /// EUI64.
    Eui64,
    /// UUID.
    Uuid,
    /// ANAGRPID: a namespace is in one group, whatever its state on each controller (Base 8.1.1).
    Group,
}

impl Field {
    const ALL: [Field; 8] = [
        Field::Nqn,
        Field::Nsid,
        Field::Size,
        Field::Format,
        Field::Nguid,
        Field::Eui64,
        Field::Uuid,
        Field::Group,
    ];
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Nqn => "subsystem NQN (SUBNQN)",
            Field::Nsid => "namespace identifier (NSID)",
            Field::Size => "size (NSZE)",
            Field::Format => "format (LBADS)",
            Field::Nguid => "NGUID",
            Field::Eui64 => "EUI64",
            Field::Uuid => "UUID",
            Field::Group => "ANA group (ANAGRPID)",
        })
    }
}

/// Why paths cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No path was given.
    #[error("multipath needs at least one path")]
    None,
    /// More paths than a [`PathSet`] holds.
    #[error("{given} paths are too many: a namespace may have at most {}", PathSet::MAX)]
    TooMany {
        /// The number given.
        given: usize,
    },
    /// A namespace without an identifier: two of them would look the same.
    #[error(
        "path {path}: namespace {nsid} has no identifier (NGUID, EUI64 and UUID are all zero), so nothing proves that two paths lead to the same data"
    )]
    Anonymous {
        /// The path.
        path: PathId,
        /// Its namespace.
        nsid: nvme::Nsid,
    },
    /// NMIC bit 0 is clear: the namespace can be attached to one controller only.
    #[error(
        "path {path}: namespace {nsid} is private to its controller (NMIC bit 0 is 0): another path cannot lead to the same namespace"
    )]
    Private {
        /// The path.
        path: PathId,
        /// Its namespace.
        nsid: nvme::Nsid,
    },
    /// Two paths to one controller.
    #[error(
        "path {path} and path {first} are the same controller (CNTLID {controller:#06x}): each path needs a controller of its own"
    )]
    SameController {
        /// The later path.
        path: PathId,
        /// The earlier path.
        first: PathId,
        /// CNTLID.
        controller: u16,
    },
    /// A field differs.
    #[error(
        "path {path} leads to another namespace than path {first}: {field} is {found}, and {expected} on path {first}"
    )]
    Differs {
        /// The path.
        path: PathId,
        /// The path it was compared with.
        first: PathId,
        /// The field.
        field: Field,
        /// Its value on `path`.
        found: String,
        /// Its value on `first`.
        expected: String,
    },
}

/// Joins paths. Returns their namespace as the first path reports it. Fields that may differ
/// between controllers, such as boundaries, are not compared. A single path may lead to a private
/// namespace.
pub fn join(paths: &[PathIdentity]) -> Result<Namespace, JoinError> {
    let namespace = paths.first().ok_or(JoinError::None)?.namespace;
    if paths.len() > PathSet::MAX {
        return Err(JoinError::TooMany { given: paths.len() });
    }
    let several = paths.len() > 1;
    for (n, path) in paths.iter().enumerate() {
        let (id, nsid) = (PathId(n as u8), path.namespace.nsid);
        // One path needs no proof.
        if !path.is_identified() && several {
            return Err(JoinError::Anonymous { path: id, nsid });
        }
        // Compared with the first only: equality is transitive.
        let earlier = paths.get(..n).unwrap_or_default();
        if let Some(first) = earlier.first()
            && let Some((field, found, expected)) = difference(path, first)
        {
            return Err(JoinError::Differs { path: id, first: PathId(0), field, found, expected });
        }
        // Sharing is checked after the comparison: a field that differs is the better explanation.
        if !path.namespace.shared && several {
            return Err(JoinError::Private { path: id, nsid });
        }
        // Two connections to one controller fail together, and share its CNTLID.
        if let Some(at) = earlier.iter().position(|other| other.controller == path.controller) {
            return Err(JoinError::SameController {
                path: id,
                first: PathId(at as u8),
                controller: path.controller,
            });
        }
    }
    Ok(namespace)
}

/// The first field in which two paths differ, and both values.
fn difference(found: &PathIdentity, expected: &PathIdentity) -> Option<(Field, String, String)> {
    let field =
        Field::ALL.into_iter().find(|&field| found.value(field) != expected.value(field))?;
    Some((field, found.value(field), expected.value(field)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Formats a UUID as RFC 9562 does.
fn uuid(bytes: &[u8; 16]) -> String {
    let all = hex(bytes);
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|range| all.get(range).unwrap_or_default().to_owned())
        .join("-")
}
