//! What a controller says of its power: whether a volatile cache has kept what it held.

use nvme::Page;
use nvme::log::Smart;

/// Power cycles, and shutdowns without notice, over a controller's life (Base 5.1.12.1.3). A volatile cache has lost what
/// it held if either has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Power {
    cycles: u128,
    unsafe_shutdowns: u128,
}

impl Power {
    /// What the health log page says; `None`: nothing that can be read.
    pub(super) fn from_page(page: &[u8]) -> Option<Power> {
        let smart = page.get(..Smart::LEN).and_then(|bytes| Smart::from_page(bytes).ok())?;
        Some(Power { cycles: smart.power_cycles.get(), unsafe_shutdowns: smart.unsafe_shutdowns.get() })
    }
}
