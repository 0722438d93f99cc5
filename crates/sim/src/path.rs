//! What the interrupts of a machine share on their way to the CPUs: the remapping unit of each node, the links between
//! nodes, and a hypervisor's injection.
//!
//! Each is a server with a queue before it. A message waits its turn; and since a device's writes are ordered, what the
//! device writes behind its message waits with it, beyond what the unit buffers. So the rate of interrupts of a whole node
//! limits the data of each of its drives, and what `posted` and coalescing spare they spare for all of them.

use std::collections::VecDeque;

use units::Nanos;

use crate::SimError;

/// The way of interrupts, as far as devices share it. All zero: they share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterruptPath {
    /// The remapping unit of a device's node: for each message, whose entry is in the unit's cache.
    #[serde(deserialize_with = "crate::values::time")]
    pub remap: Nanos,
    /// On top of it, where the entry is not: it comes from memory.
    #[serde(deserialize_with = "crate::values::time")]
    pub miss: Nanos,
    /// Entries that the cache of a node's unit holds, the least recently used making room. 0: as many as there are vectors.
    pub cache: u32,
    /// On top of that, telling a CPU: the message crosses the node to the CPU's interrupt controller.
    #[serde(deserialize_with = "crate::values::time")]
    pub notify: Nanos,
    /// Instead, where vectors are posted: setting a bit of a descriptor. If no notification is outstanding, one follows, for `notify`.
    #[serde(deserialize_with = "crate::values::time")]
    pub post: Nanos,
    /// Messages that the unit holds before the writes of the device behind the last of them wait. 0: they wait until the
    /// message has been delivered.
    pub buffer: u32,
    /// Delay of an interrupt of a CPU on another node than the device's.
    #[serde(deserialize_with = "crate::values::time")]
    pub cross: Nanos,
    /// How long such an interrupt occupies the link from the one node to the other.
    #[serde(deserialize_with = "crate::values::time")]
    pub cross_link: Nanos,
    /// What a hypervisor takes to inject an interrupt. Delay, and the time of one of the `injectors`; what the guest's CPU
    /// pays is [`crate::InterruptCosts::entry`].
    #[serde(deserialize_with = "crate::values::time")]
    pub inject: Nanos,
    /// Interrupts that it injects at the same time, of the whole machine. 0: any number.
    pub injectors: u32,
}

impl InterruptPath {
    /// The most entries of a cache: more than any machine that is simulated has vectors on a node.
    pub const MOST_CACHED: u32 = 65_536;
    /// The most interrupts that a hypervisor injects at the same time.
    pub const MOST_INJECTORS: u32 = 4_096;

    /// Whether anything is shared.
    pub fn is_shared(&self) -> bool {
        *self != InterruptPath::default()
    }

    /// Whether it can be.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        if self.miss > Nanos::ZERO && self.cache == 0 {
            return Err(SimError::Unfit(
                "machine.interrupts.miss without machine.interrupts.cache: name the entries that the cache holds; without a bound none \
                 is ever missing"
                    .into(),
            ));
        }
        if self.cache > InterruptPath::MOST_CACHED || self.injectors > InterruptPath::MOST_INJECTORS {
            return Err(SimError::Unfit(format!(
                "machine.interrupts: a cache of {} entries and {} injectors: there are at most {} and {}",
                self.cache,
                self.injectors,
                InterruptPath::MOST_CACHED,
                InterruptPath::MOST_INJECTORS
            )));
        }
        Ok(())
    }
}

/// A message that a device sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Which vector of the whole machine: it has an entry of its own.
    pub(crate) entry: u32,
    /// The device's node, and the CPU's.
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// It sets a bit in a descriptor, and tells nobody.
    pub(crate) posted: bool,
}

/// When a message is where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// What the device writes behind it goes on.
    pub(crate) accepted: Nanos,
    /// It has come to the CPU, or to the descriptor.
    pub(crate) arrives: Nanos,
}

/// The shared way at work.
#[derive(Debug)]
pub(crate) struct Way {
    path: InterruptPath,
    units: Vec<Unit>,
    /// By node from which and to which, until when the link is taken.
    links: Vec<Nanos>,
    /// Of each injector, until when it is at work.
    injectors: Vec<Nanos>,
    pub(crate) counts: WayCounts,
}

/// What messages met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayCounts {
    /// Messages that went it.
    pub messages: u64,
    /// Those of them whose entry the unit did not have.
    pub misses: u64,
    /// How long they waited for their turn, together.
    pub waited: Nanos,
    /// How long devices' writes waited behind them, together.
    pub held: Nanos,
}

impl WayCounts {
    /// What messages have met since.
    pub(crate) fn since(&self, before: &WayCounts) -> WayCounts {
        WayCounts {
            messages: self.messages - before.messages,
            misses: self.misses - before.misses,
            waited: self.waited - before.waited,
            held: self.held - before.held,
        }
    }
}

/// The remapping unit of a node.
#[derive(Debug, Default)]
struct Unit {
    /// When each message that it holds will have been served, oldest first.
    ends: VecDeque<Nanos>,
    /// Entries in its cache, the last one used last.
    cache: Vec<u32>,
}

impl Way {
    /// The way of a machine of this many nodes. `None`: nothing of it is shared.
    pub(crate) fn new(path: InterruptPath, nodes: usize) -> Option<Way> {
        path.is_shared().then(|| Way {
            path,
            units: (0..nodes).map(|_| Unit::default()).collect(),
            links: vec![Nanos::ZERO; nodes * nodes],
            injectors: vec![Nanos::ZERO; path.injectors as usize],
            counts: WayCounts::default(),
        })
    }

    /// A device sends a message.
    pub(crate) fn send(&mut self, now: Nanos, message: Message) -> Sent {
        let path = self.path;
        let Some(unit) = self.units.get_mut(message.from) else { return Sent { accepted: now, arrives: now } };
        let missed = unit.misses(message.entry, path.cache as usize);
        let takes = path.remap + if missed { path.miss } else { Nanos::ZERO } + if message.posted { path.post } else { path.notify };
        self.counts.messages += 1;
        self.counts.misses += u64::from(missed);
        let sent = self.serve(now, message.from, takes);
        if message.posted { sent } else { Sent { arrives: self.carry(sent.arrives, message.from, message.to), ..sent } }
    }

    /// The unit that has set a bit tells the CPU.
    pub(crate) fn notify(&mut self, now: Nanos, from: usize, to: usize) -> Sent {
        let sent = self.serve(now, from, self.path.notify);
        Sent { arrives: self.carry(sent.arrives, from, to), ..sent }
    }

    /// A node's unit is busy for so long, when its turn comes.
    fn serve(&mut self, now: Nanos, node: usize, takes: Nanos) -> Sent {
        let Some(unit) = self.units.get_mut(node) else { return Sent { accepted: now, arrives: now } };
        let (begins, served, accepted) = unit.serve(now, takes, self.path.buffer as usize);
        self.counts.waited += begins - now;
        self.counts.held += accepted - now;
        Sent { accepted, arrives: served }
    }

    /// From a node's unit to a CPU: over the link to its node, and past the hypervisor. When it is there.
    fn carry(&mut self, at: Nanos, from: usize, to: usize) -> Nanos {
        let Way { path, units, links, injectors, counts } = self;
        let mut arrives = at;
        if from != to {
            arrives = occupy(links.get_mut(from * units.len() + to), arrives, path.cross_link) + path.cross;
        }
        if path.inject == Nanos::ZERO {
            return arrives;
        }
        match injectors.iter_mut().min() {
            Some(first) => {
                counts.waited += *first - arrives;
                occupy(Some(first), arrives, path.inject)
            }
            None => arrives + path.inject,
        }
    }
}

/// A server that takes one at a time: when one that comes `at` has been served.
fn occupy(free_at: Option<&mut Nanos>, at: Nanos, takes: Nanos) -> Nanos {
    let Some(free_at) = free_at else { return at };
    *free_at = at.max(*free_at) + takes;
    *free_at
}

impl Unit {
    /// Whether this entry has to come from memory; it is in the cache from now on.
    fn misses(&mut self, entry: u32, room: usize) -> bool {
        if room == 0 {
            return false;
        }
        let known = self.cache.iter().rposition(|&cached| cached == entry);
        match known {
            Some(at) => drop(self.cache.remove(at)),
            None if self.cache.len() >= room => drop(self.cache.remove(0)),
            None => {}
        }
        self.cache.push(entry);
        known.is_none()
    }

    /// One more message: when its turn comes, when it has been served, and when the device behind it may write on.
    fn serve(&mut self, now: Nanos, takes: Nanos, buffer: usize) -> (Nanos, Nanos, Nanos) {
        while self.ends.front().is_some_and(|&end| end <= now) {
            self.ends.pop_front();
        }
        let begins = self.ends.back().map_or(now, |&last| now.max(last));
        let served = begins + takes;
        self.ends.push_back(served);
        // This many may be unserved when the device goes on.
        let first = (self.ends.len() - 1).checked_sub(buffer);
        let accepted = first.and_then(|at| self.ends.get(at)).map_or(now, |&end| end.max(now));
        (begins, served, accepted)
    }
}

#[cfg(test)]
mod tests;
