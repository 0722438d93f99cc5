//! Lists of namespaces and of a namespace's identifiers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Nsid;
use crate::page::page;

/// A Namespace List: up to 1024 identifiers in ascending order, then zeroes (Base 4.6.2). Identify CNS 02h
/// (Base 5.1.13.2.2), and the Changed Attached Namespace List log page (Base 5.1.12.1.5).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NamespaceList {
    ids: [u32; NamespaceList::CAPACITY],
}

page!(NamespaceList, 4096);

impl NamespaceList {
    /// The most identifiers in one list.
    pub const CAPACITY: usize = 1024;

    /// The first [`NamespaceList::CAPACITY`] of `ids`, which are in ascending order. As the answer to CNS 02h they are
    /// all above the NSID of the command.
    pub fn of(ids: impl IntoIterator<Item = Nsid>) -> NamespaceList {
        let mut list = NamespaceList::default();
        for (slot, id) in list.ids.iter_mut().zip(ids) {
            *slot = id.0;
        }
        list
    }

    /// The log page that says: more changed than fit (Base 5.1.12.1.5).
    pub fn too_many() -> NamespaceList {
        NamespaceList::of([Nsid::ALL])
    }

    /// Whether this is the log page that says: more changed than fit. Then everything is to be looked at again.
    pub fn is_too_many(&self) -> bool {
        self.ids.first() == Some(&Nsid::ALL.0)
    }

    /// The identifiers, up to the first zero. A list that is full may go on: ask again from its last.
    pub fn iter(&self) -> impl Iterator<Item = Nsid> {
        self.ids.iter().take_while(|&&id| id != 0).map(|&id| Nsid(id))
    }
}

/// Values of [`Descriptor::kind`] (Base 5.1.13.2.3, NIDT), each with the length of its identifier.
pub mod descriptor {
    /// EUI64, 8 bytes.
    pub const EUI64: u8 = 1;
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// CSI, 1 byte: the I/O command set of the namespace.
    pub const CSI: u8 = 4;
}

/// One Namespace Identification Descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// NIDT: which kind of identifier; see [`descriptor`].
    pub kind: u8,
    /// NID: the identifier, NIDL bytes.
    pub id: &'a [u8],
}

/// Namespace Identification Descriptor list, CNS 03h (Base 5.1.13.2.3).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct DescriptorList {
    bytes: [u8; 4096],
}

page!(DescriptorList, 4096);

impl DescriptorList {
    /// NIDT, NIDL and two reserved bytes before each identifier.
    const HEADER: usize = 4;

    /// Appends an identifier (1 to 255 bytes). Returns false, and appends nothing, if there is no room.
    pub fn push(&mut self, kind: u8, id: &[u8]) -> bool {
        let end = self.iter().map(|d| DescriptorList::HEADER + d.id.len()).sum::<usize>();
        let (Ok(len @ 1..), Some(room)) = (u8::try_from(id.len()), self.bytes.get_mut(end..)) else { return false };
        let Some((header, rest)) = room.split_first_chunk_mut::<{ DescriptorList::HEADER }>() else { return false };
        let Some(nid) = rest.get_mut(..id.len()) else { return false };
        *header = [kind, len, 0, 0];
        nid.copy_from_slice(id);
        true
    }

    /// The descriptors, up to the first of length 0 or the first that does not fit.
    pub fn iter(&self) -> impl Iterator<Item = Descriptor<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (&[kind, len, ..], after) = rest.split_first_chunk::<{ DescriptorList::HEADER }>()?;
            let (id, after) = after.split_at_checked(usize::from(len))?;
            rest = after;
            (len != 0).then_some(Descriptor { kind, id })
        })
    }

    /// The first identifier of this kind.
    pub fn find(&self, kind: u8) -> Option<&[u8]> {
        self.iter().find(|d| d.kind == kind).map(|d| d.id)
    }
}
