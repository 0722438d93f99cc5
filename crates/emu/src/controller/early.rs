//! Early reads of host memory: write data, PRP lists and lists of ranges are read when a command is
//! fetched rather than when it completes.
//!
//! The host must provide them before it rings the doorbell and keep them until the completion (Base
//! 3.3.3.1). Late reads detect hosts that reuse the memory too early, early reads detect hosts that
//! fill it too late.

use std::collections::HashMap;

use crate::io::{Fetched, IoCommand, Store};
use crate::{Fetch, Port};

/// Data read early, by the commands' `order`.
#[derive(Debug)]
pub(super) struct Early {
    when: Fetch,
    seed: u64,
    fetched: HashMap<u64, Fetched>,
}

impl Early {
    pub(super) fn new(when: Fetch, seed: u64) -> Early {
        Early { when, seed, fetched: HashMap::new() }
    }

    /// Reads what a fetched command needs, if it is to be read early.
    #[inline]
    pub(super) fn begin(
        &mut self,
        order: u64,
        request: &IoCommand,
        store: &Store,
        port: &impl Port,
    ) {
        if self.when != Fetch::Late {
            self.fetch(order, request, store, port);
        }
    }

    #[cold]
    fn fetch(&mut self, order: u64, request: &IoCommand, store: &Store, port: &impl Port) {
        // The top bit of a multiplicative hash: deterministic for a seed, and evenly distributed.
        let hit = (order ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
        if self.when == Fetch::Mixed && hit {
            return;
        }
        if let Some(fetched) = store.fetch(request, port) {
            self.fetched.insert(order, fetched);
        }
    }

    /// Removes the data read for a command that completes.
    #[inline]
    pub(super) fn take(&mut self, order: u64) -> Option<Fetched> {
        if self.when == Fetch::Late { None } else { self.fetched.remove(&order) }
    }

    /// Controller reset: drops all data.
    pub(super) fn clear(&mut self) {
        self.fetched.clear();
    }
}

#[cfg(test)]
mod tests;
