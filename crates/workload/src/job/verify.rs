//! `verify`: what a job writes so that it can be checked, and what it checks.

/// What proves a block: fio's `verify`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyKind {
    /// A header and a CRC-32C (Castagnoli) of the rest.
    #[default]
    Crc32c,
    /// A header and an MD5 digest of the rest.
    Md5,
    /// A header and a SHA-256 digest of the rest.
    Sha256,
    /// A header and an XXH32 hash of the rest.
    XxHash,
    /// `pattern_hdr`, or `verify_pattern` alone: a header, and a pattern in the rest.
    PatternHeader,
    /// `pattern`: a pattern, and no header.
    Pattern,
    /// `null`: nothing. What was written is read back, and not looked at.
    Null,
}

impl VerifyKind {
    /// fio's name.
    pub fn name(self) -> &'static str {
        match self {
            VerifyKind::Crc32c => "crc32c",
            VerifyKind::Md5 => "md5",
            VerifyKind::Sha256 => "sha256",
            VerifyKind::XxHash => "xxhash",
            VerifyKind::PatternHeader => "pattern_hdr",
            VerifyKind::Pattern => "pattern",
            VerifyKind::Null => "null",
        }
    }

    /// The kind of that name; `crc32c-intel` is `crc32c`.
    pub fn from_name(name: &str) -> Option<VerifyKind> {
        let name = if name == "crc32c-intel" { "crc32c" } else { name };
        VerifyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// All of them.
    pub const ALL: [VerifyKind; 7] = [
        VerifyKind::Crc32c,
        VerifyKind::Md5,
        VerifyKind::Sha256,
        VerifyKind::XxHash,
        VerifyKind::PatternHeader,
        VerifyKind::Pattern,
        VerifyKind::Null,
    ];
}

/// `verify_pattern`: bytes that are repeated from the start of each I/O to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillPattern {
    /// The bytes, at least 1. Those of a `%o` are 0 here.
    pub bytes: Vec<u8>,
    /// Where each `%o` begins: eight bytes that hold the I/O's offset, little-endian.
    pub offsets: Vec<usize>,
}

impl FillPattern {
    /// The bytes of an I/O at `offset`.
    pub fn at(&self, offset: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &place in &self.offsets {
            if let Some(hole) = bytes.get_mut(place..place + 8) {
                hole.copy_from_slice(&offset.to_le_bytes());
            }
        }
        bytes
    }
}

/// Headers and checksums in what is written, checked in what is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// `verify`.
    pub kind: VerifyKind,
    /// `verify_pattern`: what stands in the data, whatever the kind; `None`: data of a seed.
    pub pattern: Option<FillPattern>,
    /// `verify_interval`: bytes that each header covers, itself included; `None`: what all write sizes are multiples of.
    pub interval: Option<u64>,
    /// `verify_offset`: where in its block the header stands, in bytes.
    pub offset: u32,
    /// `verify_fatal`: stop at the first block that is wrong; else check on and count them.
    pub fatal: bool,
    /// `do_verify`: read back what was written once the writing is done.
    pub after_write: bool,
    /// `verify_backlog`: what was written is read back after so many writes already.
    pub backlog: Option<Backlog>,
    /// `verify_only`: write nothing, and check what the same job wrote earlier.
    pub only: bool,
    /// `verify_header_seed`: compare the seed in the header. `None`: where the job's seeds are known to be the writer's.
    pub header_seed: Option<bool>,
}

impl Default for Verify {
    /// `verify=crc32c` with fio's defaults.
    fn default() -> Verify {
        Verify {
            kind: VerifyKind::Crc32c,
            pattern: None,
            interval: None,
            offset: 0,
            fatal: false,
            after_write: true,
            backlog: None,
            only: false,
            header_seed: None,
        }
    }
}

/// `verify_backlog`: verification between writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Writes before the oldest of them are read back; never 0.
    pub writes: u64,
    /// `verify_backlog_batch`: so many are read back then; never 0.
    pub batch: u64,
}
