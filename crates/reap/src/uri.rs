//! Device URIs of embedded controllers: `mem:1G?profile=optane`, `file:PATH?size=4G&lba=4096`. The
//! part before the `?` says where the data is; the parameters say how the controller behaves.

pub(crate) mod values;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use emu::{AbortOrder, Fetch, PendingBit};
use thiserror::Error;

use values::{
    decode, each_parameter, encode, encode_path, no_parameter, one_of, parse_size, show_size,
    whole_blocks, within,
};

/// A parsed device URI.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceUri {
    /// Where the data is.
    pub backing: Backing,
    /// `profile=`: a name (`null`, `optane`, `tlc`, `bimodal`, `cloud`) or the path of a TOML file
    /// that ends in `.toml`.
    pub profile: String,
    /// `lba=`: bytes of a logical block, 512 or 4096.
    pub lba_bytes: u32,
    /// `namespaces=`: the number of namespaces of the given size, 1 to 16.
    pub namespaces: u32,
    /// `queues=`: I/O queue pairs that the controller supports, 1 to 64.
    pub queues: u16,
    /// `vectors=`: number of interrupt vectors, including the admin queue's, 1 to 65. With fewer
    /// vectors than queues + 1, several queues share a vector.
    pub(crate) vectors: u16,
    /// `masks=yes|no`: whether vectors can be masked. `no`: as with vfio-pci, which cannot mask
    /// MSI-X vectors, interrupts arrive even while a thread polls.
    pub(crate) masks: bool,
    /// `pending=cleared|kept|none`: what the controller does with an interrupt whose vector is
    /// masked ([`emu::PendingBit`]).
    pub(crate) pending: PendingBit,
    /// `fetch=late|early|mixed`: when the controller reads write data, PRP lists and SGL segments
    /// ([`emu::Fetch`]).
    pub(crate) fetch: Fetch,
    /// `aborts=before|after|deferred|never`: whether and when a command completes that an Abort has
    /// aborted, in relation to the Abort's own completion ([`emu::AbortOrder`]).
    pub(crate) aborts: AbortOrder,
    /// `doorbells=now|late|mapped`. With `late`, each doorbell write reaches the controller some
    /// time later, and writes to different doorbells arrive in any order.
    pub(crate) late_doorbells: bool,
    /// `doorbells=mapped`, for `reap serve` only: the client maps the doorbells, and the server
    /// polls them.
    pub(crate) mapped_doorbells: bool,
    /// `shadow=yes|no`, for `reap serve` only: whether the controller offers shadow doorbells
    /// (Doorbell Buffer Config). Yes by default.
    pub(crate) shadow: Option<bool>,
    /// `sgl=yes|no`: whether the controller supports SGLs (SGLS). No by default.
    pub(crate) sgls: bool,
    /// `trust=yes|no`, for `reap serve` only: whether to map a client's memory even if the client
    /// could take pages of it away, which would end the server (SIGBUS).
    pub(crate) trust: bool,
    /// `share=yes|no`, for `file:` only: whether other processes that set it too may write to the
    /// file.
    pub(crate) share: bool,
    /// `thread=shared|own`: whether the controller runs on the process's device thread or on a
    /// thread of its own.
    pub(crate) own_thread: bool,
    /// `entries=`: maximum number of entries of an I/O queue, 2 to 4096 (CAP.MQES + 1).
    pub(crate) entries: u32,
    /// `alloc=`, for `mem:` only: maximum number of bytes that are allocated. `None`: a quarter of
    /// the machine's memory.
    pub(crate) alloc_limit: Option<u64>,
    /// `properties=now|late`. With `late`, property accesses complete some time later, as over
    /// fabrics.
    pub(crate) late_properties: bool,
    /// `seed=`: seed of the profile's random service times, of late properties and doorbells, and
    /// of early fetches.
    pub(crate) seed: u64,
}

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Sparse memory, per namespace.
    Mem {
        /// Bytes; a multiple of the block size.
        bytes: u64,
    },
    /// A file, which must exist unless `size=` is given.
    File {
        /// Its path.
        path: PathBuf,
        /// `size=`: create it, or extend it sparsely, to this many bytes.
        bytes: Option<u64>,
    },
}

/// Why a device URI cannot be used. Columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device URI `{uri}`, column {column}: {what}")]
pub struct UriError {
    /// The URI as given.
    pub uri: String,
    /// Where the part that is wrong begins.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// The scheme of a device with several paths, with its colon.
pub(crate) const MULTIPATH: &str = "multipath:";

const KEYS: &str = "profile, lba, namespaces, queues, vectors, masks, pending, fetch, aborts, doorbells, shadow, sgl, trust, share, thread, \
    entries, alloc, properties, seed, size";

impl FromStr for DeviceUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<DeviceUri, UriError> {
        let fail = |at: usize, what: String| UriError { uri: uri.to_owned(), column: at + 1, what };
        let Some((scheme, rest)) = uri.split_once(':') else {
            let wanted = "expected `mem:SIZE`, `file:PATH`, `kernel:PATH`, `pcie:BDF`, `vfio-user:SOCKET`, `tcp://HOST` or `multipath:`, such as `mem:1G?profile=optane`";
            // A path alone is a frequent mistake, and could mean `kernel:` or `file:`.
            let path = if uri.contains('/') {
                "; use `kernel:PATH` for the file or block device itself, or `file:PATH` for an emulated controller that stores its data in the file"
            } else {
                ""
            };
            return Err(fail(0, format!("{wanted}{path}")));
        };
        let body_at = scheme.len() + 1;
        let (body, query) = rest.split_once('?').map_or((rest, None), |(b, q)| (b, Some(q)));
        let mut parsed = DeviceUri::new(match scheme {
            "mem" => Backing::Mem { bytes: parse_size(body).map_err(|e| fail(body_at, e))? },
            "file" if body.is_empty() => {
                return Err(fail(body_at, "a path must follow `file:`".into()));
            }
            // `size=` follows with the parameters.
            "file" => Backing::File {
                path: PathBuf::from(decode(body).map_err(|e| fail(body_at, e))?),
                bytes: None,
            },
            other => {
                // A bare PCI address parses as scheme `0000`: suggest what was meant.
                let address = if uri.parse::<hw::pci::Bdf>().is_ok() {
                    format!("; for the drive at that PCI address use `pcie:{uri}`")
                } else {
                    String::new()
                };
                let what = format!(
                    "there is no scheme `{other}:`; there are `mem:`, `file:`, `kernel:`, `pcie:`, `vfio-user:`, `tcp://` and `multipath:`{address}"
                );
                return Err(fail(0, what));
            }
        });
        let query_at = body_at + body.len() + 1;
        each_parameter(query, query_at, "profile=optane", |key, value| parsed.set(key, value))
            .map_err(|(at, what)| fail(at, what))?;
        // Sizes are checked last, because they depend on `lba=`, which may come later.
        parsed.check().map_err(|e| fail(body_at, e))?;
        Ok(parsed)
    }
}

impl DeviceUri {
    /// A controller over `bytes` bytes of sparse memory per namespace, with the default for every
    /// other field.
    pub fn memory(bytes: u64) -> DeviceUri {
        DeviceUri::new(Backing::Mem { bytes })
    }

    /// A controller over a file, with the default for every other field. The file must exist,
    /// unless `bytes` of its [`Backing::File`] is set afterwards.
    pub fn file(path: impl Into<PathBuf>) -> DeviceUri {
        DeviceUri::new(Backing::File { path: path.into(), bytes: None })
    }

    fn new(backing: Backing) -> DeviceUri {
        DeviceUri {
            backing,
            profile: "optane".into(),
            lba_bytes: 512,
            namespaces: 1,
            queues: 64,
            vectors: 65,
            masks: true,
            pending: PendingBit::default(),
            fetch: Fetch::default(),
            aborts: AbortOrder::default(),
            late_doorbells: false,
            mapped_doorbells: false,
            shadow: None,
            sgls: false,
            trust: false,
            share: false,
            own_thread: false,
            entries: 1024,
            alloc_limit: None,
            late_properties: false,
            seed: 1,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "profile" => self.profile = decode(value)?,
            "lba" => {
                self.lba_bytes =
                    if one_of(key, value, &["512", "4096"])? == "512" { 512 } else { 4096 }
            }
            "namespaces" => self.namespaces = within(key, value, 1, 16)? as u32,
            "queues" => self.queues = within(key, value, 1, 64)? as u16,
            "vectors" => self.vectors = within(key, value, 1, 65)? as u16,
            "masks" => self.masks = one_of(key, value, &["yes", "no"])? == "yes",
            "pending" => {
                self.pending =
                    PendingBit::named(one_of(key, value, &PendingBit::NAMES)?).unwrap_or_default();
            }
            "fetch" => {
                self.fetch = Fetch::named(one_of(key, value, &Fetch::NAMES)?).unwrap_or_default()
            }
            "aborts" => {
                self.aborts =
                    AbortOrder::named(one_of(key, value, &AbortOrder::NAMES)?).unwrap_or_default()
            }
            "doorbells" => {
                let when = one_of(key, value, &["now", "late", "mapped"])?;
                (self.late_doorbells, self.mapped_doorbells) = (when == "late", when == "mapped");
            }
            "shadow" => self.shadow = Some(one_of(key, value, &["yes", "no"])? == "yes"),
            "sgl" => self.sgls = one_of(key, value, &["yes", "no"])? == "yes",
            "trust" => self.trust = one_of(key, value, &["yes", "no"])? == "yes",
            "share" => {
                self.share = one_of(key, value, &["yes", "no"])? == "yes";
                // Checked here as well, so that the error points to this parameter.
                self.check_share()?;
            }
            "thread" => self.own_thread = one_of(key, value, &["shared", "own"])? == "own",
            "entries" => self.entries = within(key, value, 2, 4096)? as u32,
            "alloc" => self.alloc_limit = Some(parse_size(value)?),
            "properties" => self.late_properties = one_of(key, value, &["now", "late"])? == "late",
            "seed" => self.seed = within(key, value, 0, u64::MAX)?,
            "size" => match &mut self.backing {
                Backing::File { bytes, .. } => *bytes = Some(parse_size(value)?),
                Backing::Mem { .. } => {
                    return Err("the size of `mem:` comes before the `?`".into());
                }
            },
            _ => return Err(no_parameter(key, KEYS)),
        }
        Ok(())
    }

    /// The parameters of the data and its format in which this URI differs from `other`: the name
    /// of each, its value in `self`, and its value in `other`.
    pub(crate) fn medium_differences(
        &self,
        other: &DeviceUri,
    ) -> Vec<(&'static str, String, String)> {
        let given = |bytes: Option<u64>| bytes.map_or("not given".to_owned(), show_size);
        let medium = |backing: &Backing| match backing {
            Backing::Mem { .. } => "memory (`mem:`)".to_owned(),
            Backing::File { path, .. } => format!("the file {}", path.display()),
        };
        let backing = match (&self.backing, &other.backing) {
            (Backing::Mem { bytes }, Backing::Mem { bytes: there }) => {
                ("size", show_size(*bytes), show_size(*there))
            }
            (Backing::File { path, bytes }, Backing::File { path: same, bytes: there })
                if path == same =>
            {
                ("`size`", given(*bytes), given(*there))
            }
            (here, there) => ("medium", medium(here), medium(there)),
        };
        let lba = ("`lba`", self.lba_bytes.to_string(), other.lba_bytes.to_string());
        let namespaces =
            ("`namespaces`", self.namespaces.to_string(), other.namespaces.to_string());
        let alloc = ("`alloc`", given(self.alloc_limit), given(other.alloc_limit));
        [backing, lba, namespaces, alloc]
            .into_iter()
            .filter(|(_, here, there)| here != there)
            .collect()
    }

    /// A parameter that only `reap serve` uses, if one is given.
    pub(crate) fn server_only_parameter(&self) -> Option<&'static str> {
        let given = [
            (self.mapped_doorbells, "doorbells=mapped"),
            (self.shadow.is_some(), "shadow="),
            (self.trust, "trust=yes"),
        ];
        given.into_iter().find_map(|(given, word)| given.then_some(word))
    }

    fn check_share(&self) -> Result<(), String> {
        match self.backing {
            Backing::Mem { .. } if self.share => {
                Err("`share=yes` applies only to `file:`; no other process can access the memory of `mem:`".into())
            }
            _ => Ok(()),
        }
    }

    /// Checks the fields, which a caller may have set without parsing a URI.
    pub(crate) fn check(&self) -> Result<(), String> {
        let numbers = [
            ("namespaces", self.namespaces, 1, 16),
            ("queues", self.queues.into(), 1, 64),
            ("vectors", self.vectors.into(), 1, 65),
            ("entries", self.entries, 2, 4096),
        ];
        for (key, number, low, high) in numbers {
            within(key, &number.to_string(), low, high)?;
        }
        one_of("lba", &self.lba_bytes.to_string(), &["512", "4096"])?;
        self.check_share()?;
        // Pending bits exist only behind a mask; the combination is a mistake in a test's URI.
        if !self.masks && self.pending != PendingBit::default() {
            return Err(
                "`pending=` needs vectors that can be masked; leave out `masks=no` or `pending=`"
                    .into(),
            );
        }
        let bytes = match self.backing {
            Backing::Mem { bytes } => Some(bytes),
            Backing::File { bytes, .. } => bytes,
        };
        bytes.map_or(Ok(()), |bytes| {
            parse_size(&bytes.to_string()).and_then(|bytes| whole_blocks(bytes, self.lba_bytes))
        })
    }
}

impl fmt::Display for DeviceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backing {
            Backing::Mem { bytes } => write!(f, "mem:{}", show_size(*bytes))?,
            Backing::File { path, .. } => write!(f, "file:{}", encode_path(path))?,
        }
        write!(f, "?profile={}", encode(&self.profile))?;
        // Defaults are left out, so that the text stays short and parses to the same fields.
        let default = DeviceUri::new(self.backing.clone());
        let flag = |value: bool, default: bool, key: &str, [yes, no]: [&str; 2]| {
            (value != default).then(|| format!("{key}={}", if value { yes } else { no }))
        };
        let number = |value: u64, default: u64, key: &str| {
            (value != default).then(|| format!("{key}={value}"))
        };
        let bytes = if let Backing::File { bytes, .. } = self.backing { bytes } else { None };
        let pending = PendingBit::NAMES
            .into_iter()
            .find(|name| PendingBit::named(name) == Some(self.pending));
        let fetch = Fetch::NAMES.into_iter().find(|name| Fetch::named(name) == Some(self.fetch));
        let aborts =
            AbortOrder::NAMES.into_iter().find(|name| AbortOrder::named(name) == Some(self.aborts));
        let (yes_no, late) = (["yes", "no"], ["late", "now"]);
        let parameters = [
            number(self.lba_bytes.into(), default.lba_bytes.into(), "lba"),
            number(self.namespaces.into(), default.namespaces.into(), "namespaces"),
            number(self.queues.into(), default.queues.into(), "queues"),
            number(self.vectors.into(), default.vectors.into(), "vectors"),
            flag(self.masks, default.masks, "masks", yes_no),
            pending
                .filter(|_| self.pending != default.pending)
                .map(|name| format!("pending={name}")),
            fetch.filter(|_| self.fetch != default.fetch).map(|name| format!("fetch={name}")),
            aborts.filter(|_| self.aborts != default.aborts).map(|name| format!("aborts={name}")),
            flag(self.late_doorbells, false, "doorbells", late),
            flag(self.mapped_doorbells, false, "doorbells", ["mapped", "now"]),
            self.shadow.map(|shadow| format!("shadow={}", if shadow { "yes" } else { "no" })),
            flag(self.sgls, default.sgls, "sgl", yes_no),
            flag(self.trust, default.trust, "trust", yes_no),
            flag(self.share, default.share, "share", yes_no),
            flag(self.own_thread, default.own_thread, "thread", ["own", "shared"]),
            number(self.entries.into(), default.entries.into(), "entries"),
            self.alloc_limit.map(|bytes| format!("alloc={}", show_size(bytes))),
            flag(self.late_properties, default.late_properties, "properties", late),
            number(self.seed, default.seed, "seed"),
            bytes.map(|bytes| format!("size={}", show_size(bytes))),
        ];
        parameters.into_iter().flatten().try_for_each(|parameter| write!(f, "&{parameter}"))
    }
}

#[cfg(test)]
mod tests;
