//! What the paths of devices did while jobs ran.

use reap::{Device, Nanos, PathReport};
use workload::report::PathFigures;

use super::Rig;

/// What the paths had done when the jobs began.
pub struct PathMark {
    at: Nanos,
    before: Vec<Vec<PathReport>>,
}

impl PathMark {
    /// Now.
    pub fn new(rig: &Rig) -> PathMark {
        PathMark { at: hw::now(), before: rig.devices().iter().map(Device::paths).collect() }
    }

    /// What they have done since; nothing of devices that have but one. `names`: the devices' names in the jobs.
    pub fn since(&self, rig: &Rig, names: &[Option<String>]) -> Vec<PathFigures> {
        let elapsed = (hw::now() - self.at).0.max(1);
        let of_device = |((device, before), name): ((&Device, &Vec<PathReport>), &Option<String>)| {
            let name = name.clone().unwrap_or_default();
            let figures = |(after, before): (PathReport, &PathReport)| figures(&name, &after, before, elapsed);
            device.paths().into_iter().zip(before).map(figures).collect::<Vec<_>>()
        };
        rig.devices().iter().zip(&self.before).zip(names).flat_map(of_device).collect()
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
