//! `pcie:BDF[?…]`: an NVMe drive on the PCI bus, driven from user space through VFIO.
//!
//! Its rings and buffers are in memory that the IOMMU maps for it, its registers and doorbells in
//! BAR0, and its MSI-X messages signal eventfds. Above that it is a controller like the embedded
//! one: `rings.rs`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hw::pci::Bdf;
use hw::vfio::{self, PciDevice, VfioError};
use hw::{EventFd, PoolOptions, Vectors};

use super::rings::{BusController, BusResources, DmaContext, RingController};
use crate::error::OpenError;
use crate::options::OpenOptions;
use crate::uri::UriError;
use crate::uri::values::{each_parameter, no_parameter, one_of, within};

/// The scheme, with its colon.
pub(crate) const SCHEME: &str = "pcie:";

const KEYS: &str = "vectors, shadow, sgl";

/// The maximum number of vectors of MSI-X (PCI Express Base §7.7.2.2).
pub(super) const MAX_VECTORS: u64 = 2048;

/// A parsed PCIe URI: `pcie:BDF[?vectors=N&shadow=yes|no&sgl=yes|no]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcieUri {
    /// The drive's address, as `lspci -D` prints it.
    pub bdf: Bdf,
    /// `vectors=`: the most interrupt vectors to use, the admin one included; fewer than queues + 1
    /// are shared. `None`: as many as the drive has.
    pub(crate) vectors: Option<u16>,
    /// `shadow=yes|no`: whether to use shadow doorbells (Doorbell Buffer Config) where the drive
    /// offers them. Yes by default.
    pub(crate) shadow: bool,
    /// `sgl=yes|no`: whether transfers that would need a PRP list use SGLs where the drive has
    /// them. Yes by default.
    pub(crate) sgl: bool,
}

impl PcieUri {
    /// The drive at `bdf`, with the default for every other field.
    pub fn new(bdf: Bdf) -> PcieUri {
        PcieUri { bdf, vectors: None, shadow: true, sgl: true }
    }

    /// Checks the fields, which a caller may have set without parsing a URI.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_vectors(self.vectors)
    }
}

/// Checks that a drive can have this number of interrupt vectors.
pub(super) fn check_vectors(vectors: Option<u16>) -> Result<(), String> {
    vectors
        .map_or(Ok(()), |vectors| within("vectors", &vectors.to_string(), 1, MAX_VECTORS).map(drop))
}

impl FromStr for PcieUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<PcieUri, UriError> {
        let fail = |at: usize, what: String| UriError { uri: uri.to_owned(), column: at + 1, what };
        let rest = uri
            .strip_prefix(SCHEME)
            .ok_or_else(|| fail(0, "expected `pcie:BDF`, such as `pcie:0000:01:00.0`".into()))?;
        let (body, query) =
            rest.split_once('?').map_or((rest, None), |(body, query)| (body, Some(query)));
        let bdf = body
            .parse()
            .map_err(|error: hw::pci::BdfError| fail(SCHEME.len(), error.to_string()))?;
        let mut parsed = PcieUri::new(bdf);
        let query_at = SCHEME.len() + body.len() + 1;
        each_parameter(query, query_at, "vectors=2", |key, value| match key {
            "vectors" => within(key, value, 1, MAX_VECTORS)
                .map(|vectors| parsed.vectors = Some(vectors as u16)),
            "shadow" => {
                one_of(key, value, &["yes", "no"]).map(|shadow| parsed.shadow = shadow == "yes")
            }
            "sgl" => one_of(key, value, &["yes", "no"]).map(|said| parsed.sgl = said == "yes"),
            _ => Err(no_parameter(key, KEYS)),
        })
        .map_err(|(at, what)| fail(at, what))?;
        Ok(parsed)
    }
}

impl fmt::Display for PcieUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            self.vectors.map(|vectors| format!("vectors={vectors}")),
            (!self.shadow).then(|| "shadow=no".to_owned()),
            (!self.sgl).then(|| "sgl=no".to_owned()),
        ];
        let said: Vec<_> = said.into_iter().flatten().collect();
        write!(f, "{SCHEME}{}", self.bdf)?;
        if said.is_empty() { Ok(()) } else { write!(f, "?{}", said.join("&")) }
    }
}

/// Opens the drive of `uri`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(uri: &PcieUri, options: &OpenOptions) -> Result<RingController, OpenError> {
    let bdf = uri.bdf;
    let fault = |fault| OpenError::Pcie { bdf, fault };
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| OpenError::Pcie { bdf, fault: VfioError::System { what, source } }
    };
    let device = vfio::open(bdf).map_err(fault)?;
    // Bus mastering first: without it the drive can neither read its rings nor send MSI-X.
    device.enable_bus_master().map_err(system("let the drive access memory"))?;
    let registers = device.registers().map_err(fault)?;
    let queues = options.hardware();
    let (vectors, note) = vectors(&device, uri, queues)?;
    let windows = device.container().windows.clone();
    let pool =
        PoolOptions { windows, pinner: Some(device.container().clone()), ..PoolOptions::default() };
    let dma = DmaContext::of(&pool, options.pool_bytes)?;
    // Only emulated drives offer shadow doorbells (QEMU, for one). Each of their register writes is
    // a VM exit, mapped or not, so shadow doorbells always pay.
    let (controller, shadow, notes) =
        (BusController::Pci(Arc::new(device)), uri.shadow, note.into_iter().collect());
    RingController::on_bus(
        BusResources { controller, registers, vectors, dma, wants_sgls: uri.sgl, notes, shadow },
        options.pool_bytes,
    )
}

/// Vectors for `queues` queues and the admin queue, and a note if there are fewer than wanted.
fn vectors(
    device: &PciDevice,
    uri: &PcieUri,
    queues: usize,
) -> Result<(Vectors, Option<String>), OpenError> {
    let fault = |fault| OpenError::Pcie { bdf: uri.bdf, fault };
    let wanted = queues + 1;
    let most = uri.vectors.map_or(usize::MAX, usize::from).min(device.vectors() as usize);
    if most == 0 {
        return Err(fault(VfioError::Unsupported(
            "the drive has no MSI-X vectors, and Reap uses no other interrupts".into(),
        )));
    }
    let mut count = wanted.min(most);
    loop {
        // The cast is safe: MSI-X has 2048 vectors at most.
        let vectors = hw::vectors(count as u16, false)
            .map_err(|source| OpenError::System { what: "vectors", source })?;
        let signals: Vec<&EventFd> = (0..count as u16).filter_map(|n| vectors.signal(n)).collect();
        let set = device.signal(&signals).map_err(|source| {
            fault(VfioError::System { what: "have its messages sent to eventfds".into(), source })
        })?;
        // VFIO sets all of them or says how many there are: then try again with that many.
        match set {
            0 => {
                return Err(fault(VfioError::Unsupported(
                    "this machine has no interrupt vector left for the drive".into(),
                )));
            }
            _ if set < count => count = set,
            _ => {
                let short = (count < wanted).then(|| {
                    format!("{wanted} interrupt vectors are wanted for {queues} queues and the admin queue, and {count} are available: queues share them")
                });
                return Ok((vectors, short));
            }
        }
    }
}

#[cfg(test)]
mod tests;
