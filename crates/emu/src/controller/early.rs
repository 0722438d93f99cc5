//! What a controller fetches of the host's memory before a command's time is over: data to write,
//! lists of pointers and of ranges.
//!
//! Both ends are the host's duty: what a command needs is there before the doorbell, and stays
//! until the completion (Base 3.3.3.1). A controller that fetches at the end finds out who takes it
//! away too early, one that fetches at the beginning who brings it too late.

use std::collections::HashMap;

use crate::io::{Fetched, Request, Store};
use crate::{Fetch, Port};

/// What was fetched early, by the commands' order.
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

    /// A command was fetched: the rest may be due, too.
    #[inline]
    pub(super) fn begin(&mut self, order: u64, request: &Request, store: &Store, port: &impl Port) {
        if self.when != Fetch::Late {
            self.fetch(order, request, store, port);
        }
    }

    #[cold]
    fn fetch(&mut self, order: u64, request: &Request, store: &Store, port: &impl Port) {
        // The top bit of a multiplicative hash: as good as a die, and the same for the same seed.
        let thrown = (order ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
        if self.when == Fetch::Mixed && thrown {
            return;
        }
        if let Some(fetched) = store.fetch(request, port) {
            self.fetched.insert(order, fetched);
        }
    }

    /// What was fetched for a command that ends.
    #[inline]
    pub(super) fn take(&mut self, order: u64) -> Option<Fetched> {
        if self.when == Fetch::Late { None } else { self.fetched.remove(&order) }
    }

    /// A reset: no command of the host's is inside any more.
    pub(super) fn clear(&mut self) {
        self.fetched.clear();
    }
}

#[cfg(test)]
mod tests;
