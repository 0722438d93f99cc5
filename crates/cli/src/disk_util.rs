//! fio's `disk_util`: statistics of the disks below `kernel:` devices during a run, from the
//! kernel's counters (Documentation/block/stat.rst).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use reap::{KernelUri, Nanos};
use rustix::fs::{major, minor};
use serde_json::{Value, json};

use crate::bench::TargetDevice;

/// The disks' counters at one time.
#[derive(Debug)]
pub struct DiskUtil {
    at: Nanos,
    /// The directory of each disk in `/sys`, and the counters in its `stat`.
    disks: Vec<(PathBuf, Vec<u64>)>,
}

impl DiskUtil {
    /// Reads the counters of the disks below these devices. tmpfs, network file systems and
    /// embedded devices have none.
    pub fn now(devices: &[TargetDevice]) -> DiskUtil {
        let files =
            devices.iter().filter_map(|device| Some(device.uri.parse::<KernelUri>().ok()?.path));
        let mut disks: Vec<(PathBuf, Vec<u64>)> = Vec::new();
        for metadata in files.filter_map(|path| fs::metadata(path).ok()) {
            let number = if metadata.file_type().is_block_device() {
                metadata.rdev()
            } else {
                metadata.dev()
            };
            let device = format!("/sys/dev/block/{}:{}", major(number), minor(number));
            // Several files may be on one disk, which is reported once, as in fio.
            if let Some((disk, counters)) = counters(Path::new(&device))
                && !disks.iter().any(|(known, _)| *known == disk)
            {
                disks.push((disk, counters));
            }
        }
        DiskUtil { at: hw::now(), disks }
    }

    /// The statistics since [`DiskUtil::now`], in fio's JSON.
    pub fn since(&self) -> Vec<Value> {
        let elapsed = (hw::now() - self.at).0 as f64 / 1e6;
        self.disks
            .iter()
            .filter_map(|(disk, before)| Some(entry(disk, before, &counters(disk)?.1, elapsed)))
            .collect()
    }
}

/// The directory and the counters of a block device's disk.
fn counters(device: &Path) -> Option<(PathBuf, Vec<u64>)> {
    let device = fs::canonicalize(device).ok()?;
    let disk = if device.join("partition").exists() { device.parent()?.to_owned() } else { device };
    let counters: Vec<u64> = fs::read_to_string(disk.join("stat"))
        .ok()?
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    (counters.len() >= 11).then_some((disk, counters))
}

fn entry(disk: &Path, before: &[u64], after: &[u64], elapsed_ms: f64) -> Value {
    let since = |at: usize| after[at].saturating_sub(before[at]);
    // Field 10 of stat: milliseconds in which the disk had I/O.
    let util = (since(9) as f64 * 100.0 / elapsed_ms.max(1.0)).min(100.0);
    json!({
        "name": disk.file_name().unwrap_or_default().to_string_lossy(),
        "read_ios": since(0),
        "write_ios": since(4),
        "read_merges": since(1),
        "write_merges": since(5),
        "read_ticks": since(3),
        "write_ticks": since(7),
        "in_queue": since(10),
        // Six digits after the point, as fio has.
        "util": (util * 1e6).round() / 1e6,
    })
}

#[cfg(test)]
mod tests;
