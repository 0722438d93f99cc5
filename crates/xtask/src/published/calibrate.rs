//! The constants that were chosen, and how: each by one published row, by bisection, so that a reader can redo it.

use units::Nanos;

use super::cases::{self, CASES};
use super::rows::SPECS;
use sim::{Costs, Scenario, SimError};

/// Times that each constant is looked for: the others have moved since.
const SWEEPS: u32 = 3;

/// A constant of the machine's or the device's that a row was used for.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// As its scenario's file has it.
    pub key: &'static str,
    /// That file.
    pub file: &'static str,
    /// The row that it is chosen by.
    pub row: &'static str,
    /// Between which values it is looked for: what hardware of the kind does.
    pub range: (u64, u64),
    /// What a scenario of that file has.
    pub get: fn(&Scenario) -> u64,
    /// Sets it there.
    pub set: fn(&mut Scenario, u64),
}

/// What was found for a knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its file and key.
    pub knob: (&'static str, &'static str),
    /// The row.
    pub row: &'static str,
    /// What the file says.
    pub shipped: u64,
    /// What fits the row best.
    pub found: u64,
    /// The row with it, simulated ÷ published.
    pub ratio: f64,
}

/// A price of the machine's.
macro_rules! price {
    ($file:literal, $group:ident.$name:ident, $row:literal, $range:expr) => {
        Knob {
            key: concat!("machine.costs.", stringify!($group), ".", stringify!($name)),
            file: $file,
            row: $row,
            range: $range,
            get: |s| s.machine.costs.$group.$name.0,
            set: |s, value| s.machine.costs.$group.$name = Nanos(value),
        }
    };
}

/// A property of the devices', which are alike.
macro_rules! property {
    ($file:literal, $key:literal, $row:literal, $range:expr, $profile:ident => $slot:expr, $kind:ident) => {
        Knob {
            key: concat!("device.profile.", $key),
            file: $file,
            row: $row,
            range: $range,
            get: |s| {
                s.devices.first().map_or(0, |device| {
                    let $profile = &device.config.profile;
                    u64::from($slot)
                })
            },
            set: |s, value| {
                s.devices.iter_mut().for_each(|device| {
                    let $profile = &mut device.config.profile;
                    $slot = value as $kind;
                })
            },
        }
    };
}

/// Every constant that a row was used for.
pub const KNOBS: &[Knob] = &[
    property!("post-000.toml", "hidden_coalescing.announced_per_second", "000.irq.iops", (50_000, 400_000), p => p.hidden.announced_per_s, u64),
    property!("post-000.toml", "hidden_coalescing.entries", "000.irq.messages_at_110k", (1, 64), p => p.hidden.entries, u32),
    price!("post-001.toml", block.complete, "001.off.512.iops", (5_000, 60_000)),
    property!("post-001.toml", "hidden_coalescing.time_ns", "001.off.512.int", (500, 50_000), p => p.hidden.time.0, u64),
    property!("post-003-uring.toml", "iops", "003.u4.polled.iops", (1_000_000, 10_000_000), p => p.iops, u64),
    Knob {
        key: "machine.costs.percent",
        file: "post-003-uring.toml",
        row: "003.u4.irq.iops",
        range: (30, 200),
        get: |s| s.machine.costs.thread.switch.0 * 100 / Costs::BARE_METAL.thread.switch.0,
        set: |s, value| s.machine.costs = Costs::BARE_METAL.at_percent(value as u32),
    },
    property!("post-003-uring.toml", "hidden_coalescing.time_ns", "003.u4.irq.int", (500, 2_000), p => p.hidden.time.0, u64),
    Knob {
        key: "machine.interrupts.notify",
        file: "post-003-libaio.toml",
        row: "003.l4.irq.iops",
        range: (50, 400),
        get: |s| s.machine.interrupts.notify.0,
        set: |s, value| s.machine.interrupts.notify = Nanos(value),
    },
    price!("post-004.toml", memory.line_memory, "004.sum.path", (60, 200)),
];

impl Knob {
    /// What the shipped file says.
    ///
    /// # Errors
    /// As [`cases::scenario`].
    pub fn shipped(&self) -> Result<u64, sim::file::FileError> {
        Ok((self.get)(&cases::scenario(self.file)?))
    }

    /// The row with this value, and the other constants as they are in `set`.
    fn row(&self, value: u64, set: &[(usize, u64)]) -> Result<f64, SimError> {
        let spec = SPECS.iter().find(|spec| spec.id == self.row).ok_or_else(|| SimError::Unfit(self.row.into()))?;
        let case = CASES.iter().find(|case| case.name == spec.case).ok_or_else(|| SimError::Unfit(spec.case.into()))?;
        let mut scenario = case.scenario().map_err(|error| SimError::Unfit(error.to_string()))?;
        for (knob, value) in set.iter().filter_map(|(at, value)| Some((KNOBS.get(*at)?, value))) {
            if knob.file == self.file {
                (knob.set)(&mut scenario, *value);
            }
        }
        (self.set)(&mut scenario, value);
        Ok((spec.figure)(&scenario.run()?) / spec.published)
    }
}

/// The best values for the knobs of a file: each in turn by bisection, the others being what was found so far, `SWEEPS`
/// times over. Whether a row grows or shrinks with its constant is seen at the ends of the range.
///
/// # Errors
/// A run that fails.
pub fn calibrate(file: &str) -> Result<Vec<Found>, SimError> {
    let own: Vec<usize> = (0..KNOBS.len()).filter(|&at| KNOBS[at].file == file).collect();
    let mut set: Vec<(usize, u64)> = Vec::new();
    for &at in &own {
        set.push((at, KNOBS[at].shipped().map_err(|error| SimError::Unfit(error.to_string()))?));
    }
    let mut found = Vec::new();
    for sweep in 0..SWEEPS {
        for (n, &at) in own.iter().enumerate() {
            let knob = &KNOBS[at];
            let value = bisect(knob, &set)?;
            set[n].1 = value;
            if sweep + 1 == SWEEPS {
                let shipped = knob.shipped().map_err(|error| SimError::Unfit(error.to_string()))?;
                let ratio = knob.row(value, &set)?;
                found.push(Found { knob: (knob.file, knob.key), row: knob.row, shipped, found: value, ratio });
            }
        }
    }
    Ok(found)
}

fn bisect(knob: &Knob, set: &[(usize, u64)]) -> Result<u64, SimError> {
    let (mut low, mut high) = knob.range;
    let grows = knob.row(high, set)? > knob.row(low, set)?;
    // Finer than a hundredth is finer than the posts' own figures.
    while high - low > (low / 100).max(1) {
        let middle = low + (high - low) / 2;
        if (knob.row(middle, set)? < 1.0) == grows {
            low = middle;
        } else {
            high = middle;
        }
    }
    // The neighbour that fits better.
    let off = |value| knob.row(value, set).map(|ratio| ratio.ln().abs());
    Ok(if off(low)? < off(high)? { low } else { high })
}
