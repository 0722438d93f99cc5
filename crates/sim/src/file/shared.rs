//! Keys of what is shared: the way of devices' interrupts, and a CPU that threads spin on.

use std::fmt;
use std::num::NonZeroU64;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use toml::Spanned;
use units::Nanos;

use super::error::{FileError, Source};
use super::words::{Bytes, Time, Word};
use crate::{SharedLink, Spin};

/// `[machine.interrupts]`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterruptPath {
    remap: Option<Time>,
    miss: Option<Time>,
    cache: Option<u32>,
    notify: Option<Time>,
    post: Option<Time>,
    buffer: Option<u32>,
    cross: Option<Time>,
    cross_link: Option<Time>,
    inject: Option<Time>,
    injectors: Option<u32>,
}

/// One way of spinning, or several.
pub(super) struct Spins(pub(super) Vec<Spin>);

impl<'de> Deserialize<'de> for Spins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spins, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Spins;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a way of spinning, such as \"spins\", or a list of some")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Spins, E> {
                name.parse().map(|spin| Spins(vec![spin])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Spins, A::Error> {
                let mut spins = Vec::new();
                while let Some(Word(spin)) = list.next_element::<Word<Spin>>()? {
                    if spins.contains(&spin) {
                        return Err(de::Error::custom(format_args!("`poll` names {spin} twice")));
                    }
                    spins.push(spin);
                }
                if spins.is_empty() {
                    Err(de::Error::custom("`poll` names no way of spinning: leave it out for \"spins\""))
                } else {
                    Ok(Spins(spins))
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `[device.inside]`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inside {
    dies: Option<u32>,
    stripe: Option<Bytes>,
    read_tags: Option<u32>,
    read_bytes: Option<Bytes>,
    round_trip: Option<Time>,
}

/// `[[link]]`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    name: String,
    bytes_per_second: NonZeroU64,
}

/// What a device's commands share.
pub(super) fn inside(source: Source<'_>, name: &str, raw: Option<&Spanned<Inside>>) -> Result<crate::Inside, FileError> {
    let Some(spanned) = raw else { return Ok(crate::Inside::default()) };
    let raw = spanned.get_ref();
    let bytes = |bytes: Option<Bytes>, usual: u32| bytes.map_or(usual, |Bytes(n)| u32::try_from(n).unwrap_or(u32::MAX));
    let inside = crate::Inside {
        dies: raw.dies.unwrap_or(0),
        stripe: bytes(raw.stripe, if raw.dies.unwrap_or(0) > 0 { 4_096 } else { 0 }),
        read_tags: raw.read_tags.unwrap_or(0),
        read_bytes: bytes(raw.read_bytes, if raw.read_tags.unwrap_or(0) > 0 { 512 } else { 0 }),
        round_trip: raw.round_trip.map_or(Nanos::ZERO, |time| time.0),
    };
    inside.check(name).map_err(|error| source.error(Some(spanned.span()), error.to_string()))?;
    Ok(inside)
}

/// The links that devices share.
pub(super) fn links(source: Source<'_>, raw: Vec<Spanned<Link>>) -> Result<Vec<SharedLink>, FileError> {
    let mut links: Vec<SharedLink> = Vec::new();
    for spanned in raw {
        let span = spanned.span();
        let Link { name, bytes_per_second } = spanned.into_inner();
        if links.iter().any(|other| other.name == name) {
            return Err(source.error(Some(span), format!("a second link called `{name}`")));
        }
        links.push(SharedLink { name, bytes_per_second: bytes_per_second.get() });
    }
    Ok(links)
}

/// The number of the link that a device names.
pub(super) fn link(source: Source<'_>, links: &[SharedLink], named: Option<&Spanned<String>>) -> Result<Option<usize>, FileError> {
    let Some(named) = named else { return Ok(None) };
    let names = || links.iter().map(|link| link.name.as_str());
    match names().position(|name| name == named.get_ref()) {
        Some(at) => Ok(Some(at)),
        None => {
            let error = source.error(Some(named.span()), format!("there is no link `{}`", named.get_ref()));
            let near = units::nearest(named.get_ref(), names()).map(|near| format!("did you mean '{near}'?"));
            Err(error.help(near.unwrap_or_else(|| "add a table [[link]] with name and bytes_per_second".to_owned())))
        }
    }
}

/// The way of interrupts.
pub(super) fn interrupts(source: Source<'_>, raw: Option<&Spanned<InterruptPath>>) -> Result<crate::InterruptPath, FileError> {
    let Some(spanned) = raw else { return Ok(crate::InterruptPath::default()) };
    let raw = spanned.get_ref();
    let time = |time: Option<Time>| time.map_or(Nanos::ZERO, |time| time.0);
    let path = crate::InterruptPath {
        remap: time(raw.remap),
        miss: time(raw.miss),
        cache: raw.cache.unwrap_or(0),
        notify: time(raw.notify),
        post: time(raw.post),
        buffer: raw.buffer.unwrap_or(0),
        cross: time(raw.cross),
        cross_link: time(raw.cross_link),
        inject: time(raw.inject),
        injectors: raw.injectors.unwrap_or(0),
    };
    path.check().map_err(|error| source.error(Some(spanned.span()), error.to_string()))?;
    Ok(path)
}
