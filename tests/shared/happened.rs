//! What has happened to a device, for tests that look for it among all that is kept.

use reap::{Device, EventKind};

/// All of it so far.
pub fn happened(device: &Device) -> Vec<EventKind> {
    let mut events = device.events();
    std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect()
}

/// Whether something did whose text has these words.
pub fn is_told(device: &Device, words: &str) -> bool {
    happened(device).iter().any(|what| what.to_string().contains(words))
}
