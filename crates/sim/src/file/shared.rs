//! The keys of what devices share: the way of their interrupts.

use toml::Spanned;
use units::Nanos;

use super::error::{FileError, Source};
use super::words::Time;

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
