//! Features: values of Set Features and Get Features (Base 5.1.25, 5.1.11).

use std::collections::BTreeMap;

use nvme::Nsid;
use nvme::features::{
    Arbitration, AsyncEventConfig, HostBehavior, InterruptCoalescing, NumberOfQueues,
    VolatileWriteCache, fid, select,
};
use nvme::log::{Supported, scope};

/// Identify Controller WCTEMP in kelvin, the default of the over temperature threshold.
pub(crate) const WCTEMP: u16 = 343;

/// Identify Controller NPSS: one power state (0's based).
pub(crate) const NPSS: u8 = 0;

/// Attributes of a supported feature.
#[derive(Debug)]
pub(crate) struct Feature {
    pub(crate) fid: u8,
    /// FSP: scope, a namespace or the controller.
    scope: u16,
    /// Whether Set Features can save it (SV bit).
    pub(crate) saveable: bool,
    /// The default value of a feature that is one dword.
    default: u32,
}

/// The supported features. All but 06h, 0Fh and 16h are mandatory (Base 3.1.3.6, NVM 2.2). 06h is
/// supported only with a volatile write cache.
static FEATURES: [Feature; 12] = [
    // Bursts of 16 commands: large enough to amortize the doorbell read, small enough not to delay
    // other queues.
    saved(fid::ARBITRATION, Arbitration::new().with_ab(4).into_bits()),
    volatile(fid::POWER_MANAGEMENT),
    volatile(fid::TEMPERATURE_THRESHOLD),
    Feature { scope: scope::NAMESPACE, ..volatile(fid::ERROR_RECOVERY) },
    saved(fid::VOLATILE_WRITE_CACHE, VolatileWriteCache::new().with_wce(true).into_bits()),
    volatile(fid::NUMBER_OF_QUEUES),
    saved(fid::INTERRUPT_COALESCING, 0),
    volatile(fid::VECTOR_CONFIG),
    volatile(fid::WRITE_ATOMICITY),
    saved(fid::ASYNC_EVENT_CONFIG, 0),
    // KATO belongs to the host's connection and is not saved.
    volatile(fid::KEEP_ALIVE_TIMER),
    volatile(fid::HOST_BEHAVIOR),
];

const fn saved(fid: u8, default: u32) -> Feature {
    Feature { fid, scope: scope::CONTROLLER, saveable: true, default }
}

const fn volatile(fid: u8) -> Feature {
    Feature { saveable: false, ..saved(fid, 0) }
}

impl Feature {
    /// The feature with this identifier.
    pub(crate) fn of(fid: u8) -> Option<&'static Feature> {
        FEATURES.iter().find(|feature| feature.fid == fid)
    }

    pub(crate) fn is_of_namespace(&self) -> bool {
        self.scope == scope::NAMESPACE
    }

    /// Its entry in log page 12h, Feature Identifiers Supported and Effects.
    pub(crate) fn supported(&self) -> Supported {
        Supported::new().with_supported(true).with_scope(self.scope)
    }
}

/// Values of all features but 09h, which is kept per vector.
#[derive(Debug)]
pub(crate) struct Features {
    /// Values of one dword, by feature identifier.
    current: [u32; 256],
    saved: [Option<u32>; 256],
    /// 04h: thresholds of the Composite Temperature in kelvin, by THSEL.
    pub(crate) thresholds: [u16; 2],
    /// 05h: values of the namespaces for which it was set.
    pub(crate) error_recovery: BTreeMap<Nsid, u32>,
    offered: NumberOfQueues,
    granted: NumberOfQueues,
    pub(crate) host_behavior: HostBehavior,
}

impl Features {
    /// Over and under temperature threshold after a reset, in kelvin.
    pub(crate) const DEFAULT_THRESHOLDS: [u16; 2] = [WCTEMP, 0];

    /// Default values; `queue_pairs` is the number offered by feature 07h.
    pub(crate) fn new(queue_pairs: u16) -> Features {
        let offered = NumberOfQueues::of(u32::from(queue_pairs), u32::from(queue_pairs));
        let mut features = Features {
            current: [0; 256],
            saved: [None; 256],
            thresholds: Features::DEFAULT_THRESHOLDS,
            error_recovery: BTreeMap::new(),
            offered,
            granted: offered,
            host_behavior: HostBehavior::default(),
        };
        features.reset();
        features
    }

    /// Controller reset: restores saved values, or the defaults.
    pub(crate) fn reset(&mut self) {
        for feature in &FEATURES {
            self.current[usize::from(feature.fid)] = self.stored(feature);
        }
        self.thresholds = Features::DEFAULT_THRESHOLDS;
        self.error_recovery.clear();
        self.granted = self.offered;
        self.host_behavior = HostBehavior::default();
    }

    fn stored(&self, feature: &Feature) -> u32 {
        self.saved[usize::from(feature.fid)].unwrap_or(feature.default)
    }

    /// The value that SEL selects, of a feature that is one dword.
    pub(crate) fn get(&self, feature: &Feature, sel: u8) -> u32 {
        match sel {
            select::CURRENT => self.current(feature.fid),
            select::SAVED => self.stored(feature),
            _ => feature.default,
        }
    }

    /// Sets a value; with `save` it survives resets.
    pub(crate) fn set(&mut self, fid: u8, value: u32, save: bool) {
        self.current[usize::from(fid)] = value;
        if save {
            // Saved values survive resets and simulated power cycles, but not the process.
            self.saved[usize::from(fid)] = Some(value);
        }
    }

    fn current(&self, fid: u8) -> u32 {
        self.current[usize::from(fid)]
    }

    /// Feature 07h: grants the requested number of queues, up to the number offered.
    pub(crate) fn grant(&mut self, asked: NumberOfQueues) -> NumberOfQueues {
        let both = self.offered;
        self.granted = NumberOfQueues::of(
            asked.submission().min(both.submission()),
            asked.completion().min(both.completion()),
        );
        self.granted
    }

    /// Number of queues that the host may create.
    pub(crate) fn granted(&self) -> NumberOfQueues {
        self.granted
    }

    /// Number of queues offered before the host has set feature 07h.
    pub(crate) fn offered(&self) -> NumberOfQueues {
        self.offered
    }

    pub(crate) fn arbitration(&self) -> Arbitration {
        Arbitration::from_bits(self.current(fid::ARBITRATION))
    }

    pub(crate) fn write_cache(&self) -> VolatileWriteCache {
        VolatileWriteCache::from_bits(self.current(fid::VOLATILE_WRITE_CACHE))
    }

    pub(crate) fn coalescing(&self) -> InterruptCoalescing {
        InterruptCoalescing::from_bits(self.current(fid::INTERRUPT_COALESCING))
    }

    pub(crate) fn events(&self) -> AsyncEventConfig {
        AsyncEventConfig::from_bits(self.current(fid::ASYNC_EVENT_CONFIG))
    }

    /// KATO in milliseconds; 0: the Keep Alive Timer is disabled.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.current(fid::KEEP_ALIVE_TIMER)
    }
}
