//! What the paths of devices did while jobs ran.

use reap::{Device, Nanos, PathReport};
use workload::report::PathFigures;

/// What the paths had done when the jobs began.
#[derive(Debug)]
pub struct PathMark {
    at: Nanos,
    before: Vec<Vec<PathReport>>,
}

impl PathMark {
    /// Now.
    pub fn new(devices: &[Device]) -> PathMark {
        PathMark { at: hw::now(), before: devices.iter().map(Device::paths).collect() }
    }

    /// What they have done since; nothing of devices that have but one. `names`: the devices' names in the jobs.
    pub fn since(&self, devices: &[Device], names: &[Option<String>]) -> Vec<PathFigures> {
        let elapsed = (hw::now() - self.at).0.max(1);
        let of_device = |((device, before), name): ((&Device, &Vec<PathReport>), &Option<String>)| {
            let name = name.clone().unwrap_or_default();
            let figures = |(after, before): (PathReport, &PathReport)| figures(&name, &after, before, elapsed);
            device.paths().into_iter().zip(before).map(figures).collect::<Vec<_>>()
        };
        devices.iter().zip(&self.before).zip(names).flat_map(of_device).collect()
    }
}

fn figures(name: &str, after: &PathReport, before: &PathReport, elapsed: u64) -> PathFigures {
    let (ios, time) = (after.ios.saturating_sub(before.ios), (after.time - before.time).0);
    PathFigures {
        device: name.to_owned(),
        path: after.uri.clone(),
        state: after.status.to_string(),
        ios,
        failed: after.failed.saturating_sub(before.failed),
        // Little's law.
        in_flight: time as f64 / elapsed as f64,
        lat_ns: time.checked_div(ios).unwrap_or(0),
    }
}

/// What the same paths did over several stretches, all together.
pub fn over_all(stretches: &[&[PathFigures]]) -> Vec<PathFigures> {
    let Some(last) = stretches.last() else { return Vec::new() };
    let of_path = |(at, last): (usize, &PathFigures)| {
        let each = || stretches.iter().filter_map(move |paths| paths.get(at));
        let (ios, time) = each().fold((0, 0), |(ios, time), path| (ios + path.ios, time + path.ios * path.lat_ns));
        PathFigures {
            ios,
            failed: each().map(|path| path.failed).sum(),
            in_flight: each().map(|path| path.in_flight).sum::<f64>() / stretches.len() as f64,
            lat_ns: time.checked_div(ios).unwrap_or(0),
            ..last.clone()
        }
    };
    last.iter().enumerate().map(of_path).collect()
}

#[cfg(test)]
mod tests;
