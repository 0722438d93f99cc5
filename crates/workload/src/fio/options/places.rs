//! `random_distribution` and `file_service_type`.

use crate::fio::values::{self, Bad};
use crate::job::{AccessZone, Distribution, FileService, ZoneRoom};

/// Stretches of a `zoned` distribution, and elements of a sequence, at most.
const MOST: usize = 256;
const MOST_SEQUENCE: usize = 64;

/// `random_distribution`: a name, and what it needs after a colon.
pub(super) fn distribution(text: &str, kb_base: u64) -> Result<Distribution, Bad> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name.trim(), Some(rest.trim())),
        None => (text, None),
    };
    let figure = |usual: &str, least: f64, most: f64| {
        let text = rest.unwrap_or(usual);
        match text.parse::<f64>() {
            Ok(value) if value > least && value <= most => Ok(value),
            _ => Err(format!("'{text}': {name} takes a number above {least}, at most {most}")),
        }
    };
    match name {
        "random" => Ok(Distribution::Uniform),
        // What fio takes if none is given.
        "zipf" => match figure("1.2", 0.0, 100.0)? {
            1.0 => Err("the exponent of zipf must not be 1".into()),
            theta => Ok(Distribution::Zipf { theta }),
        },
        "pareto" => figure("0.2", 0.0, 0.999).map(|h| Distribution::Pareto { h }),
        "normal" | "gauss" => figure("10", 0.0, 100.0).map(|percent| Distribution::Normal { percent }),
        "zoned" => zoned(rest, |room| percent(room).map(ZoneRoom::Percent)),
        "zoned_abs" => zoned(rest, |room| values::number(room, kb_base).map(ZoneRoom::Bytes)),
        "sequence" => sequence(rest.unwrap_or("")),
        _ => Err(format!("'{name}' is none of random, zipf, pareto, normal, zoned, zoned_abs, sequence")),
    }
}

fn percent(text: &str) -> Result<f64, Bad> {
    match text.trim().trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is no percentage")),
    }
}

/// `access/room:access/room…`, for reads, writes and trims.
fn zoned(text: Option<&str>, room: impl Fn(&str) -> Result<ZoneRoom, Bad>) -> Result<Distribution, Bad> {
    let text = text.ok_or("needs its zones, as in zoned:60/10:30/20:10/70")?;
    let zones = values::per_op(text, &[','], |text| zones(text, &room))?;
    Ok(Distribution::Zoned(zones.map(Option::unwrap_or_default)))
}

/// The zones of one operation. A zone without a figure shares what the others leave of it, as in fio.
fn zones(text: &str, room: impl Fn(&str) -> Result<ZoneRoom, Bad>) -> Result<Vec<AccessZone>, Bad> {
    let mut given: Vec<(Option<f64>, Option<ZoneRoom>)> = Vec::new();
    for part in text.split(':') {
        let (access, extent) = part.split_once('/').unwrap_or((part, ""));
        let some = |text: &str| if text.trim().is_empty() { None } else { Some(text.trim().to_owned()) };
        let access = some(access).map(|text| percent(&text)).transpose()?;
        let extent = some(extent).map(|text| room(&text)).transpose()?;
        given.push((access, extent));
        if given.len() > MOST {
            return Err(format!("more than {MOST} zones"));
        }
    }
    let percent_of = |extent: &Option<ZoneRoom>| if let Some(ZoneRoom::Percent(percent)) = extent { *percent } else { 0.0 };
    let (accesses, rooms) = given.iter().fold((0.0, 0.0), |(a, r), (access, extent)| (a + access.unwrap_or(0.0), r + percent_of(extent)));
    let open = |missing: usize, sum: f64| if missing == 0 { 0.0 } else { (100.0 - sum).max(0.0) / missing as f64 };
    let access_left = open(given.iter().filter(|(access, _)| access.is_none()).count(), accesses);
    let room_left = open(given.iter().filter(|(_, extent)| extent.is_none()).count(), rooms);
    if accesses > 100.01 || rooms > 100.01 {
        return Err(format!("'{text}': the percentages add up to more than 100"));
    }
    let zone = |(access, extent): (Option<f64>, Option<ZoneRoom>)| AccessZone {
        access: access.unwrap_or(access_left),
        room: extent.unwrap_or(ZoneRoom::Percent(room_left)),
    };
    Ok(given.into_iter().map(zone).collect())
}

/// `2,0,1`: numbers of blocks.
fn sequence(text: &str) -> Result<Distribution, Bad> {
    let blocks: Vec<u64> = text.split(',').map(|part| values::number(part.trim(), 1024)).collect::<Result<_, _>>()?;
    if blocks.len() > MOST_SEQUENCE {
        return Err(format!("{} blocks in a sequence; at most {MOST_SEQUENCE}", blocks.len()));
    }
    Ok(Distribution::Sequence { blocks, moves: false })
}

/// `file_service_type`: a name, and perhaps the number of I/Os to a file before the next one's turn.
pub(super) fn service(text: &str, kb_base: u64) -> Result<(FileService, u64), Bad> {
    let (name, run) = match text.split_once(':') {
        Some((name, run)) => (name.trim(), Some(run.trim())),
        None => (text, None),
    };
    let service = match name {
        "roundrobin" => FileService::RoundRobin,
        "sequential" => FileService::Sequential,
        "random" => FileService::Random,
        "zipf" | "pareto" | "normal" | "gauss" => return Err(format!("'{name}': Reap has roundrobin, sequential and random")),
        _ => return Err(format!("'{name}' is none of roundrobin, sequential, random")),
    };
    Ok((service, run.map_or(Ok(1), |run| values::within(run, kb_base, 1, 1 << 32))?))
}
