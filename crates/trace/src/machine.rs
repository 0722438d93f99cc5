//! Block devices and interrupt lines of this machine, as sysfs shows them, and which line belongs
//! to which hardware queue.
//!
//! The eBPF program learns the line of a queue by itself when completions run in the interrupt
//! handler, or in a softirq that only one line has raised. If it knows the line beforehand, the
//! counts are exact from the first completion on, also for requests that complete on another CPU.

use crate::Error;
use crate::settings::usage;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A block device with hardware queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    /// Name in `/sys/block`.
    pub name: String,
    /// Numbers of the hardware queues.
    pub queues: Vec<u32>,
    /// The MSI interrupts of the device, in ascending order.
    pub lines: Vec<u32>,
}

/// Block devices and interrupt lines of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Devices with hardware queues, sorted by name.
    pub disks: Vec<BlockDevice>,
    /// Interrupt lines by number, with the names of their handlers, separated by commas.
    pub lines: BTreeMap<u32, String>,
    /// Root of the file system that was read; `/` for this machine.
    root: PathBuf,
}

impl Topology {
    /// Reads `/sys` below `root`. Missing files count as absent devices, not as errors.
    pub(crate) fn read(root: &Path) -> Topology {
        let lines = numbered(&root.join("sys/kernel/irq"))
            .into_iter()
            .filter_map(|irq| {
                let names =
                    fs::read_to_string(root.join(format!("sys/kernel/irq/{irq}/actions"))).ok()?;
                // A line without a handler is unused.
                (!names.trim().is_empty()).then(|| (irq, names.trim().to_owned()))
            })
            .collect();
        let disks = names(&root.join("sys/block"))
            .into_iter()
            .filter_map(|name| {
                let dir = root.join("sys/block").join(&name);
                let queues = numbered(&dir.join("mq"));
                (!queues.is_empty()).then(|| BlockDevice { lines: own_lines(&dir), name, queues })
            })
            .collect();
        Topology { disks, lines, root: root.to_owned() }
    }

    /// The name of a line: the names of its handlers, or `irq N` if it has none.
    pub(crate) fn line_name(&self, irq: u32) -> String {
        self.lines.get(&irq).cloned().unwrap_or_else(|| format!("irq {irq}"))
    }

    /// The disks that `-d NAME` selects: the device itself, or the paths of a multipath NVMe
    /// namespace.
    pub(crate) fn find_disk(&self, given: &str) -> Result<Vec<String>, Error> {
        let name = given.strip_prefix("/dev/").unwrap_or(given);
        if self.disks.iter().any(|disk| disk.name == name) {
            return Ok(vec![name.to_owned()]);
        }
        // The multipath node has no queues of its own; requests complete on its paths.
        let paths: Vec<String> = self
            .disks
            .iter()
            .filter(|disk| is_nvme_path_of(&disk.name, name))
            .map(|disk| disk.name.clone())
            .collect();
        if !paths.is_empty() {
            return Ok(paths);
        }
        // A slash or leading dot would leave the directory.
        let plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        let class = self.root.join("sys/class/block").join(name);
        if plain && class.join("partition").exists() {
            let parent = fs::canonicalize(&class)
                .ok()
                .and_then(|path| Some(path.parent()?.file_name()?.to_str()?.to_owned()));
            let disk = parent.unwrap_or_else(|| "DISK".into());
            return usage(format!(
                "`{given}` is a partition, and requests complete on whole devices: use `-d {disk}`"
            ));
        }
        if plain && class.exists() {
            return usage(format!(
                "`{given}` has no hardware queue: it passes its I/O on to other devices, so trace those"
            ));
        }
        let known = listed(self.disks.iter().map(|disk| disk.name.clone()));
        usage(format!("no block device `{given}` on this machine: it has {known}"))
    }

    /// The line that `--line NAME` selects, by handler name or interrupt number.
    pub(crate) fn find_line(&self, given: &str) -> Result<u32, Error> {
        let named = self.lines.iter().find(|(irq, names)| {
            names.split(',').any(|name| name == given) || irq.to_string() == given
        });
        if let Some((&irq, _)) = named {
            return Ok(irq);
        }
        let lines =
            self.disks.iter().flat_map(|disk| disk.lines.iter()).map(|&irq| self.line_name(irq));
        usage(format!(
            "no interrupt line `{given}` on this machine: its block devices have {}",
            listed(lines)
        ))
    }

    /// The line of each hardware queue whose line is known: `(disk, queue, irq)`.
    pub(crate) fn queue_lines(&self) -> Vec<(String, u32, u32)> {
        let queues =
            self.disks.iter().flat_map(|disk| disk.queues.iter().map(move |&queue| (disk, queue)));
        queues
            .filter_map(|(disk, queue)| {
                Some((disk.name.clone(), queue, self.line_of_queue(disk, queue)?))
            })
            .collect()
    }

    /// The line of a queue, found by the name of the line's handler.
    fn line_of_queue(&self, disk: &BlockDevice, queue: u32) -> Option<u32> {
        // NVMe: queue 0 is the admin queue, so hardware queue k of the block layer is `qk+1`.
        // virtio-blk: `req.k`.
        let suffix = if disk.name.starts_with("nvme") {
            format!("q{}", queue + 1)
        } else {
            format!("req.{queue}")
        };
        let ends = |irq: &&u32| {
            self.lines
                .get(irq)
                .is_some_and(|names| names.split(',').any(|name| name.ends_with(&suffix)))
        };
        if let Some(&irq) = disk.lines.iter().find(ends) {
            return Some(irq);
        }
        // No handler has such a name, as for a poll queue, which has no line. But if the disk has
        // one queue and one line with a handler, they belong together, whatever the name.
        let mut in_use = disk.lines.iter().filter(|irq| self.lines.contains_key(irq));
        match (disk.queues.len(), in_use.next(), in_use.next()) {
            (1, Some(&only), None) => Some(only),
            _ => None,
        }
    }

    /// Interrupts of a line since boot, as counted by the kernel.
    pub(crate) fn interrupts(&self, irq: u32) -> u64 {
        let counts =
            fs::read_to_string(self.root.join(format!("sys/kernel/irq/{irq}/per_cpu_count")))
                .unwrap_or_default();
        counts.trim().split(',').filter_map(|count| count.parse::<u64>().ok()).sum()
    }

    /// Length of a table indexed by interrupt number, with spare entries for devices that appear
    /// later.
    pub(crate) fn irq_table_len(&self) -> u32 {
        let all = numbered(&self.root.join("sys/kernel/irq"));
        all.last().copied().unwrap_or(0).saturating_add(257)
    }
}

/// `nvme0c1n2` is a path of `nvme0n2`.
fn is_nvme_path_of(path: &str, namespace: &str) -> bool {
    // Subsystem and namespace number must be equal; the controller number between them (`c1`) names
    // the path.
    let split = |name: &str| -> Option<(String, String)> {
        let (subsystem, rest) = name.strip_prefix("nvme")?.split_once(['c', 'n'])?;
        Some((subsystem.to_owned(), rest.rsplit('n').next()?.to_owned()))
    };
    path.contains('c')
        && !namespace.contains('c')
        && split(path).is_some()
        && split(path) == split(namespace)
}

/// The MSI lines of the nearest parent device that has any.
fn own_lines(disk: &Path) -> Vec<u32> {
    // The interrupts belong to the PCI function, some levels above the disk.
    let Ok(device) = fs::canonicalize(disk.join("device")) else { return Vec::new() };
    device
        .ancestors()
        .map(|dir| numbered(&dir.join("msi_irqs")))
        .find(|lines| !lines.is_empty())
        .unwrap_or_default()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn numbered(dir: &Path) -> Vec<u32> {
    let mut numbers: Vec<u32> = names(dir).iter().filter_map(|name| name.parse().ok()).collect();
    // By number: the sorted names have 10 before 9.
    numbers.sort_unstable();
    numbers
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.len() {
        0 => "none".into(),
        // A machine may have hundreds of lines: keep the message short.
        1..=12 => names.join(", "),
        n => format!("{} and {} more", names.get(..12).unwrap_or_default().join(", "), n - 12),
    }
}

#[cfg(test)]
mod tests;
