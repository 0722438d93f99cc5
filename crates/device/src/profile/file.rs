//! Profiles as people write them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use units::Nanos;

use super::{Hidden, Profile, Service};

/// A profile as written in a file: a device's own, or part of a scenario. Times are in nanoseconds; whatever is left out
/// is zero, which means "none".
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    #[serde(default, deserialize_with = "channels")]
    channels: u32,
    #[serde(default)]
    bytes_per_second: u64,
    #[serde(default)]
    iops: u64,
    #[serde(default = "one")]
    iops_burst: u32,
    read: ServiceFile,
    write: ServiceFile,
    #[serde(default)]
    flush: ServiceFile,
    #[serde(default)]
    hidden_coalescing: HiddenFile,
}

fn one() -> u32 {
    1
}

/// Refused where it stands, so that the mistake has a place.
fn channels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n <= Profile::MOST_CHANNELS => Ok(n),
        n => Err(D::Error::custom(format_args!("{n} channels: there are at most {}; 0 is no limit", Profile::MOST_CHANNELS))),
    }
}

/// Likewise.
fn ppm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n <= 1_000_000 => Ok(n),
        n => Err(D::Error::custom(format_args!("{n} of a million commands slow: 1000000 is every command"))),
    }
}

/// No command takes longer: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Likewise.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        n if n <= LONGEST_NS => Ok(n),
        n => Err(D::Error::custom(format_args!("{n} ns for a command: an hour, {LONGEST_NS} ns, is the longest"))),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct ServiceFile {
    #[serde(deserialize_with = "time")]
    base_ns: u64,
    #[serde(deserialize_with = "time")]
    jitter_ns: u64,
    #[serde(deserialize_with = "ppm")]
    tail_ppm: u32,
    #[serde(deserialize_with = "time")]
    tail_ns: u64,
    tail_run: u32,
    #[serde(deserialize_with = "ppm")]
    more_ppm: u32,
    #[serde(deserialize_with = "time")]
    more_ns: u64,
    drift_pct: u32,
    drift_run: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct HiddenFile {
    entries: u32,
    time_ns: u64,
    announced_per_second: u64,
    announced_burst: u32,
    messages_per_second: u64,
}

impl ServiceFile {
    fn into_service(self) -> Service {
        let ServiceFile { tail_ppm, tail_run, more_ppm, drift_pct, drift_run, .. } = self;
        let [base, jitter, tail, more] = [self.base_ns, self.jitter_ns, self.tail_ns, self.more_ns].map(Nanos);
        Service { base, jitter, tail_ppm, tail, tail_run, more_ppm, more, drift_pct, drift_run }
    }

    fn of(service: &Service) -> ServiceFile {
        let Service { tail_ppm, tail_run, more_ppm, drift_pct, drift_run, .. } = *service;
        let [base_ns, jitter_ns, tail_ns, more_ns] = [service.base, service.jitter, service.tail, service.more].map(|time| time.0);
        ServiceFile { base_ns, jitter_ns, tail_ppm, tail_ns, tail_run, more_ppm, more_ns, drift_pct, drift_run }
    }
}

/// What the file of a profile has to say, but that data are not moved.
impl From<&Profile> for ProfileFile {
    fn from(profile: &Profile) -> ProfileFile {
        let hidden = &profile.hidden;
        ProfileFile {
            channels: profile.channels,
            bytes_per_second: profile.bandwidth,
            iops: profile.iops,
            iops_burst: profile.iops_burst,
            read: ServiceFile::of(&profile.read),
            write: ServiceFile::of(&profile.write),
            flush: ServiceFile::of(&profile.flush),
            hidden_coalescing: HiddenFile {
                entries: hidden.entries,
                time_ns: hidden.time.0,
                announced_per_second: hidden.announced_per_s,
                announced_burst: hidden.announced_burst,
                messages_per_second: hidden.messages_per_s,
            },
        }
    }
}

impl ProfileFile {
    /// The profile, under this name.
    pub fn into_profile(self, name: String) -> Profile {
        let hidden = self.hidden_coalescing;
        Profile {
            name,
            read: self.read.into_service(),
            write: self.write.into_service(),
            flush: self.flush.into_service(),
            channels: self.channels,
            bandwidth: self.bytes_per_second,
            iops: self.iops,
            iops_burst: self.iops_burst.max(1),
            moves_data: true,
            hidden: Hidden {
                entries: hidden.entries,
                time: Nanos(hidden.time_ns),
                announced_per_s: hidden.announced_per_second,
                announced_burst: hidden.announced_burst,
                messages_per_s: hidden.messages_per_second,
            },
        }
    }
}
