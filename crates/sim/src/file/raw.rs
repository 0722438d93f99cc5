//! The keys of a scenario file, as they stand there. Every table refuses keys that it does not know.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};

use completion::{LatencyPrice, Mode};
use driver::paths::Policy;
use emu::{PendingBit, Profile};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use toml::Spanned;

use super::words::{Bytes, Cpus, Lasting, Time, Word};
use crate::costs::costs_of;
use crate::{Costs, DepthCounter, Engine, Host};

/// The whole file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) modes: Vec<Spanned<Word<Mode>>>,
    pub(super) seed: Option<u64>,
    pub(super) seeds: Option<Spanned<u32>>,
    /// How long is measured; in place of each job's `runtime`.
    pub(super) duration: Option<Word<Lasting>>,
    /// In place of each job's `ramp_time`.
    pub(super) ramp: Option<Time>,
    /// I/Os of each job thread, in place of `number_ios`.
    pub(super) ios: Option<Spanned<NonZeroU64>>,
    pub(super) limit: Option<Time>,
    /// As `--latency-price` has it.
    pub(super) latency_price: Option<Word<LatencyPrice>>,
    pub(super) host: Option<Word<HostName>>,
    /// What spinning means where others want the CPU: one way, or several to compare.
    pub(super) poll: Option<super::shared::Spins>,
    #[serde(default)]
    pub(super) machine: Machine,
    #[serde(default)]
    pub(super) group: Group,
    #[serde(default, rename = "device")]
    pub(super) devices: Vec<Spanned<Device>>,
    #[serde(default, rename = "link")]
    pub(super) links: Vec<Spanned<super::shared::Link>>,
    #[serde(default, rename = "job")]
    pub(super) jobs: Vec<Spanned<Job>>,
    #[serde(default, rename = "switch")]
    pub(super) switches: Vec<Switch>,
    /// What happens to devices that are paths.
    #[serde(default, rename = "event")]
    pub(super) events: Vec<Event>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) cpus: Option<Spanned<usize>>,
    pub(super) nodes: Option<Spanned<usize>>,
    pub(super) costs: Option<Spanned<CostList>>,
    #[serde(default)]
    pub(super) posted: bool,
    pub(super) hogs: Option<Spanned<Cpus>>,
    #[serde(default)]
    pub(super) scheduler: Scheduler,
    #[serde(default)]
    pub(super) softirq: Softirq,
    pub(super) interrupts: Option<Spanned<super::shared::InterruptPath>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scheduler {
    pub(super) slice: Option<Spanned<Word<Lasting>>>,
    pub(super) wakeup_granularity: Option<Time>,
    pub(super) tick: Option<Time>,
    pub(super) rt_runtime: Option<Spanned<Word<Lasting>>>,
    pub(super) rt_period: Option<Spanned<Word<Lasting>>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Softirq {
    pub(super) weight: Option<NonZeroU32>,
    pub(super) budget: Option<NonZeroU32>,
    pub(super) time_limit: Option<Time>,
    pub(super) restarts: Option<u32>,
    pub(super) beside_ksoftirqd: Option<bool>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) weight: Option<NonZeroU32>,
    pub(super) budget: Option<NonZeroU32>,
    pub(super) time_limit: Option<Time>,
}

/// The name of a price list, the file of one, or a table: the list that it starts from, and what differs.
#[derive(Default)]
pub(super) struct CostList {
    /// Where it stands, if in a file of its own.
    pub(super) file: Option<String>,
    pub(super) base: Option<Costs>,
    /// The speed of its cores: what they execute, in percent of the list's prices.
    pub(super) percent: Option<Spanned<u32>>,
    pub(super) groups: Vec<(&'static str, Prices)>,
}

/// Prices of a group, in nanoseconds.
pub(super) type Prices = BTreeMap<Spanned<String>, Spanned<u64>>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostTable {
    base: Option<Word<CostName>>,
    percent: Option<Spanned<u32>>,
    interrupt: Option<Prices>,
    thread: Option<Prices>,
    memory: Option<Prices>,
    library: Option<Prices>,
    block: Option<Prices>,
    libaio: Option<Prices>,
    io_uring: Option<Prices>,
    kernel: Option<Prices>,
}

struct CostName(Costs);

impl std::str::FromStr for CostName {
    type Err = String;

    fn from_str(name: &str) -> Result<CostName, String> {
        costs_of(name).map(CostName).ok_or_else(|| unknown("price list", name, &["bare-metal", "vm"]))
    }
}

/// "there is no X called Y", with the nearest of the names and all of them.
fn unknown(what: &str, given: &str, names: &[&str]) -> String {
    let near = units::nearest(given, names.iter().copied()).map_or(String::new(), |near| format!("did you mean '{near}'? "));
    format!("there is no {what} `{given}` ({near}known: {})", names.join(", "))
}

impl<'de> Deserialize<'de> for CostList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CostList, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = CostList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a price list or of a .toml file that holds one, or a table")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<CostList, E> {
                if name.ends_with(".toml") {
                    return Ok(CostList { file: Some(name.to_owned()), ..CostList::default() });
                }
                let CostName(costs) = name.parse().map_err(E::custom)?;
                Ok(CostList { base: Some(costs), ..CostList::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CostList, A::Error> {
                CostTable::deserialize(MapAccessDeserializer::new(map)).map(CostList::from)
            }
        }
        deserializer.deserialize_any(List)
    }
}

impl From<CostTable> for CostList {
    fn from(table: CostTable) -> CostList {
        let groups = [
            ("interrupt", table.interrupt),
            ("thread", table.thread),
            ("memory", table.memory),
            ("library", table.library),
            ("block", table.block),
            ("libaio", table.libaio),
            ("io_uring", table.io_uring),
            ("kernel", table.kernel),
        ];
        let groups = groups.into_iter().filter_map(|(name, prices)| Some((name, prices?))).collect();
        CostList { file: None, base: table.base.map(|Word(CostName(costs))| costs), percent: table.percent, groups }
    }
}

/// `user` or `kernel`.
pub(super) struct HostName(pub(super) Host);

impl std::str::FromStr for HostName {
    type Err = String;

    fn from_str(name: &str) -> Result<HostName, String> {
        match name {
            "user" => Ok(HostName(Host::User)),
            "kernel" => Ok(HostName(Host::Kernel)),
            _ => Err(unknown("host", name, &["user", "kernel"])),
        }
    }
}

/// `libaio`, `io_uring` or `reap`.
pub(super) struct EngineName(pub(super) Engine);

impl std::str::FromStr for EngineName {
    type Err = String;

    fn from_str(name: &str) -> Result<EngineName, String> {
        match name {
            "libaio" => Ok(EngineName(Engine::Libaio)),
            "io_uring" => Ok(EngineName(Engine::IoUring)),
            "reap" => Ok(EngineName(Engine::Reap)),
            _ => Err(unknown("interface", name, &["libaio", "io_uring", "reap"])),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Device {
    pub(super) name: Option<String>,
    /// So many of the kind: `name0`, `name1`, …
    pub(super) count: Option<Spanned<usize>>,
    pub(super) profile: Timing,
    pub(super) bytes: Option<Spanned<Bytes>>,
    pub(super) queues: Option<Spanned<u16>>,
    pub(super) tags: Option<Spanned<u32>>,
    /// I/O vectors; fewer than queues are shared by them.
    pub(super) vectors: Option<Spanned<u16>>,
    pub(super) affinity: Option<Spanned<Where>>,
    /// The controller is a thread of the machine's.
    pub(super) in_process: Option<Spanned<bool>>,
    /// Vectors can be masked.
    pub(super) masks: Option<Spanned<bool>>,
    pub(super) pending: Option<Spanned<Word<Pends>>>,
    pub(super) node: Option<Spanned<usize>>,
    pub(super) inside: Option<Spanned<super::shared::Inside>>,
    pub(super) link: Option<Spanned<String>>,
}

/// What becomes of a message whose vector is masked.
#[derive(Clone, Copy)]
pub(super) struct Pends(pub(super) PendingBit);

impl std::str::FromStr for Pends {
    type Err = String;

    fn from_str(name: &str) -> Result<Pends, String> {
        PendingBit::named(name).map(Pends).ok_or_else(|| unknown("fate of a pending message", name, &PendingBit::NAMES))
    }
}

/// The name of a profile, or the profile itself.
pub(super) struct Timing(pub(super) Profile);

impl<'de> Deserialize<'de> for Timing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timing, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Timing;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a profile, or a table")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Timing, E> {
                name.parse().map(Timing).map_err(|_| E::custom(unknown("profile", name, &Profile::NAMES)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Timing, A::Error> {
                let profile = Profile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Timing(Profile { name: "own profile".into(), ..profile }))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `managed`, or the CPUs of the vectors in order.
pub(super) enum Where {
    Managed,
    Cpus(Cpus),
}

impl<'de> Deserialize<'de> for Where {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Where, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Where;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"managed\", or CPUs, such as \"0-3,8\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Where, E> {
                match text {
                    "managed" => Ok(Where::Managed),
                    _ => text.parse().map(Where::Cpus).map_err(|error| E::custom(format!("{error}, and not \"managed\" either"))),
                }
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Where, E> {
                Cpus::deserialize(de::value::I64Deserializer::new(n)).map(Where::Cpus)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Where, A::Error> {
                Cpus::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Where::Cpus)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    /// A job file's text.
    pub(super) fio: Option<Spanned<String>>,
    /// The path of one.
    pub(super) file: Option<Spanned<String>>,
    /// Its options, as keys.
    pub(super) options: Option<Spanned<Options>>,
    /// In place of `cpus_allowed`, one for each thread, round and round.
    pub(super) cpus: Option<Spanned<Cpus>>,
    /// In place of `filename`.
    pub(super) devices: Option<Vec<Spanned<String>>>,
    pub(super) engine: Option<Word<EngineName>>,
    pub(super) think: Option<Time>,
    pub(super) work: Option<Time>,
    #[serde(default, rename = "phase")]
    pub(super) phases: Vec<Phase>,
    /// From one beginning of the phases to the next.
    pub(super) phase_every: Option<Time>,
    /// Several paths, and how one is chosen.
    pub(super) paths: Option<Multipath>,
    /// Software queues per thread and device.
    pub(super) queues: Option<NonZeroU16>,
}

/// Several paths to a namespace. Without a count: the job's devices.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Multipath {
    pub(super) count: Option<Spanned<u8>>,
    /// With a count: where `queue-depth` counts.
    pub(super) counter: Option<DepthCounter>,
    pub(super) queues: Option<Spanned<u16>>,
    pub(super) policy: Word<Policy>,
    pub(super) no_path_limit: Option<usize>,
    pub(super) no_path_timeout: Option<Time>,
    pub(super) held_timeout: Option<Time>,
    pub(super) keep_alive: Option<Time>,
    #[serde(default)]
    pub(super) unsafe_fast_failover: bool,
}

/// fio's options, as keys.
pub(super) type Options = BTreeMap<Spanned<String>, Spanned<Value>>;

/// An option's value.
pub(super) struct Value(pub(super) String);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, or true or false")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
                // A value that began another line would be an option of its own.
                if text.contains('\n') { Err(E::custom("the value of an option is one line")) } else { Ok(Value(text.to_owned())) }
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Value, E> {
                Ok(Value(n.to_string()))
            }

            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Value, E> {
                Ok(Value(n.to_string()))
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Value, E> {
                Ok(Value(u8::from(on).to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Phase {
    pub(super) from: Time,
    pub(super) iops: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    pub(super) at: Time,
    pub(super) mode: Word<Mode>,
}

/// Something happens to a device, in the words of a script of changes.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) at: Time,
    pub(super) device: Spanned<String>,
    pub(super) change: Spanned<String>,
}
