//! `kernel:PATH[?…]`: a file or a block device that the kernel drives.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::uri::UriError;
use crate::uri::values::{
    decode_path, each_parameter, encode_path, no_parameter, one_of, parse_size, show_size,
};

/// The scheme, with its colon.
pub(crate) const SCHEME: &str = "kernel:";

const KEYS: &str = "size, readonly, buffered, lba";

/// A parsed kernel URI:
/// `kernel:PATH[?size=SIZE&readonly=yes|no&buffered=yes|no|auto&lba=512|4096]`.
///
/// The path is percent-decoded, so `%3F` stands for a question mark in it and `%25` for a percent
/// sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelUri {
    /// The file or block device. Any bytes but NUL.
    pub path: PathBuf,
    /// `size=`: bytes of a new regular file, which is laid out without holes. An existing file must
    /// have this size.
    pub bytes: Option<u64>,
    /// `readonly=yes|no`: whether writes are refused. `no` by default.
    pub read_only: bool,
    /// `buffered=yes|no|auto`: through the page cache always, never, or only where the kernel
    /// refuses O_DIRECT.
    pub buffered: Buffered,
    /// `lba=`: bytes of a logical block, 512 or 4096. `None`: the smallest that direct I/O
    /// supports.
    pub lba_bytes: Option<u32>,
}

/// Whether I/O goes through the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffered {
    /// Direct I/O where the kernel supports it; else buffered, and the device notes that.
    #[default]
    Auto,
    /// Through the page cache.
    Yes,
    /// Direct I/O, or the open fails.
    No,
}

impl FromStr for KernelUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<KernelUri, UriError> {
        let fail = |at: usize, what: String| UriError { uri: uri.to_owned(), column: at + 1, what };
        let rest = uri.strip_prefix(SCHEME).ok_or_else(|| {
            fail(0, "expected `kernel:PATH`, such as `kernel:/dev/nvme0n1`".into())
        })?;
        let body_at = SCHEME.len();
        let (body, query) = rest.split_once('?').map_or((rest, None), |(b, q)| (b, Some(q)));
        let path = decode_path(body).map_err(|e| fail(body_at, e))?;
        let mut parsed = KernelUri::new(path);
        let query_at = body_at + body.len() + 1;
        each_parameter(query, query_at, "buffered=yes", |key, value| parsed.set(key, value))
            .map_err(|(at, what)| fail(at, what))?;
        parsed.check().map_err(|e| fail(query_at, e))?;
        Ok(parsed)
    }
}

impl KernelUri {
    /// An existing file or block device, with the default for every other field.
    pub fn new(path: impl Into<PathBuf>) -> KernelUri {
        KernelUri {
            path: path.into(),
            bytes: None,
            read_only: false,
            buffered: Buffered::Auto,
            lba_bytes: None,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "size" => self.bytes = Some(parse_size(value)?),
            "readonly" => self.read_only = one_of(key, value, &["yes", "no"])? == "yes",
            "buffered" => {
                self.buffered = match one_of(key, value, &["yes", "no", "auto"])? {
                    "yes" => Buffered::Yes,
                    "no" => Buffered::No,
                    _ => Buffered::Auto,
                }
            }
            "lba" => {
                self.lba_bytes =
                    Some(if one_of(key, value, &["512", "4096"])? == "512" { 512 } else { 4096 })
            }
            // Refused by name, because other tools have it: no other parameter may be suggested
            // instead.
            "force" => {
                let never = "there is no `force=`: Reap never writes to what is mounted, used as swap or held by others";
                return Err(format!("{never}; release it, or read it with `readonly=yes`"));
            }
            _ => return Err(no_parameter(key, KEYS)),
        }
        Ok(())
    }

    /// Checks the fields, which a caller may have set without parsing a URI.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(lba) = self.lba_bytes {
            one_of("lba", &lba.to_string(), &["512", "4096"])?;
        }
        let Some(bytes) = self.bytes else { return Ok(()) };
        if self.read_only {
            return Err("`size=` lays a file out by writing it, and `readonly=yes` forbids that; leave one of them out".into());
        }
        // The rest after the last whole block of a file is not used.
        let block = self.lba_bytes.unwrap_or(512);
        if bytes < u64::from(block) {
            Err(format!("{bytes} bytes are less than one block of {block} bytes"))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for KernelUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffered = match self.buffered {
            Buffered::Auto => None,
            Buffered::Yes => Some("buffered=yes".to_owned()),
            Buffered::No => Some("buffered=no".to_owned()),
        };
        let said = [
            self.bytes.map(|bytes| format!("size={}", show_size(bytes))),
            self.read_only.then(|| "readonly=yes".to_owned()),
            buffered,
            self.lba_bytes.map(|lba| format!("lba={lba}")),
        ];
        let said: Vec<_> = said.into_iter().flatten().collect();
        write!(f, "{SCHEME}{}", encode_path(&self.path))?;
        if said.is_empty() { Ok(()) } else { write!(f, "?{}", said.join("&")) }
    }
}

#[cfg(test)]
mod tests;
