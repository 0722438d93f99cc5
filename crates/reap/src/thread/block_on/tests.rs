use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::Device;

/// Panics when it is dropped, and counts it.
struct Panics(Arc<AtomicU32>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        panic!("the application's own mistake");
    }
}

/// A panic in the drop of one caller's memory does not keep the others' alive.
#[test]
fn panicking_memory_stays_isolated() {
    let (device, dropped) =
        (Device::open("mem:1M?profile=null").unwrap(), Arc::new(AtomicU32::new(0)));
    let memory = (0..3).map(|_| {
        let region = device
            .register((hw::Pages::new(4096).unwrap(), Panics(dropped.clone())))
            .map_err(|(why, _)| why)
            .unwrap();
        region.buffer(0..4096).unwrap()
    });
    drop_buffers(memory.collect());
    assert_eq!(dropped.load(Relaxed), 3);
}
