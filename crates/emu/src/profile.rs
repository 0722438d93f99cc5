//! Service-time profiles: latency, parallelism and interrupt coalescing of an emulated device.

use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use units::{Nanos, Op};

/// The timing of a device. In a file, of a device or of a scenario, times are in nanoseconds; a
/// missing field is zero, which means no delay or no limit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the profile in reports; not part of the file.
    #[serde(skip)]
    pub name: String,
    /// Time that a Read occupies a channel, without its data transfer.
    pub read: Service,
    /// Time that a Write, without its data transfer, a Write Zeroes, a Deallocate or a Write
    /// Uncorrectable occupies a channel.
    pub write: Service,
    /// Time that a Flush occupies a channel.
    #[serde(default)]
    pub flush: Service,
    /// Commands served in parallel, at most [`Profile::MAX_CHANNELS`]; others are queued. 0: no
    /// limit.
    #[serde(default, deserialize_with = "channels")]
    pub channels: u32,
    /// Bandwidth of the link to the host in bytes per second. Transfers are serialized. 0: no
    /// limit.
    #[serde(default, rename = "bytes_per_second")]
    pub bandwidth: u64,
    /// Commands started per second, limited by a token bucket. 0: no limit.
    #[serde(default)]
    pub iops: u64,
    /// Depth of that bucket: commands that may start at once after an idle period. At least 1.
    #[serde(default = "one")]
    pub iops_burst: u32,
    /// Whether data are transferred. False only for `null`: a Read leaves the host's buffer
    /// unchanged, and data pointers are not validated.
    #[serde(skip, default = "yes")]
    pub moves_data: bool,
    /// Interrupt coalescing that feature 08h does not report.
    #[serde(default, rename = "hidden_coalescing")]
    pub hidden: Hidden,
}

/// Distribution of one operation's time on a channel: `base`, which may drift, plus exponentially
/// distributed jitter of mean `jitter`, plus `more` and `tail`, each for some commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Constant part of the time.
    #[serde(rename = "base_ns", with = "nanos")]
    pub base: Nanos,
    /// Mean of the exponentially distributed part.
    #[serde(rename = "jitter_ns", with = "nanos")]
    pub jitter: Nanos,
    /// Commands per million that take `tail` longer.
    #[serde(deserialize_with = "ppm")]
    pub tail_ppm: u32,
    /// Extra time of the commands that `tail_ppm` counts.
    #[serde(rename = "tail_ns", with = "nanos")]
    pub tail: Nanos,
    /// Number of consecutive commands that take `tail` longer, at regular intervals, so that the
    /// device alternates between a fast and a slow phase. 0: each command takes `tail` longer
    /// independently of the others.
    pub tail_run: u32,
    /// Commands per million that take `more` longer, independently of the phase: a second, slower
    /// peak of the distribution.
    #[serde(deserialize_with = "ppm")]
    pub more_ppm: u32,
    /// Extra time of the commands that `more_ppm` counts.
    #[serde(rename = "more_ns", with = "nanos")]
    pub more: Nanos,
    /// `base` rises linearly by up to this many per cent and falls again, periodically.
    pub drift_pct: u32,
    /// Period of that drift in commands. 0: no drift.
    pub drift_run: u32,
}

/// Interrupt coalescing that the device does not report: features 08h and 09h read zero and cannot
/// be changed. All zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hidden {
    /// Entries per vector until a message is sent.
    pub entries: u32,
    /// Maximum delay of a message, counted from its first entry.
    #[serde(rename = "time_ns", with = "nanos")]
    pub time: Nanos,
    /// Entries per second and vector that messages may announce, limited by a token bucket: a
    /// message is delayed until the bucket has covered the entries announced before. Entries that
    /// the host consumes before a message announces them take no tokens. 0: no limit.
    #[serde(rename = "announced_per_second")]
    pub announced_per_s: u64,
    /// Depth of that bucket in entries.
    pub announced_burst: u32,
    /// Messages per second of the whole controller, in bursts of at most four. 0: no limit.
    #[serde(rename = "messages_per_second")]
    pub messages_per_s: u64,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

// Values are validated by their own deserializers, so that an error carries its line and column.

fn channels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n <= Profile::MAX_CHANNELS => Ok(n),
        n => Err(D::Error::custom(format_args!(
            "{n} channels: there are at most {}; 0 means no limit",
            Profile::MAX_CHANNELS
        ))),
    }
}

fn ppm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n <= 1_000_000 => Ok(n),
        n => Err(D::Error::custom(format_args!(
            "{n} slow commands per million: the maximum is 1000000, every command"
        ))),
    }
}

mod nanos {
    use super::*;

    /// Longest time of a command: an hour.
    const LONGEST_NS: u64 = 3_600_000_000_000;

    pub(super) fn serialize<S: serde::Serializer>(
        time: &Nanos,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Nanos, D::Error> {
        match u64::deserialize(deserializer)? {
            n if n <= LONGEST_NS => Ok(Nanos(n)),
            n => Err(D::Error::custom(format_args!(
                "{n} ns for a command: the maximum is an hour, {LONGEST_NS} ns"
            ))),
        }
    }
}

impl Hidden {
    /// Whether messages are coalesced.
    pub fn is_on(&self) -> bool {
        *self != Hidden::default()
    }
}

impl Service {
    fn fixed(base: Nanos) -> Service {
        Service { base, ..Service::default() }
    }

    /// Whether the time is always zero.
    pub fn is_zero(&self) -> bool {
        self.mean() == Nanos::ZERO
    }

    /// The mean time.
    pub fn mean(&self) -> Nanos {
        let part =
            |time: Nanos, ppm: u32| u128::from(time.0) * u128::from(ppm.min(1_000_000)) / 1_000_000;
        let drift = if self.drift_run > 0 {
            u128::from(self.base.0) * u128::from(self.drift_pct) / 200
        } else {
            0
        };
        self.base
            + self.jitter
            + Nanos(
                (part(self.tail, self.tail_ppm) + part(self.more, self.more_ppm) + drift) as u64,
            )
    }
}

impl Profile {
    /// Names accepted by [`Profile::from_str`].
    pub const NAMES: [&'static str; 5] = ["null", "optane", "tlc", "bimodal", "cloud"];

    /// Maximum channels, which bounds the memory of the schedule; two orders of magnitude above
    /// real drives.
    pub const MAX_CHANNELS: u32 = 65_536;

    /// No latency and no data transfer: measures the cost of the queues alone.
    pub fn null() -> Profile {
        let none = Service::default();
        Profile {
            name: "null".into(),
            read: none,
            write: none,
            flush: none,
            channels: 0,
            bandwidth: 0,
            iops: 0,
            iops_burst: 1,
            moves_data: false,
            hidden: Hidden::default(),
        }
    }

    /// A drive without flash translation layer: about 10 µs, with little variance.
    pub fn optane() -> Profile {
        let read = Service {
            jitter: Nanos(400),
            tail_ppm: 100,
            tail: Nanos::from_micros(20),
            ..Service::fixed(Nanos(8_000))
        };
        Profile {
            name: "optane".into(),
            read,
            write: read,
            flush: Service::fixed(Nanos(1_000)),
            channels: 16,
            bandwidth: 2_500_000_000,
            moves_data: true,
            ..Profile::null()
        }
    }

    /// A TLC flash drive: reads about 80 µs with a tail; writes complete from its buffer.
    pub fn tlc() -> Profile {
        let tail = Service { tail_ppm: 2_000, tail: Nanos::from_micros(900), ..Service::default() };
        Profile {
            name: "tlc".into(),
            read: Service { base: Nanos::from_micros(70), jitter: Nanos::from_micros(7), ..tail },
            write: Service { base: Nanos::from_micros(15), jitter: Nanos::from_micros(5), ..tail },
            flush: Service {
                base: Nanos::from_micros(300),
                jitter: Nanos::from_micros(200),
                ..Service::default()
            },
            channels: 64,
            bandwidth: 3_500_000_000,
            moves_data: true,
            ..Profile::null()
        }
    }

    /// Phases of 900 commands of 10 µs and 100 of 500 µs, for which a prediction from the mean
    /// latency is always wrong.
    pub fn bimodal() -> Profile {
        let both = Service {
            tail_ppm: 100_000,
            tail: Nanos::from_micros(490),
            tail_run: 100,
            ..Service::fixed(Nanos::from_micros(10))
        };
        Profile {
            name: "bimodal".into(),
            read: both,
            write: both,
            flush: Service::fixed(Nanos::from_micros(10)),
            channels: 128,
            moves_data: true,
            ..Profile::null()
        }
    }

    /// The drive of a cloud VM, after a post of 2019 to linux-nvme ("poll IO after batch submission
    /// for multi-mapping queue"): 4 KiB random reads at a queue depth of 64 in batches of 16 reach
    /// 130K IOPS with interrupts; at 110K there are 13–14K interrupts per second, under heavy load
    /// at most 40–50K; the Interrupt Coalescing feature reads zero.
    ///
    /// The rules are a model, the simplest found that gives these figures independently of the
    /// host's speed:
    /// - *8 entries or 100 µs*: 110K / 8 = 13.75K messages per second, for single commands and for
    ///   batches.
    /// - *131K announced entries per second and vector*. With 64 outstanding commands, 130K IOPS
    ///   mean 490 µs each, of which the drive, which also reached 424K, needs 151 µs at most; the
    ///   rest is the delay of the interrupt. Fewer messages alone do not explain it: an interrupt
    ///   handler reaps all posted entries, and a delay of 490 µs per message would leave 2K
    ///   messages at 110K. The delay has to grow with the entries announced: 8 entries cost 61 µs,
    ///   which does not limit 110K; 64 cost 489 µs. The burst of 32 lets two batches pass
    ///   undelayed.
    /// - Entries that the host reaps before they are announced take no tokens. This is why polling
    ///   after submission helps: 424K in the post, here up to the IOPS limit.
    /// - *45K messages per second* for the whole controller.
    /// - *400K IOPS*, from the data sheet of one such drive (Lsv2 series), with a burst.
    /// - *1.5 µs per command*. The post gives no latency, only the bound above. A poll after
    ///   submission finds entries only if commands complete while further batches are submitted,
    ///   which took that host 38 µs per batch and takes a user-space driver 2 or 3: a longer time
    ///   would measure the host against the drive instead of the rules. (With interrupts a single
    ///   command takes the 100 µs of the first rule.)
    pub fn cloud() -> Profile {
        let both = Service { jitter: Nanos(500), ..Service::fixed(Nanos(1_000)) };
        Profile {
            name: "cloud".into(),
            read: both,
            write: both,
            flush: Service::fixed(Nanos::from_micros(20)),
            channels: 64,
            bandwidth: 0,
            iops: 400_000,
            iops_burst: 256,
            moves_data: true,
            hidden: Hidden {
                entries: 8,
                time: Nanos::from_micros(100),
                announced_per_s: 131_000,
                announced_burst: 32,
                messages_per_s: 45_000,
            },
        }
    }

    /// The distribution of an operation's time.
    pub fn service(&self, op: Op) -> &Service {
        match op {
            // Compare and Verify read the medium.
            Op::Read | Op::Compare | Op::Verify => &self.read,
            // These change the state of blocks, without a data transfer.
            Op::Write | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable => &self.write,
            Op::Flush => &self.flush,
        }
    }

    /// Whether every command completes in the step that fetches it.
    pub fn is_instant(&self) -> bool {
        self.read.is_zero()
            && self.write.is_zero()
            && self.flush.is_zero()
            && self.bandwidth == 0
            && self.iops == 0
    }
}

/// An unknown profile name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no profile `{0}`; {suggestion}profiles are {all}", suggestion = suggestion(.0), all = Profile::NAMES.join(", "))]
pub struct UnknownProfile(pub String);

/// The known name that is closest to a misspelt one.
fn suggestion(given: &str) -> String {
    let near = units::nearest_name(given, Profile::NAMES);
    near.map_or(String::new(), |near| format!("did you mean `{near}`? "))
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        Ok(match name {
            "null" => Profile::null(),
            "optane" => Profile::optane(),
            "tlc" => Profile::tlc(),
            "bimodal" => Profile::bimodal(),
            "cloud" => Profile::cloud(),
            _ => return Err(UnknownProfile(name.into())),
        })
    }
}

#[cfg(test)]
mod tests;
