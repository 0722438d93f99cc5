//! `vfio-user:SOCKET[?…]`: an NVMe controller that another process serves.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::transport::pci::{MAX_VECTORS, check_vectors};
use crate::uri::UriError;
use crate::uri::values::{decode_path, each_parameter, encode_path, no_parameter, one_of, within};

/// The scheme, with its colon.
pub(crate) const SCHEME: &str = "vfio-user:";

const KEYS: &str = "vectors, hugepages, trust, shadow, sgl";

/// A parsed vfio-user URI:
/// `vfio-user:SOCKET[?vectors=N&hugepages=yes|no&trust=yes|no&shadow=yes|no&sgl=yes|no]`.
///
/// The path is percent-decoded, so `%3F` stands for a question mark in it and `%25` for a percent
/// sign.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VfioUserUri {
    /// The socket that the server listens on. Any bytes but NUL.
    pub socket: PathBuf,
    /// `vectors=`: the most interrupt vectors to use, the admin one included; fewer than queues + 1
    /// are shared. `None`: as many as the server has.
    pub(crate) vectors: Option<u16>,
    /// `hugepages=yes|no`: whether the pool is made of huge pages of 2 MiB, as far as they are
    /// reserved. SPDK's target can map no other memory.
    pub huge_pages: bool,
    /// `trust=yes|no`: whether to share files with the server although it could take pages of them
    /// away, which would end this process (SIGBUS).
    pub trust: bool,
    /// `shadow=yes|no`: whether to use shadow doorbells (Doorbell Buffer Config) where the
    /// controller offers them. `None`: only where a doorbell is a message.
    pub(crate) shadow: Option<bool>,
    /// `sgl=yes|no`: whether transfers that would need a PRP list use SGLs where the controller has
    /// them. Yes by default.
    pub(crate) sgl: bool,
}

impl FromStr for VfioUserUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<VfioUserUri, UriError> {
        let fail = |at: usize, what: String| UriError { uri: uri.to_owned(), column: at + 1, what };
        let expected = "expected `vfio-user:SOCKET`, such as `vfio-user:/run/nvme.sock`";
        let rest = uri.strip_prefix(SCHEME).ok_or_else(|| fail(0, expected.into()))?;
        let (body, query) =
            rest.split_once('?').map_or((rest, None), |(body, query)| (body, Some(query)));
        let socket = decode_path(body).map_err(|what| fail(SCHEME.len(), what))?;
        let mut parsed = VfioUserUri::new(socket);
        let query_at = SCHEME.len() + body.len() + 1;
        each_parameter(query, query_at, "vectors=2", |key, value| parsed.set(key, value))
            .map_err(|(at, what)| fail(at, what))?;
        parsed.check().map_err(|what| fail(query_at, what))?;
        Ok(parsed)
    }
}

impl VfioUserUri {
    /// The controller that a server has at `socket`, with the default for every other field.
    pub fn new(socket: impl Into<PathBuf>) -> VfioUserUri {
        VfioUserUri {
            socket: socket.into(),
            vectors: None,
            huge_pages: false,
            trust: false,
            shadow: None,
            sgl: true,
        }
    }

    /// Checks the fields, which a caller may have set without parsing a URI.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_vectors(self.vectors)?;
        if self.huge_pages && !self.trust {
            let what = "the server can take huge pages of the pool away, which would end this process; add `trust=yes` if it does not";
            return Err(what.into());
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "vectors" => self.vectors = Some(within(key, value, 1, MAX_VECTORS)? as u16),
            "hugepages" => self.huge_pages = one_of(key, value, &["yes", "no"])? == "yes",
            "trust" => self.trust = one_of(key, value, &["yes", "no"])? == "yes",
            "shadow" => self.shadow = Some(one_of(key, value, &["yes", "no"])? == "yes"),
            "sgl" => self.sgl = one_of(key, value, &["yes", "no"])? == "yes",
            _ => return Err(no_parameter(key, KEYS)),
        }
        Ok(())
    }
}

impl fmt::Display for VfioUserUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            self.vectors.map(|vectors| format!("vectors={vectors}")),
            self.huge_pages.then(|| "hugepages=yes".to_owned()),
            self.trust.then(|| "trust=yes".to_owned()),
            self.shadow.map(|shadow| format!("shadow={}", if shadow { "yes" } else { "no" })),
            (!self.sgl).then(|| "sgl=no".to_owned()),
        ];
        let said: Vec<_> = said.into_iter().flatten().collect();
        write!(f, "{SCHEME}{}", encode_path(&self.socket))?;
        if said.is_empty() { Ok(()) } else { write!(f, "?{}", said.join("&")) }
    }
}

#[cfg(test)]
mod tests;
