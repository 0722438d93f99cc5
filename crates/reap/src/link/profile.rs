//! `profile=`: a built-in service-time profile by name, or one of the user's own from a TOML file.

use std::path::Path;

use device::{Hidden, Profile, Service};
use serde::Deserialize;
use units::Nanos;

use crate::error::OpenError;

/// The profile that `name` names: a built-in one, or the file of that path if it ends in `.toml`.
pub(super) fn load(name: &str) -> Result<Profile, OpenError> {
    let fail = |what: String| OpenError::Profile { name: name.to_owned(), what };
    if !name.ends_with(".toml") {
        return name.parse().map_err(|e| fail(format!("{e}; a profile of your own is the path of a file that ends in `.toml`")));
    }
    let text = std::fs::read_to_string(name).map_err(|e| fail(format!("cannot read it: {e}")))?;
    let file: ProfileFile = toml::from_str(&text).map_err(|e| fail(format!("not a profile: {e}")))?;
    let stem = Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    Ok(file.into_profile(stem))
}

/// A profile as written in a file. Times are in nanoseconds; whatever is left out is zero, which means "none".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    read: ServiceFile,
    write: ServiceFile,
    #[serde(default)]
    flush: ServiceFile,
    #[serde(default)]
    channels: u32,
    #[serde(default)]
    bytes_per_second: u64,
    #[serde(default)]
    iops: u64,
    #[serde(default = "one")]
    iops_burst: u32,
    #[serde(default)]
    hidden_coalescing: HiddenFile,
}

fn one() -> u32 {
    1
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServiceFile {
    base_ns: u64,
    jitter_ns: u64,
    tail_ppm: u32,
    tail_ns: u64,
    tail_run: u32,
}

#[derive(Default, Deserialize)]
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
        let ServiceFile { base_ns, jitter_ns, tail_ppm, tail_ns, tail_run } = self;
        Service { base: Nanos(base_ns), jitter: Nanos(jitter_ns), tail_ppm: tail_ppm.min(1_000_000), tail: Nanos(tail_ns), tail_run }
    }
}

impl ProfileFile {
    fn into_profile(self, name: String) -> Profile {
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

#[cfg(test)]
mod tests;
