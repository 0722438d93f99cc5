//! The checksums of fio's kinds of verification, as fio 3.33 stores them behind the header.

use super::header::crc32c_of;
use crate::job::VerifyKind;
use md5::Md5;
use md5::digest::Digest as _;
use xxhash_rust::xxh32::xxh32;

/// Most bytes of a checksum.
const MOST: usize = 64;

/// The checksum that stands in a block as `bytes`, to be shown: four bytes as a number, of more the first sixteen.
pub(super) fn shown(bytes: &[u8]) -> String {
    match <[u8; 4]>::try_from(bytes) {
        Ok(word) => format!("{:#010x}", u32::from_le_bytes(word)),
        Err(_) => bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Bytes of the digest of `kind`.
pub(super) fn len_of(kind: VerifyKind) -> usize {
    match kind {
        VerifyKind::Crc32c | VerifyKind::XxHash => 4,
        VerifyKind::Md5 => 16,
        VerifyKind::Sha256 => MOST,
        VerifyKind::PatternHeader | VerifyKind::Pattern | VerifyKind::Null => 0,
    }
}

/// The digest of `data`: the first [`len_of`] bytes.
pub(super) fn digest(kind: VerifyKind, data: &[u8]) -> [u8; MOST] {
    let mut digest = [0; MOST];
    match kind {
        VerifyKind::Crc32c => digest[..4].copy_from_slice(&crc32c_of(data).to_le_bytes()),
        VerifyKind::XxHash => digest[..4].copy_from_slice(&xxh32(data, 1).to_le_bytes()),
        VerifyKind::Md5 => digest[..16].copy_from_slice(&Md5::digest(data)),
        VerifyKind::Sha256 => digest = sha256(data),
        VerifyKind::PatternHeader | VerifyKind::Pattern | VerifyKind::Null => {}
    }
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
