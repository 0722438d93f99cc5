//! Features: what Set Features changes and Get Features reads back (Base 5.1.25, 5.1.11).

use nvme::Page;
use nvme::features::{
    Arbitration, AsyncEventConfig, Capabilities, HostBehavior, InterruptCoalescing, NumberOfQueues, VolatileWriteCache, fid, select,
};

/// The features that are one dword and apply to the controller, in the order of [`Simple`]'s discriminants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Simple {
    Arbitration,
    WriteCache,
    Coalescing,
    Events,
    KeepAlive,
}

impl Simple {
    const COUNT: usize = 5;

    /// The feature of this identifier, if it is one of these.
    pub(crate) fn of(id: u8) -> Option<Simple> {
        Some(match id {
            fid::ARBITRATION => Simple::Arbitration,
            fid::VOLATILE_WRITE_CACHE => Simple::WriteCache,
            fid::INTERRUPT_COALESCING => Simple::Coalescing,
            fid::ASYNC_EVENT_CONFIG => Simple::Events,
            fid::KEEP_ALIVE_TIMER => Simple::KeepAlive,
            _ => return None,
        })
    }

    /// Whether Set Features can save it over resets. A keep-alive time belongs to one host's session.
    pub(crate) fn is_saveable(self) -> bool {
        self != Simple::KeepAlive
    }

    fn default(self) -> u32 {
        match self {
            // Bursts of 16 commands: a look at a doorbell costs little beside them, other queues wait little for them.
            Simple::Arbitration => Arbitration::new().with_ab(4).into_bits(),
            Simple::WriteCache => VolatileWriteCache::new().with_wce(true).into_bits(),
            Simple::Coalescing | Simple::Events | Simple::KeepAlive => 0,
        }
    }
}

/// The values of all features but 09h, which belongs to the vectors.
#[derive(Debug)]
pub(crate) struct Features {
    current: [u32; Simple::COUNT],
    saved: [Option<u32>; Simple::COUNT],
    offered: NumberOfQueues,
    granted: NumberOfQueues,
    pub(crate) host_behavior: HostBehavior,
}

impl Features {
    /// Everything at its default; `queue_pairs` are offered.
    pub(crate) fn new(queue_pairs: u16) -> Features {
        let offered = NumberOfQueues::of(u32::from(queue_pairs), u32::from(queue_pairs));
        let mut features = Features {
            current: [0; Simple::COUNT],
            saved: [None; Simple::COUNT],
            offered,
            granted: offered,
            host_behavior: HostBehavior::zeroed(),
        };
        features.reset();
        features
    }

    /// A controller reset: saved values, else defaults.
    pub(crate) fn reset(&mut self) {
        use Simple::{Arbitration, Coalescing, Events, KeepAlive, WriteCache};
        for feature in [Arbitration, WriteCache, Coalescing, Events, KeepAlive] {
            self.current[feature as usize] = self.stored(feature);
        }
        self.granted = self.offered;
        self.host_behavior = HostBehavior::zeroed();
    }

    fn stored(&self, feature: Simple) -> u32 {
        self.saved[feature as usize].unwrap_or(feature.default())
    }

    /// The value that SEL selects; `None`: reserved.
    pub(crate) fn get(&self, feature: Simple, sel: u8) -> Option<u32> {
        Some(match sel {
            select::CURRENT => self.current[feature as usize],
            select::DEFAULT => feature.default(),
            select::SAVED => self.stored(feature),
            select::CAPABILITIES => capabilities(feature.is_saveable(), true),
            _ => return None,
        })
    }

    /// Sets a value, and keeps it over resets if `save`.
    pub(crate) fn set(&mut self, feature: Simple, value: u32, save: bool) {
        self.current[feature as usize] = value;
        if save {
            self.saved[feature as usize] = Some(value);
        }
    }

    /// Feature 07h: grants what is asked for as far as it is offered.
    pub(crate) fn grant(&mut self, asked: NumberOfQueues) -> NumberOfQueues {
        let both = self.offered;
        self.granted = NumberOfQueues::of(asked.submission().min(both.submission()), asked.completion().min(both.completion()));
        self.granted
    }

    /// The number of queues that the host may create.
    pub(crate) fn granted(&self) -> NumberOfQueues {
        self.granted
    }

    /// The number of queues before a host asked.
    pub(crate) fn offered(&self) -> NumberOfQueues {
        self.offered
    }

    pub(crate) fn arbitration(&self) -> Arbitration {
        Arbitration::from_bits(self.current[Simple::Arbitration as usize])
    }

    pub(crate) fn write_cache(&self) -> VolatileWriteCache {
        VolatileWriteCache::from_bits(self.current[Simple::WriteCache as usize])
    }

    pub(crate) fn coalescing(&self) -> InterruptCoalescing {
        InterruptCoalescing::from_bits(self.current[Simple::Coalescing as usize])
    }

    pub(crate) fn events(&self) -> AsyncEventConfig {
        AsyncEventConfig::from_bits(self.current[Simple::Events as usize])
    }

    /// KATO in milliseconds; 0: no timer.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.current[Simple::KeepAlive as usize]
    }
}

/// What SEL = 3h answers for a feature of the controller.
pub(crate) fn capabilities(saveable: bool, changeable: bool) -> u32 {
    Capabilities::new().with_saveable(saveable).with_changeable(changeable).into_bits()
}
