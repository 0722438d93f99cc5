//! Service-time profiles: how long a device takes, how much it does at once, and what it hides.

use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use units::{Nanos, Op};

/// The timing of a device. In a file, a device's own or part of a scenario, times are in
/// nanoseconds, and whatever is left out is zero, which means "none".
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// How the profile is called in reports; no part of a file.
    #[serde(skip)]
    pub name: String,
    /// Time on a channel of a Read, without its transfer.
    pub read: Service,
    /// Time on a channel of a Write, without its transfer; and of a Write Zeroes, a Deallocate or a
    /// Write Uncorrectable.
    pub write: Service,
    /// Time on a channel of a Flush.
    #[serde(default)]
    pub flush: Service,
    /// Commands served at once, at most [`Profile::MOST_CHANNELS`]; the others queue. 0: all of
    /// them.
    #[serde(default, deserialize_with = "channels")]
    pub channels: u32,
    /// Bytes per second over the device's one link to the host, which a transfer occupies. 0: no
    /// limit.
    #[serde(default, rename = "bytes_per_second")]
    pub bandwidth: u64,
    /// Commands per second that the device starts at most, as a token bucket. 0: no limit.
    #[serde(default)]
    pub iops: u64,
    /// Commands that may start at once after a pause, when `iops` limits: the depth of the bucket.
    /// At least 1.
    #[serde(default = "one")]
    pub iops_burst: u32,
    /// Whether data are moved at all. Only `null` says no, and by its name: a Read leaves the
    /// host's buffer as it is, and no data pointer is looked at.
    #[serde(skip, default = "yes")]
    pub moves_data: bool,
    /// Interrupt coalescing that feature 08h does not show.
    #[serde(default, rename = "hidden_coalescing")]
    pub hidden: Hidden,
}

/// The distribution of one operation's time on a channel: `base`, plus exponential jitter of mean
/// `jitter`, plus for some commands `tail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Time that every command takes.
    #[serde(rename = "base_ns", with = "nanos")]
    pub base: Nanos,
    /// Mean of the exponentially distributed time on top.
    #[serde(rename = "jitter_ns", with = "nanos")]
    pub jitter: Nanos,
    /// How many of a million commands take `tail` longer.
    #[serde(deserialize_with = "ppm")]
    pub tail_ppm: u32,
    /// The extra time of those.
    #[serde(rename = "tail_ns", with = "nanos")]
    pub tail: Nanos,
    /// They come in runs of this many commands, regularly, so that the device alternates between
    /// phases. 0: each command throws its own dice.
    pub tail_run: u32,
    /// How many of a million commands take `more` longer, by dice of their own, in whichever phase
    /// the device is.
    #[serde(deserialize_with = "ppm")]
    pub more_ppm: u32,
    /// The extra time of those.
    #[serde(rename = "more_ns", with = "nanos")]
    pub more: Nanos,
    /// `base` grows by up to this many per cent and falls back, evenly, over and over.
    pub drift_pct: u32,
    /// Commands from one beginning of that to the next. 0: `base` stays.
    pub drift_run: u32,
}

/// Interrupt coalescing that the device keeps to itself: features 08h and 09h read zero and cannot
/// be changed. All zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hidden {
    /// Entries per vector before a message.
    pub entries: u32,
    /// Longest wait for them, from the first one.
    #[serde(rename = "time_ns", with = "nanos")]
    pub time: Nanos,
    /// Rate, in entries per second and vector, at which messages may announce entries, as a token
    /// bucket: a message waits until the entries announced before it are paid for. 0: no limit.
    /// Entries that the host takes by itself, before a message announced them, are free.
    #[serde(rename = "announced_per_second")]
    pub announced_per_s: u64,
    /// Depth of that bucket in entries.
    pub announced_burst: u32,
    /// Messages per second of the whole controller at most, but for four at once after a pause. 0:
    /// no limit.
    #[serde(rename = "messages_per_second")]
    pub messages_per_s: u64,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

// Bad values are refused where they stand, so that the mistake has a place.

fn channels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n <= Profile::MOST_CHANNELS => Ok(n),
        n => Err(D::Error::custom(format_args!(
            "{n} channels: there are at most {}; 0 is no limit",
            Profile::MOST_CHANNELS
        ))),
    }
}

fn ppm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n <= 1_000_000 => Ok(n),
        n => Err(D::Error::custom(format_args!(
            "{n} of a million commands slow: 1000000 is every command"
        ))),
    }
}

mod nanos {
    use super::*;

    /// No command takes longer: an hour.
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
                "{n} ns for a command: an hour, {LONGEST_NS} ns, is the longest"
            ))),
        }
    }
}

impl Hidden {
    /// Whether anything is held back.
    pub fn is_on(&self) -> bool {
        *self != Hidden::default()
    }
}

impl Service {
    fn fixed(base: Nanos) -> Service {
        Service { base, ..Service::default() }
    }

    /// Whether every command takes no time at all.
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
    /// The names that [`Profile::from_str`] knows.
    pub const NAMES: [&'static str; 5] = ["null", "optane", "tlc", "bimodal", "cloud"];

    /// The most channels that are kept account of: no drive has a hundredth of them.
    pub const MOST_CHANNELS: u32 = 65_536;

    /// No time and no data: what the rings alone cost.
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

    /// A drive without flash translation: about 10 µs, hardly any spread.
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

    /// A flash drive: about 80 µs with a tail; writes land in its buffer.
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

    /// Phases of 900 commands of 10 µs and 100 of 500 µs: a prediction from a mean is always wrong.
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
    /// for multi-mapping queue"): 4 KiB random reads with a depth of 64 in batches of 16 give 130K
    /// IOPS by interrupts; at 110K there are 13–14K messages a second, under heavy load at most
    /// 40–50K; the Interrupt Coalescing feature reads zero.
    ///
    /// The rules are ours, the simplest found that give these figures whatever the host's own
    /// speed:
    /// - *8 entries or 100 µs*: 110K / 8 = 13.75K messages a second, whether commands come singly
    ///   or in batches.
    /// - *131K entries announced per second and vector*. With 64 commands outstanding 130K IOPS
    ///   mean 490 µs each, of which the drive, which also did 424K, needs 151 µs at most; so the
    ///   rest is waiting to be told. Fewer messages alone do not bring it about: a thread that is
    ///   woken finds all that has been posted, and a delay of 490 µs per message would leave 2K of
    ///   them at 110K. It takes a delay that grows with what a message announces: 8 entries cost 61
    ///   µs, which 110K does not notice, 64 cost 489 µs. The burst of 32 lets two batches pass
    ///   undelayed.
    /// - What the host takes before it is announced is not paid for. That is why a look after
    ///   submission helps at all: 424K there, here as many as the ceiling lets through.
    /// - *45K messages a second* for the whole controller.
    /// - *400K IOPS*, the data sheet's figure for one such drive (Lsv2 series), with a burst, as
    ///   such limits have.
    /// - *1.5 µs per command*. The post gives no latency, only that bound. A look after submission
    ///   finds something only if commands complete while further batches are submitted, which took
    ///   that host 38 µs each and takes one without a kernel 2 or 3: a longer time would measure
    ///   the host's speed against the drive's, not the rules. (What a lone command shows by
    ///   interrupts is the 100 µs of the first rule.)
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

    /// The time that one operation takes on a channel.
    pub fn service(&self, op: Op) -> &Service {
        match op {
            // The latter two read the medium as a Read does.
            Op::Read | Op::Compare | Op::Verify => &self.read,
            // The latter two change what is known of blocks, as a Write does, without its transfer.
            Op::Write | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable => &self.write,
            Op::Flush => &self.flush,
        }
    }

    /// Whether every command is done the moment it is fetched.
    pub fn is_instant(&self) -> bool {
        self.read.is_zero()
            && self.write.is_zero()
            && self.flush.is_zero()
            && self.bandwidth == 0
            && self.iops == 0
    }
}

/// A name that is no profile's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no profile is called `{0}`; {meant}there are {all}", meant = meant(.0), all = Profile::NAMES.join(", "))]
pub struct UnknownProfile(pub String);

/// Of the names, the one that a typo was meant to be.
fn meant(given: &str) -> String {
    let near = units::nearest(given, Profile::NAMES);
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
