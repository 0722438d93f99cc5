//! PDU headers: encoding, decoding and validation (TCP 3.6).
//!
//! ```text
//!   0      1      2     3     4          8                HLEN            PDO
//!   ┌──────┬──────┬─────┬─────┬──────────┬────────────────┬───────┬─────┬───────┬───────┐
//!   │ type │flags │HLEN │ PDO │   PLEN   │ type specific  │ HDGST │ pad │ data  │ DDGST │
//!   └──────┴──────┴─────┴─────┴──────────┴────────────────┴───────┴─────┴───────┴───────┘
//!   ◄──── common header ─────►           │                 optional             optional
//! ```

use nvme::{Cqe, Sqe};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::digest;

/// PDU types (PDU-type).
pub mod kind {
    #![allow(missing_docs)]
    pub const IC_REQ: u8 = 0x00;
    pub const IC_RESP: u8 = 0x01;
    pub const H2C_TERM_REQ: u8 = 0x02;
    pub const C2H_TERM_REQ: u8 = 0x03;
    pub const CAPSULE_CMD: u8 = 0x04;
    pub const CAPSULE_RESP: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const R2T: u8 = 0x09;
}

/// Bits of FLAGS.
pub mod flags {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU: the last data PDU of a command (C2HData) or of an R2T (H2CData).
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS, of C2HData: the command succeeded, and no CapsuleResp follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bytes of a digest.
pub(crate) const DIGEST: usize = 4;
/// Bytes of the longest header, that of ICReq and ICResp.
pub(crate) const LONGEST_HEADER: usize = 128;
/// Bytes of a TermReq header, without the header that it quotes.
const TERM_HEADER: usize = 24;

/// Common header, the first eight bytes of each PDU (TCP 3.6.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Common {
    /// PDU-type; see [`kind`].
    pub kind: u8,
    /// FLAGS; see [`flags`].
    pub flags: u8,
    /// HLEN: bytes of the header, without its digest.
    pub hlen: u8,
    /// PDO: offset of the data from the start of the PDU, in bytes; 0 if there are none.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU, digests and data included.
    pub plen: U32,
}

impl Common {
    /// Bytes of the common header.
    pub const LEN: usize = 8;
}

/// The digests that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// HDGST: on every header.
    pub header: bool,
    /// DDGST: on all data.
    pub data: bool,
}

impl Digests {
    /// Decodes DGST of ICReq or ICResp.
    pub fn from_bits(bits: u8) -> Digests {
        Digests { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    /// Encodes DGST.
    pub fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }
}

/// The fields that ICReq and ICResp share (TCP 3.6.2.2, 3.6.2.3), without the common header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Greeting {
    /// PFV: 0, the only version.
    pub version: U16,
    /// HPDA of ICReq, CPDA of ICResp: the receiver of this PDU must align the data that it sends to
    /// 4 × (1 + `alignment`) bytes. At most 31.
    pub alignment: u8,
    /// DGST; see [`Digests`].
    pub digests: u8,
    /// MAXR2T of ICReq: maximum number of outstanding R2Ts per command, 0's based. MAXH2CDATA of
    /// ICResp: maximum bytes of data in an H2CData.
    pub limit: U32,
}

impl Greeting {
    /// Byte offsets of the fields, for [`Violation::field`].
    pub(crate) const VERSION_AT: u32 = 8;
    pub(crate) const ALIGNMENT_AT: u32 = 10;
    pub(crate) const DIGESTS_AT: u32 = 11;
}

/// H2CTermReq and C2HTermReq (TCP 3.6.2.4, 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// FES: the error.
    pub fes: Fes,
    /// FEI: the byte offset in the header for [`Fes::INVALID_FIELD`] and
    /// [`Fes::UNSUPPORTED_PARAMETER`], the received digest for [`Fes::HEADER_DIGEST`].
    pub fei: u32,
}

/// H2CData and C2HData (TCP 3.6.2.8, 3.6.2.9).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Data {
    /// CCCID: CID of the command.
    pub cid: U16,
    /// TTAG of an H2CData: tag of the R2T.
    pub tag: U16,
    /// DATAO: offset in the command's data, in bytes.
    pub offset: U32,
    /// DATAL: bytes of data.
    pub len: U32,
    #[doc(hidden)]
    pub reserved: U32,
}

impl Data {
    pub(crate) const CID_AT: u32 = 8;
    pub(crate) const TAG_AT: u32 = 10;
    pub(crate) const OFFSET_AT: u32 = 12;
    pub(crate) const LEN_AT: u32 = 16;
}

/// R2T (TCP 3.6.2.10): the layout of H2CData; `offset` and `len` are of the requested data.
pub type R2t = Data;

/// FES: Fatal Error Status of a TermReq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fes(pub u16);

#[allow(missing_docs)]
impl Fes {
    pub const INVALID_FIELD: Fes = Fes(1);
    pub const SEQUENCE_ERROR: Fes = Fes(2);
    pub const HEADER_DIGEST: Fes = Fes(3);
    pub const OUT_OF_RANGE: Fes = Fes(4);
    pub const LIMIT_EXCEEDED: Fes = Fes(5);
    pub const UNSUPPORTED_PARAMETER: Fes = Fes(6);
}

/// A protocol violation, as the TermReq reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub Term);

impl Violation {
    pub(crate) fn field(at: u32) -> Violation {
        Violation(Term { fes: Fes::INVALID_FIELD, fei: at })
    }

    pub(crate) fn unsupported(at: u32) -> Violation {
        Violation(Term { fes: Fes::UNSUPPORTED_PARAMETER, fei: at })
    }

    pub(crate) fn of(fes: Fes) -> Violation {
        Violation(Term { fes, fei: 0 })
    }
}

/// The type-specific part of a PDU header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Body {
    IcReq(Greeting),
    IcResp(Greeting),
    H2cTermReq(Term),
    C2hTermReq(Term),
    CapsuleCmd(Sqe),
    CapsuleResp(Cqe),
    H2cData(Data),
    C2hData(Data),
    R2t(R2t),
}

/// An end of the connection. As a parameter: the end that receives the PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Host,
    Controller,
}

/// A PDU's header, decoded; its data are received separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// LAST_PDU and SUCCESS; see [`flags`].
    pub flags: u8,
    /// The type-specific part.
    pub body: Body,
    /// Bytes of data that follow; in a TermReq, bytes of the quoted header.
    pub data: u32,
}

/// The encoded bytes before a PDU's data: a buffer, and the number of bytes used.
pub(crate) type Prefix = ([u8; LONGEST_HEADER], usize);

impl Pdu {
    /// A PDU without flags and data.
    pub fn new(body: Body) -> Pdu {
        Pdu { flags: 0, body, data: 0 }
    }

    fn kind(&self) -> u8 {
        match self.body {
            Body::IcReq(_) => kind::IC_REQ,
            Body::IcResp(_) => kind::IC_RESP,
            Body::H2cTermReq(_) => kind::H2C_TERM_REQ,
            Body::C2hTermReq(_) => kind::C2H_TERM_REQ,
            Body::CapsuleCmd(_) => kind::CAPSULE_CMD,
            Body::CapsuleResp(_) => kind::CAPSULE_RESP,
            Body::H2cData(_) => kind::H2C_DATA,
            Body::C2hData(_) => kind::C2H_DATA,
            Body::R2t(_) => kind::R2T,
        }
    }

    /// Encodes everything before the data: header, header digest, and padding that aligns the data
    /// to 4 × (1 + `alignment`) bytes.
    pub(crate) fn encode_prefix(&self, digests: Digests, alignment: u8) -> Prefix {
        let kind = self.kind();
        let hlen = usize::from(hlen(kind).unwrap_or(0));
        let digests = if has_digests(kind) { digests } else { Digests::default() };
        let mut bytes = [0; LONGEST_HEADER];
        match &self.body {
            Body::IcReq(greeting) | Body::IcResp(greeting) => {
                bytes[8..16].copy_from_slice(greeting.as_bytes())
            }
            Body::H2cTermReq(term) | Body::C2hTermReq(term) => {
                bytes[8..10].copy_from_slice(&term.fes.0.to_le_bytes());
                bytes[10..14].copy_from_slice(&term.fei.to_le_bytes());
            }
            Body::CapsuleCmd(sqe) => bytes[8..72].copy_from_slice(sqe.as_bytes()),
            Body::CapsuleResp(cqe) => bytes[8..24].copy_from_slice(cqe.as_bytes()),
            Body::H2cData(data) | Body::C2hData(data) | Body::R2t(data) => {
                bytes[8..24].copy_from_slice(data.as_bytes())
            }
        }
        let mut len = hlen + if digests.header { DIGEST } else { 0 };
        let mut common = Common { kind, flags: self.flags, hlen: hlen as u8, ..Common::default() };
        common.flags |= if digests.header { flags::HEADER_DIGEST } else { 0 };
        let mut plen = len + self.data as usize;
        if self.data > 0 && may_have_data(kind) {
            len = len.next_multiple_of(4 * (usize::from(alignment) + 1));
            common.pdo = len as u8;
            plen = len + self.data as usize;
            if digests.data {
                common.flags |= flags::DATA_DIGEST;
                plen += DIGEST;
            }
        }
        common.plen = (plen as u32).into();
        bytes[..8].copy_from_slice(common.as_bytes());
        if digests.header {
            let digest = digest(&bytes[..hlen]);
            bytes[hlen..hlen + DIGEST].copy_from_slice(&digest.to_le_bytes());
        }
        (bytes, len)
    }

    /// Encodes the whole PDU with its data, for the peers in tests.
    pub fn to_bytes(self, data: &[u8], digests: Digests, alignment: u8) -> Vec<u8> {
        let (prefix, len) =
            Pdu { data: data.len() as u32, ..self }.encode_prefix(digests, alignment);
        let mut bytes = prefix[..len].to_vec();
        bytes.extend_from_slice(data);
        if !data.is_empty() && digests.data && may_have_data(self.kind()) {
            bytes.extend_from_slice(&digest(data).to_le_bytes());
        }
        bytes
    }

    /// Decodes the header at the start of `bytes`. `common`: its first eight bytes; `shape`: the
    /// result of [`Common::validate`] for them.
    pub(crate) fn read(bytes: &[u8], common: Common, shape: Shape) -> Option<Pdu> {
        let rest = bytes.get(Common::LEN..)?;
        let data = |rest| Data::read_from_prefix(rest).ok().map(|(data, _)| data);
        let greeting = |rest| Greeting::read_from_prefix(rest).ok().map(|(greeting, _)| greeting);
        let term = |rest: &[u8]| {
            let fes = Fes(u16::from_le_bytes(*rest.first_chunk()?));
            Some(Term { fes, fei: u32::from_le_bytes(*rest.get(2..)?.first_chunk()?) })
        };
        let body = match common.kind {
            kind::IC_REQ => Body::IcReq(greeting(rest)?),
            kind::IC_RESP => Body::IcResp(greeting(rest)?),
            kind::H2C_TERM_REQ => Body::H2cTermReq(term(rest)?),
            kind::C2H_TERM_REQ => Body::C2hTermReq(term(rest)?),
            kind::CAPSULE_CMD => Body::CapsuleCmd(Sqe::read_from_prefix(rest).ok()?.0),
            kind::CAPSULE_RESP => Body::CapsuleResp(Cqe::read_from_prefix(rest).ok()?.0),
            kind::H2C_DATA => Body::H2cData(data(rest)?),
            kind::C2H_DATA => Body::C2hData(data(rest)?),
            kind::R2T => Body::R2t(data(rest)?),
            _ => return None,
        };
        Some(Pdu { flags: common.flags & (flags::LAST | flags::SUCCESS), body, data: shape.data })
    }
}

/// HLEN of each type; `None` for an unknown type.
fn hlen(kind: u8) -> Option<u8> {
    Some(match kind {
        kind::IC_REQ | kind::IC_RESP => 128,
        kind::H2C_TERM_REQ | kind::C2H_TERM_REQ => TERM_HEADER as u8,
        kind::CAPSULE_CMD => 72,
        kind::CAPSULE_RESP | kind::H2C_DATA | kind::C2H_DATA | kind::R2T => 24,
        _ => return None,
    })
}

fn has_digests(kind: u8) -> bool {
    !matches!(kind, kind::IC_REQ | kind::IC_RESP | kind::H2C_TERM_REQ | kind::C2H_TERM_REQ)
}

fn may_have_data(kind: u8) -> bool {
    matches!(kind, kind::CAPSULE_CMD | kind::H2C_DATA | kind::C2H_DATA)
}

/// Layout of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes before the data: header, header digest, padding. In a TermReq, the whole PDU.
    pub(crate) prefix: usize,
    /// Bytes of the header alone.
    pub(crate) hlen: usize,
    /// The header is followed by a digest.
    pub(crate) header_digest: bool,
    /// Bytes of data. In a TermReq, bytes of the quoted header at the end of `prefix`.
    pub(crate) data: u32,
    /// The data are followed by a digest.
    pub(crate) data_digest: bool,
}

const KIND_AT: u32 = 0;
const FLAGS_AT: u32 = 1;
const HLEN_AT: u32 = 2;
const PDO_AT: u32 = 3;
pub(crate) const PLEN_AT: u32 = 4;

impl Common {
    /// Validates a common header that `side` has received, and returns the PDU's layout.
    /// `alignment`: the HPDA or CPDA that `side` has sent.
    pub(crate) fn validate(
        &self,
        side: Side,
        digests: Digests,
        alignment: u8,
    ) -> Result<Shape, Violation> {
        let sent_by_host = matches!(
            self.kind,
            kind::IC_REQ | kind::H2C_TERM_REQ | kind::CAPSULE_CMD | kind::H2C_DATA
        );
        let hlen = hlen(self.kind).ok_or(Violation::field(KIND_AT))?;
        // A known type in the wrong direction is a sequence error, an unknown type an invalid
        // field.
        if sent_by_host != (side == Side::Controller) {
            return Err(Violation::of(Fes::SEQUENCE_ERROR));
        }
        if self.hlen != hlen {
            return Err(Violation::field(HLEN_AT));
        }
        let hlen = usize::from(hlen);
        let plen = self.plen.get() as usize;
        let digests = if has_digests(self.kind) { digests } else { Digests::default() };
        if (self.flags & flags::HEADER_DIGEST != 0) != digests.header {
            return Err(Violation::field(FLAGS_AT));
        }
        let data_digest = self.flags & flags::DATA_DIGEST != 0;
        let prefix = hlen + if digests.header { DIGEST } else { 0 };
        let plain =
            Shape { prefix, hlen, header_digest: digests.header, data: 0, data_digest: false };
        if matches!(self.kind, kind::H2C_TERM_REQ | kind::C2H_TERM_REQ) {
            // A TermReq has no PDO to separate the header that it quotes, so the whole PDU is
            // received as prefix.
            let quoted = plen
                .checked_sub(prefix)
                .filter(|quoted| *quoted <= LONGEST_HEADER)
                .ok_or(Violation::field(PLEN_AT))?;
            return Ok(Shape { prefix: plen, data: quoted as u32, ..plain });
        }
        if !may_have_data(self.kind) || self.pdo == 0 || plen == prefix {
            // This PDU has no data, so its PDO is ignored. An H2CData or C2HData without data is an
            // error.
            let needs_data = matches!(self.kind, kind::H2C_DATA | kind::C2H_DATA);
            return match () {
                () if needs_data && self.pdo == 0 => Err(Violation::field(PDO_AT)),
                () if plen != prefix || needs_data => Err(Violation::field(PLEN_AT)),
                () if data_digest && !digests.data => Err(Violation::field(FLAGS_AT)),
                () => Ok(plain),
            };
        }
        if data_digest != digests.data {
            return Err(Violation::field(FLAGS_AT));
        }
        let pdo = usize::from(self.pdo);
        // PDO must be beyond the header and its digest, and aligned as this side requested.
        if pdo < prefix || !pdo.is_multiple_of(4 * (usize::from(alignment) + 1)) {
            return Err(Violation::field(PDO_AT));
        }
        let rest =
            plen.checked_sub(pdo + if data_digest { DIGEST } else { 0 }).filter(|data| *data > 0);
        let data = rest.ok_or(Violation::field(PLEN_AT))? as u32;
        Ok(Shape { prefix: pdo, data, data_digest, ..plain })
    }
}
