//! The calibrated constants. Each constant is fitted to one published row by bisection, so that
//! anyone can repeat the calibration.

use units::Nanos;

use super::cases::{self, CASES};
use super::rows::SPECS;
use sim::{Costs, Scenario, SimError};

/// How often the constants of a file are fitted one after the other, since each depends on the
/// others.
const SWEEPS: u32 = 3;

/// A constant of the machine or the device that is fitted to a published row.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its key in the scenario file.
    pub key: &'static str,
    /// The scenario file.
    pub file: &'static str,
    /// The row to which the constant is fitted.
    pub row: &'static str,
    /// Search range: plausible values for such hardware.
    pub range: (u64, u64),
    /// Reads the constant from a scenario.
    pub get: fn(&Scenario) -> u64,
    /// Sets the constant in a scenario.
    pub set: fn(&mut Scenario, u64),
}

/// Result of the calibration of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// File and key of the constant.
    pub knob: (&'static str, &'static str),
    /// The row to which the constant is fitted.
    pub row: &'static str,
    /// The value in the shipped file.
    pub shipped: u64,
    /// The value that fits best.
    pub fitted: u64,
    /// Simulated ÷ published row, with the value `fitted`.
    pub ratio: f64,
}

/// A price of the machine, in nanoseconds.
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

/// A property of the profile of all devices.
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

/// All calibrated constants.
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
    /// The value in the shipped file.
    ///
    /// # Errors
    /// As [`cases::scenario`].
    pub fn shipped(&self) -> Result<u64, sim::file::FileError> {
        Ok((self.get)(&cases::scenario(self.file)?))
    }

    /// Simulated ÷ published row with this value of the constant. `others`: values of the other
    /// constants, by index in [`KNOBS`].
    ///
    /// # Errors
    /// The run fails.
    fn ratio(&self, value: u64, others: &[(usize, u64)]) -> Result<f64, SimError> {
        let spec = SPECS
            .iter()
            .find(|spec| spec.id == self.row)
            .ok_or_else(|| SimError::Unfit(self.row.into()))?;
        let case = CASES
            .iter()
            .find(|case| case.name == spec.case)
            .ok_or_else(|| SimError::Unfit(spec.case.into()))?;
        let mut scenario = case.scenario().map_err(|error| SimError::Unfit(error.to_string()))?;
        for (knob, value) in others.iter().filter_map(|(at, value)| Some((KNOBS.get(*at)?, value)))
        {
            // Constants of other files do not exist in this scenario.
            if knob.file == self.file {
                (knob.set)(&mut scenario, *value);
            }
        }
        (self.set)(&mut scenario, value);
        Ok((spec.figure)(&scenario.run()?) / spec.published)
    }
}

/// The values that fit best for the constants of a file: bisection of one after the other,
/// [`SWEEPS`] times.
///
/// # Errors
/// A run fails.
pub fn calibrate(file: &str) -> Result<Vec<Found>, SimError> {
    let own: Vec<usize> = (0..KNOBS.len()).filter(|&at| KNOBS[at].file == file).collect();
    let mut values: Vec<(usize, u64)> = Vec::new();
    for &at in &own {
        values.push((at, KNOBS[at].shipped().map_err(|error| SimError::Unfit(error.to_string()))?));
    }
    let mut found = Vec::new();
    for sweep in 0..SWEEPS {
        for (n, &at) in own.iter().enumerate() {
            let knob = &KNOBS[at];
            let value = bisect(knob, &values)?;
            values[n].1 = value;
            if sweep + 1 == SWEEPS {
                let shipped = knob.shipped().map_err(|error| SimError::Unfit(error.to_string()))?;
                let ratio = knob.ratio(value, &values)?;
                found.push(Found {
                    knob: (knob.file, knob.key),
                    row: knob.row,
                    shipped,
                    fitted: value,
                    ratio,
                });
            }
        }
    }
    Ok(found)
}

/// The value of `knob` with which the simulated row is closest to the published row. The simulated
/// row must be monotonic in the value. `others`: as in [`Knob::ratio`].
fn bisect(knob: &Knob, others: &[(usize, u64)]) -> Result<u64, SimError> {
    let (mut low, mut high) = knob.range;
    // Whether the simulated row increases with the value.
    let grows = knob.ratio(high, others)? > knob.ratio(low, others)?;
    // 1 % is more precise than the published figures.
    while high - low > (low / 100).max(1) {
        let middle = low + (high - low) / 2;
        if (knob.ratio(middle, others)? < 1.0) == grows {
            low = middle;
        } else {
            high = middle;
        }
    }
    // Two adjacent values remain: return the better one.
    let distance = |value| knob.ratio(value, others).map(|ratio| ratio.ln().abs());
    Ok(if distance(low)? < distance(high)? { low } else { high })
}
