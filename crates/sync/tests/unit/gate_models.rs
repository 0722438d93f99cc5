//! Every interleaving of a device that writes through the gate and a host that shuts it and frees
//! the memory.

use super::*;
use crate::atomic::AtomicU32;
use crate::model::check;
use crate::{Arc, thread};

/// A step that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// The device's fence between entering and reading `shut`.
    FenceInside,
    /// The host's fence between shutting and reading `inside`.
    FenceOutside,
}

fn enter(gate: &Gate, omit: Omit) -> bool {
    if omit != Omit::FenceInside {
        let pass = gate.enter();
        let passed = pass.is_some();
        std::mem::forget(pass);
        return passed;
    }
    gate.inside.store(true, Relaxed);
    !gate.shut.load(Relaxed)
}

/// Whether the device is inside after the gate was shut: read once, so that the model is bounded.
fn shut(gate: &Gate, omit: Omit) -> bool {
    gate.shut.store(true, Relaxed);
    if omit != Omit::FenceOutside {
        fence(SeqCst);
    }
    gate.inside.load(Acquire)
}

/// If the host finds no access in progress, the device has either finished or does not enter.
fn memory_is_the_hosts(omit: Omit) {
    check(move || {
        let (gate, memory) = (Arc::new(Gate::default()), Arc::new(AtomicU32::new(0)));
        let device = thread::spawn({
            let (gate, memory) = (gate.clone(), memory.clone());
            move || {
                if enter(&gate, omit) {
                    memory.store(memory.load(Relaxed) | 1, Relaxed);
                    drop(Pass(&gate));
                    return true;
                }
                drop(Pass(&gate));
                false
            }
        });
        if !shut(&gate, omit) {
            // The memory is the host's again: the device's writes are visible.
            let before = memory.load(Relaxed);
            let wrote = device.join().unwrap();
            assert_eq!(before == 1, wrote, "the device wrote to memory that was the host's");
        } else {
            device.join().unwrap();
        }
    });
}

#[test]
fn shut_gate_excludes_the_device() {
    memory_is_the_hosts(Omit::Nothing);
}

#[test]
#[should_panic(expected = "memory that was the host's")]
fn entering_without_fence_is_caught() {
    memory_is_the_hosts(Omit::FenceInside);
}

#[test]
#[should_panic(expected = "memory that was the host's")]
fn shutting_without_a_fence_is_caught() {
    memory_is_the_hosts(Omit::FenceOutside);
}
