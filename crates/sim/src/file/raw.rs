//! The keys of a scenario file, as deserialized from TOML; `build` checks and converts them. Every
//! table rejects unknown keys. Keys of earlier versions are parsed only so that the error can name
//! their replacement.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use completion::Mode;
use driver::paths::Policy;
use emu::Profile;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use toml::{Spanned, Value};
use units::Nanos;

use crate::values::{self, Bytes, Word};
use crate::{
    Affinity, DepthCounter, DieLayout, Engine, HostStack, InterruptPath, Phase, Scheduler, Spin,
};

/// The whole file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) modes: Vec<Spanned<Word<Mode>>>,
    pub(super) seed: Option<u64>,
    pub(super) seeds: Option<Spanned<u32>>,
    /// The measured time, instead of each job's `runtime`.
    #[serde(default, deserialize_with = "values::some_nonzero_time")]
    pub(super) duration: Option<Nanos>,
    /// Instead of each job's `ramp_time`.
    #[serde(default, deserialize_with = "values::some_time")]
    pub(super) ramp: Option<Nanos>,
    /// I/Os of each job thread, instead of `number_ios`.
    pub(super) ios: Option<Spanned<NonZeroU64>>,
    /// Virtual time after which the run fails.
    #[serde(default, deserialize_with = "values::some_time")]
    pub(super) limit: Option<Nanos>,
    /// Replaced by the mode's parameter `delay-exponent`.
    pub(super) latency_price: Option<Spanned<Value>>,
    #[serde(default)]
    pub(super) host: HostStack,
    /// What a spinning thread does while other threads are runnable: one value, or several to
    /// compare.
    pub(super) poll: Option<Spins>,
    pub(super) machine: Option<Spanned<MachineTable>>,
    #[serde(default, rename = "device")]
    pub(super) devices: Vec<Spanned<DeviceTable>>,
    #[serde(default, rename = "job")]
    pub(super) jobs: Vec<Spanned<JobTable>>,
    #[serde(default, rename = "switch")]
    pub(super) switches: Vec<SwitchTable>,
    /// Events of devices that are paths.
    #[serde(default, rename = "event")]
    pub(super) events: Vec<EventTable>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MachineTable {
    pub(super) cpus: Option<usize>,
    pub(super) nodes: Option<usize>,
    /// The name of a price list, the path of one, or a table.
    pub(super) costs: Option<Spanned<NameOr<CostTable>>>,
    pub(super) posted: bool,
    pub(super) hogs: Cpus,
    pub(super) scheduler: Scheduler,
    pub(super) softirq: SoftirqTable,
    pub(super) interrupts: InterruptPath,
}

/// `restarts`, and keys of earlier versions, which are now parameters of the mode `irq-poll`.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SoftirqTable {
    pub(super) restarts: Option<u32>,
    pub(super) weight: Option<Spanned<Value>>,
    pub(super) budget: Option<Spanned<Value>>,
    pub(super) time_limit: Option<Spanned<Value>>,
}

/// A price list to start from, and changes by group, in nanoseconds.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostTable {
    pub(super) base: Option<Spanned<String>>,
    /// Scales the prices in CPU time, in percent: 200 is a machine with cores of half the speed.
    pub(super) percent: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) interrupt: Prices,
    #[serde(default)]
    pub(super) thread: Prices,
    #[serde(default)]
    pub(super) memory: Prices,
    #[serde(default)]
    pub(super) library: Prices,
    #[serde(default)]
    pub(super) block: Prices,
    #[serde(default)]
    pub(super) libaio: Prices,
    #[serde(default)]
    pub(super) io_uring: Prices,
    #[serde(default)]
    pub(super) wake_up: Prices,
}

pub(super) type Prices = BTreeMap<Spanned<String>, Spanned<u64>>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceTable {
    pub(super) name: Option<String>,
    /// Number of such devices, named `name0`, `name1`, …
    pub(super) count: Option<usize>,
    pub(super) profile: Spanned<NameOr<Profile>>,
    pub(super) bytes: Option<Bytes>,
    #[serde(default = "one")]
    pub(super) queues: u16,
    pub(super) tags: Option<u32>,
    /// Number of I/O vectors. If there are fewer vectors than queues, several queues share a
    /// vector.
    pub(super) vectors: Option<u16>,
    #[serde(default)]
    pub(super) affinity: Affinity,
    /// See [`crate::DeviceSpec::in_process`].
    #[serde(default)]
    pub(super) in_process: bool,
    /// Vectors can be masked; true by default.
    pub(super) masks: Option<bool>,
    /// The dies of the drive.
    #[serde(default)]
    pub(super) inside: DieLayout,
}

fn one() -> u16 {
    1
}

/// A job: one of `fio`, `file` and `options`, and settings for which fio has no option.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobTable {
    /// Text of a fio job file.
    pub(super) fio: Option<Spanned<String>>,
    /// Path of a fio job file.
    pub(super) file: Option<Spanned<String>>,
    /// fio options as keys.
    pub(super) options: Option<Spanned<Options>>,
    /// Instead of `cpus_allowed`: one CPU per thread, reused round-robin.
    pub(super) cpus: Option<Spanned<Cpus>>,
    /// Instead of `filename`.
    pub(super) devices: Option<Vec<Spanned<String>>>,
    pub(super) engine: Option<Engine>,
    #[serde(default, deserialize_with = "values::time")]
    pub(super) think: Nanos,
    #[serde(default, deserialize_with = "values::time")]
    pub(super) work: Nanos,
    #[serde(default, rename = "phase")]
    pub(super) phases: Vec<Phase>,
    /// Several paths, and how one is chosen.
    pub(super) paths: Option<MultipathTable>,
    /// Software queues per thread and device.
    #[serde(default = "one")]
    pub(super) queues: u16,
}

/// fio's options, as keys.
pub(super) type Options = BTreeMap<Spanned<String>, Spanned<OptionValue>>;

/// Several paths to a namespace. Without `count` each of the job's devices is one; with `count`
/// only the choice of a path is simulated.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MultipathTable {
    pub(super) count: Option<u8>,
    /// With `count`: which counter of commands in flight the policy `queue-depth` reads.
    pub(super) counter: Option<DepthCounter>,
    pub(super) queues: Option<u16>,
    pub(super) policy: Word<Policy>,
    pub(super) no_path_limit: Option<usize>,
    #[serde(default, deserialize_with = "values::some_time")]
    pub(super) no_path_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "values::some_time")]
    pub(super) held_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "values::some_time")]
    pub(super) keep_alive: Option<Nanos>,
    #[serde(default)]
    pub(super) unsafe_fast_failover: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchTable {
    #[serde(deserialize_with = "values::time")]
    pub(super) at: Nanos,
    pub(super) mode: Word<Mode>,
}

/// An event of a device, in the syntax of a fault script.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventTable {
    #[serde(deserialize_with = "values::time")]
    pub(super) at: Nanos,
    pub(super) device: Spanned<String>,
    pub(super) change: Spanned<String>,
}

/// A name, or a table.
pub(super) enum NameOr<T> {
    Name(String),
    Table(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NameOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NameOr<T>, D::Error> {
        /// A table is deserialized directly: by way of a [`Value`] its keys would lose their
        /// positions in the file.
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = NameOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a table")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<NameOr<T>, E> {
                Ok(NameOr::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NameOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(NameOr::Table)
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// CPUs in the order given: `"0-3,8"`, one number, or a list of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpus(pub(super) Vec<usize>);

/// Maximum length of a list of CPUs. (A machine has at most [`crate::Machine::MAX_CPUS`].)
const MAX_LISTED: usize = 4096;

impl Cpus {
    fn of(value: &Value) -> Result<Cpus, String> {
        let other = |value: &Value| {
            format!("`{value}` is not a list of CPUs, such as \"0-3,8\" or [0, 1, 2, 3, 8]")
        };
        let one = |value: &Value| {
            value
                .as_integer()
                .and_then(|n| u32::try_from(n).ok())
                .map(|n| n as usize)
                .ok_or_else(|| other(value))
        };
        let text = match value {
            Value::String(text) => text,
            Value::Array(list) => return list.iter().map(one).collect::<Result<_, _>>().map(Cpus),
            value => return one(value).map(|n| Cpus(vec![n])),
        };
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim) {
            let number = |text: &str| {
                text.trim()
                    .parse::<u32>()
                    .map_err(|_| format!("`{part}` is not a list of CPUs, such as \"0-3,8\""))
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)? as usize, number(last)? as usize),
                None => (number(part)? as usize, number(part)? as usize),
            };
            if last < first {
                return Err(format!("`{part}`: the range ends before it begins"));
            }
            if cpus.len() + (last - first) >= MAX_LISTED {
                return Err(format!("`{text}` lists more than {MAX_LISTED} CPUs"));
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cpus, D::Error> {
        Cpus::of(&Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// `managed`, or the CPUs of the vectors in order.
impl<'de> Deserialize<'de> for Affinity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Affinity, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if value.as_str() == Some("managed") {
            return Ok(Affinity::Managed);
        }
        let cpus = Cpus::of(&value)
            .map_err(|error| de::Error::custom(format!("{error}; or write \"managed\"")))?;
        Ok(Affinity::Cpus(cpus.0))
    }
}

/// One kind of spinning, or several.
pub(super) struct Spins(pub(super) Vec<Spin>);

impl<'de> Deserialize<'de> for Spins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spins, D::Error> {
        let values = match Value::deserialize(deserializer)? {
            Value::Array(list) => list,
            one => vec![one],
        };
        let mut spins = Vec::new();
        for value in &values {
            let name = value.as_str().ok_or_else(|| {
                de::Error::custom("the value of `poll` is a string, such as \"spins\"")
            })?;
            let spin: Spin = name.parse().map_err(de::Error::custom)?;
            if spins.contains(&spin) {
                return Err(de::Error::custom(format_args!("`poll` names {spin} twice")));
            }
            spins.push(spin);
        }
        if spins.is_empty() {
            return Err(de::Error::custom("`poll` is an empty list: leave it out for \"spins\""));
        }
        Ok(Spins(spins))
    }
}

/// The value of one of fio's options.
pub(super) struct OptionValue(pub(super) String);

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OptionValue, D::Error> {
        match Value::deserialize(deserializer)? {
            // A second line would be parsed as another option.
            Value::String(text) if text.contains('\n') => {
                Err(de::Error::custom("the value of an option is one line"))
            }
            Value::String(text) => Ok(OptionValue(text)),
            Value::Integer(n) => Ok(OptionValue(n.to_string())),
            Value::Float(n) => Ok(OptionValue(n.to_string())),
            Value::Boolean(on) => Ok(OptionValue(u8::from(on).to_string())),
            _ => Err(de::Error::custom(
                "the value of an option is a string, a number, or true or false",
            )),
        }
    }
}
