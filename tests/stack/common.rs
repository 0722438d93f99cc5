//! What several modules of the whole-stack tests do alike.

use std::thread::sleep;
use std::time::Duration;

use reap::{Device, Instant, OpenOptions, PathLink};

/// Opens a device with a pool of 64 MiB.
pub fn open(uri: &str, options: OpenOptions) -> Device {
    Device::open_with(uri, &options.pool_bytes(64 << 20)).unwrap_or_else(|e| panic!("{uri}: {e}"))
}

/// Waits up to a minute until `holds`.
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "{what}: not within a minute");
        sleep(Duration::from_millis(1));
    }
}

/// Waits up to a minute until a path of `device` is in the state `link`.
pub fn wait_for_path(device: &Device, path: usize, link: PathLink) {
    wait_until(&format!("path {path} is {link:?}: {:?}", device.paths()), || {
        device.paths()[path].status.link == link
    });
}
