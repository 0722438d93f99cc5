//! PDUs: headers laid out and read (TCP 3.6).

use nvme::{Cqe, Sqe};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::digest;

/// PDU types.
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
    /// HDGSTF: a digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU: the last of the data of a command, or of an R2T.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS: no response follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bytes of a digest.
pub(crate) const DIGEST: usize = 4;
/// Bytes of the longest header: ICReq, ICResp.
pub(crate) const LONGEST_HEADER: usize = 128;
/// Bytes of the header of a TermReq, and of the header that it may quote.
const TERM_HEADER: usize = 24;

/// The eight bytes with which each PDU begins (TCP 3.6.1).
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
    /// PDO: where data begin; 0: there are none.
    pub pdo: u8,
    /// PLEN: bytes of all of it.
    pub plen: U32,
}

impl Common {
    /// Bytes.
    pub const LEN: usize = 8;
}

/// Which digests a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Of headers.
    pub header: bool,
    /// Of data.
    pub data: bool,
}

impl Digests {
    /// From DGST of ICReq or ICResp.
    pub fn from_bits(bits: u8) -> Digests {
        Digests { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    /// For DGST.
    pub fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }
}

/// ICReq and ICResp (TCP 3.6.2.2, 3.6.2.3), without the common header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Greeting {
    /// PFV: 0, the only version.
    pub version: U16,
    /// HPDA of ICReq, CPDA of ICResp: data that come to the sender begin at a multiple of 4 × (1 +
    /// this). 31 at most.
    pub alignment: u8,
    /// DGST; see [`Digests`].
    pub digests: u8,
    /// MAXR2T of ICReq: most R2Ts outstanding for a command, 0's based. MAXH2CDATA of ICResp: most
    /// bytes of an H2CData.
    pub limit: U32,
}

impl Greeting {
    /// Offsets of the fields, for [`Violation::field`].
    pub(crate) const VERSION_AT: u32 = 8;
    pub(crate) const ALIGNMENT_AT: u32 = 10;
    pub(crate) const DIGESTS_AT: u32 = 11;
}

/// H2CTermReq and C2HTermReq (TCP 3.6.2.4, 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// FES: what was wrong.
    pub fes: Fes,
    /// FEI: where, of [`Fes::INVALID_FIELD`] and [`Fes::UNSUPPORTED_PARAMETER`] the byte of the
    /// header; the digest of [`Fes::HEADER_DIGEST`].
    pub fei: u32,
}

/// H2CData and C2HData (TCP 3.6.2.8, 3.6.2.9).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Data {
    /// CCCID: whose data.
    pub cid: U16,
    /// TTAG of an H2CData: which R2T it answers.
    pub tag: U16,
    /// DATAO: where in the command's data.
    pub offset: U32,
    /// DATAL: bytes.
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

/// R2T (TCP 3.6.2.10): the same fields, which say what the controller is ready for.
pub type R2t = Data;

/// FES: why a connection is ended.
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

/// What is wrong with a PDU.
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

/// What a PDU says beyond the common header.
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

/// Who receives a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Host,
    Controller,
}

/// The header of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// LAST and SUCCESS; see [`flags`].
    pub flags: u8,
    /// What it says.
    pub body: Body,
    /// Bytes of data that follow it. Of a TermReq, of the header that it quotes.
    pub data: u32,
}

/// A header as it is sent: its bytes, and how many of them are used.
pub(crate) type Head = ([u8; LONGEST_HEADER], usize);

impl Pdu {
    /// One without data.
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

    /// Lays out everything before the data: header, digest, and padding so that data begin at a
    /// multiple of 4 × (1 + `alignment`).
    pub(crate) fn head(&self, digests: Digests, alignment: u8) -> Head {
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

    /// All of it, with these data. For peers in tests.
    pub fn to_bytes(self, data: &[u8], digests: Digests, alignment: u8) -> Vec<u8> {
        let (head, len) = Pdu { data: data.len() as u32, ..self }.head(digests, alignment);
        let mut bytes = head[..len].to_vec();
        bytes.extend_from_slice(data);
        if !data.is_empty() && digests.data && may_have_data(self.kind()) {
            bytes.extend_from_slice(&digest(data).to_le_bytes());
        }
        bytes
    }

    /// Reads the header that `bytes` begin with, which `shape` has been made of.
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

/// HLEN of each type; `None`: there is no such type.
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

/// How the bytes of a PDU are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes before the data: header, digest, padding.
    pub(crate) head: usize,
    /// Of the header alone.
    pub(crate) hlen: usize,
    pub(crate) header_digest: bool,
    pub(crate) data: u32,
    pub(crate) data_digest: bool,
}

const KIND_AT: u32 = 0;
const FLAGS_AT: u32 = 1;
const HLEN_AT: u32 = 2;
const PDO_AT: u32 = 3;
pub(crate) const PLEN_AT: u32 = 4;

impl Common {
    /// Judges a common header that `side` receives. `alignment` is what this side asked for.
    pub(crate) fn shape(
        &self,
        side: Side,
        digests: Digests,
        alignment: u8,
    ) -> Result<Shape, Violation> {
        let of_hosts = matches!(
            self.kind,
            kind::IC_REQ | kind::H2C_TERM_REQ | kind::CAPSULE_CMD | kind::H2C_DATA
        );
        let hlen = hlen(self.kind).ok_or(Violation::field(KIND_AT))?;
        // A PDU of the wrong direction is a sequence error, an unknown type an invalid field.
        if of_hosts != (side == Side::Controller) {
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
        let head = hlen + if digests.header { DIGEST } else { 0 };
        let plain =
            Shape { head, hlen, header_digest: digests.header, data: 0, data_digest: false };
        if matches!(self.kind, kind::H2C_TERM_REQ | kind::C2H_TERM_REQ) {
            // It quotes the header that was wrong, whatever PDO says.
            let quoted = plen
                .checked_sub(head)
                .filter(|quoted| *quoted <= LONGEST_HEADER)
                .ok_or(Violation::field(PLEN_AT))?;
            return Ok(Shape { head: plen, data: quoted as u32, ..plain });
        }
        if !may_have_data(self.kind) || self.pdo == 0 || plen == head {
            // A capsule without data: what PDO says does not matter then.
            let needs_data = matches!(self.kind, kind::H2C_DATA | kind::C2H_DATA);
            return match () {
                () if needs_data && self.pdo == 0 => Err(Violation::field(PDO_AT)),
                () if plen != head || needs_data => Err(Violation::field(PLEN_AT)),
                () if data_digest && !digests.data => Err(Violation::field(FLAGS_AT)),
                () => Ok(plain),
            };
        }
        if data_digest != digests.data {
            return Err(Violation::field(FLAGS_AT));
        }
        let pdo = usize::from(self.pdo);
        // PDO must not point into the header or its digest, and has the alignment that the receiver
        // asked for.
        if pdo < head || !pdo.is_multiple_of(4 * (usize::from(alignment) + 1)) {
            return Err(Violation::field(PDO_AT));
        }
        let rest =
            plen.checked_sub(pdo + if data_digest { DIGEST } else { 0 }).filter(|data| *data > 0);
        let data = rest.ok_or(Violation::field(PLEN_AT))? as u32;
        Ok(Shape { head: pdo, data, data_digest, ..plain })
    }
}
