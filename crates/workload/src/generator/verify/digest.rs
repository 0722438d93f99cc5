//! The checksums of fio's kinds of verification, as fio 3.33 stores them behind the header.

use super::header::crc32c_of;
use crate::job::VerifyKind;
use crc::{Algorithm, Crc, Table};
use md5::Md5;
use md5::digest::Digest as _;
use sha1::Sha1;
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};
use std::fmt;
use xxhash_rust::xxh32::xxh32;

/// Most bytes of a checksum.
const MOST: usize = 64;
/// Of a longer one so many bytes are shown.
const SHOWN: usize = 16;

/// What stands behind the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    bytes: [u8; MOST],
    len: usize,
}

impl Sum {
    fn new(from: &[u8]) -> Sum {
        let mut bytes = [0; MOST];
        let len = from.len().min(MOST);
        bytes[..len].copy_from_slice(&from[..len]);
        Sum { bytes, len }
    }

    /// Its bytes as they stand in the block.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A checksum, to be shown: four bytes as a number, of more the first sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; SHOWN],
    len: u8,
}

impl Digest {
    /// The checksum that stands in a block as `from`.
    pub(super) fn of(from: &[u8]) -> Digest {
        let mut bytes = [0; SHOWN];
        let len = from.len().min(SHOWN);
        bytes[..len].copy_from_slice(&from[..len]);
        Digest { bytes, len: len as u8 }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = &self.bytes[..usize::from(self.len)];
        match <[u8; 4]>::try_from(bytes) {
            Ok(word) => write!(f, "{:#010x}", u32::from_le_bytes(word)),
            Err(_) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// Bytes of the digest of `kind`.
pub(super) fn len_of(kind: VerifyKind) -> usize {
    match kind {
        VerifyKind::Crc7 => 1,
        VerifyKind::Crc16 => 2,
        VerifyKind::Crc32c | VerifyKind::Crc32 | VerifyKind::XxHash => 4,
        VerifyKind::Crc64 => 8,
        VerifyKind::Md5 => 16,
        VerifyKind::Sha1 => 20,
        VerifyKind::Sha3_224 => 28,
        VerifyKind::Sha3_256 => 32,
        VerifyKind::Sha3_384 => 48,
        VerifyKind::Sha256 | VerifyKind::Sha3_512 => MOST,
        VerifyKind::Meta | VerifyKind::PatternHeader | VerifyKind::Pattern | VerifyKind::Null => 0,
    }
}

/// The polynomial of Ethernet's CRC, most significant bit first, from 0, and not inverted: fio's own variant of CRC-32.
const FIO_CRC32: Algorithm<u32> =
    Algorithm { width: 32, poly: 0x04c1_1db7, init: 0, refin: false, refout: false, xorout: 0, check: 0x89a1_897f, residue: 0 };
// The catalogue has the others: MMC's CRC-7, ARC's CRC-16, and Jones's CRC-64.
static CRC7: Crc<u8, Table<1>> = Crc::<u8, Table<1>>::new(&crc::CRC_7_MMC);
static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&crc::CRC_16_ARC);
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&crc::CRC_64_REDIS);
static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&FIO_CRC32);

/// The digest of `data`.
pub(super) fn digest(kind: VerifyKind, data: &[u8]) -> Sum {
    match kind {
        VerifyKind::Crc32c => Sum::new(&crc32c_of(data).to_le_bytes()),
        VerifyKind::Crc32 => Sum::new(&CRC32.checksum(data).to_le_bytes()),
        VerifyKind::XxHash => Sum::new(&xxh32(data, 1).to_le_bytes()),
        VerifyKind::Crc7 => Sum::new(&[CRC7.checksum(data)]),
        VerifyKind::Crc16 => Sum::new(&CRC16.checksum(data).to_le_bytes()),
        VerifyKind::Crc64 => Sum::new(&CRC64.checksum(data).to_le_bytes()),
        VerifyKind::Md5 => Sum::new(&Md5::digest(data)),
        VerifyKind::Sha1 => Sum::new(&sha1(data)),
        VerifyKind::Sha3_224 => Sum::new(&Sha3_224::digest(data)),
        VerifyKind::Sha3_256 => Sum::new(&Sha3_256::digest(data)),
        VerifyKind::Sha3_384 => Sum::new(&Sha3_384::digest(data)),
        VerifyKind::Sha3_512 => Sum::new(&Sha3_512::digest(data)),
        VerifyKind::Sha256 => Sum::new(&sha256(data)),
        VerifyKind::Meta | VerifyKind::PatternHeader | VerifyKind::Pattern | VerifyKind::Null => Sum::new(&[]),
    }
}

/// fio stores the words of the SHA-1 state as the machine has them, little-endian; the standard's digest is big-endian.
fn sha1(data: &[u8]) -> [u8; 20] {
    let mut digest: [u8; 20] = Sha1::digest(data).into();
    digest.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
    digest
}

/// The state that SHA-256 begins with (FIPS 180-4, 5.3.3).
const SHA256_START: [u32; 8] = [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// fio's SHA-256 is not the standard's. It appends the length in bits little-endian; and what it stores are the last padded
/// block's 64 bytes, the first eight of them replaced by the lowest byte of each word of the state.
fn sha256(data: &[u8]) -> [u8; 64] {
    let (blocks, tail) = data.as_chunks::<64>();
    let mut state = SHA256_START;
    sha2::block_api::compress256(&mut state, blocks);
    let mut last = [0; 64];
    last[..tail.len()].copy_from_slice(tail);
    last[tail.len()] = 0x80;
    if tail.len() >= 56 {
        sha2::block_api::compress256(&mut state, &[last]);
        last = [0; 64];
    }
    last[56..].copy_from_slice(&(u64::from(data.len() as u32) << 3).to_le_bytes());
    sha2::block_api::compress256(&mut state, &[last]);
    for (byte, word) in last.iter_mut().zip(state) {
        *byte = word as u8;
    }
    last
}

#[cfg(test)]
mod tests;
