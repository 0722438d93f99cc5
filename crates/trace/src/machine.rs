//! This machine's block devices and interrupt lines, as sysfs shows them, and which line is which hardware queue's.
//!
//! The program in the kernel learns a queue's line by itself when completions happen in the interrupt handler, or when one line alone
//! raises the softirq. What is known beforehand makes it exact from the first completion on: also where requests complete on another CPU.

use crate::Error;
use crate::settings::usage;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A block device that has hardware queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// As in `/sys/block`.
    pub name: String,
    /// Hardware queues, by number.
    pub queues: Vec<u32>,
    /// The device's own interrupt lines (MSI), in their order.
    pub lines: Vec<u32>,
}

/// What was found under a root: `/` for real.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Devices with hardware queues, by name.
    pub disks: Vec<Disk>,
    /// Interrupt lines: number and the names of their handlers, separated by commas.
    pub lines: BTreeMap<u32, String>,
    /// Where it was found.
    root: PathBuf,
}

impl Machine {
    /// Looks at `/sys` below `root`. What is not there is not found; nothing fails.
    pub(crate) fn look(root: &Path) -> Machine {
        let lines = numbered(&root.join("sys/kernel/irq"))
            .into_iter()
            .filter_map(|irq| {
                let names = fs::read_to_string(root.join(format!("sys/kernel/irq/{irq}/actions"))).ok()?;
                (!names.trim().is_empty()).then(|| (irq, names.trim().to_owned()))
            })
            .collect();
        let disks = names(&root.join("sys/block"))
            .into_iter()
            .filter_map(|name| {
                let dir = root.join("sys/block").join(&name);
                let queues = numbered(&dir.join("mq"));
                (!queues.is_empty()).then(|| Disk { lines: own_lines(&dir), name, queues })
            })
            .collect();
        Machine { disks, lines, root: root.to_owned() }
    }

    /// A line's name: its handlers', or `irq N`.
    pub(crate) fn line_name(&self, irq: u32) -> String {
        self.lines.get(&irq).cloned().unwrap_or_else(|| format!("irq {irq}"))
    }

    /// The disks that `-d NAME` means: itself, or the paths of a multipath NVMe namespace.
    pub(crate) fn find_disk(&self, given: &str) -> Result<Vec<String>, Error> {
        let name = given.strip_prefix("/dev/").unwrap_or(given);
        if self.disks.iter().any(|disk| disk.name == name) {
            return Ok(vec![name.to_owned()]);
        }
        let paths: Vec<String> = self.disks.iter().filter(|disk| is_nvme_path_of(&disk.name, name)).map(|disk| disk.name.clone()).collect();
        if !paths.is_empty() {
            return Ok(paths);
        }
        // A name with a slash or dots would leave the directory.
        let plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        let class = self.root.join("sys/class/block").join(name);
        if plain && class.join("partition").exists() {
            let parent = fs::canonicalize(&class).ok().and_then(|path| Some(path.parent()?.file_name()?.to_str()?.to_owned()));
            let disk = parent.unwrap_or_else(|| "DISK".into());
            return usage(format!("`{given}` is a partition, and requests complete on whole devices: use `-d {disk}`"));
        }
        if plain && class.exists() {
            return usage(format!("`{given}` has no hardware queue: it passes its I/O on to other devices, so trace those"));
        }
        let known = listed(self.disks.iter().map(|disk| disk.name.clone()));
        usage(format!("no block device `{given}` on this machine: it has {known}"))
    }

    /// The line that `--line NAME` means: a handler's name or an interrupt number.
    pub(crate) fn find_line(&self, given: &str) -> Result<u32, Error> {
        let named = self.lines.iter().find(|(irq, names)| names.split(',').any(|name| name == given) || irq.to_string() == given);
        if let Some((&irq, _)) = named {
            return Ok(irq);
        }
        let lines = self.disks.iter().flat_map(|disk| disk.lines.iter()).map(|&irq| self.line_name(irq));
        usage(format!("no interrupt line `{given}` on this machine: its block devices have {}", listed(lines)))
    }

    /// The line of each hardware queue for which it can be told: `(disk, queue, irq)`.
    pub(crate) fn queue_lines(&self) -> Vec<(String, u32, u32)> {
        let queues = self.disks.iter().flat_map(|disk| disk.queues.iter().map(move |&queue| (disk, queue)));
        queues.filter_map(|(disk, queue)| Some((disk.name.clone(), queue, self.line_of_queue(disk, queue)?))).collect()
    }

    fn line_of_queue(&self, disk: &Disk, queue: u32) -> Option<u32> {
        // NVMe: queue 0 is the admin queue, so the block layer's queue k is qk+1; virtio-blk: req.k.
        let suffix = if disk.name.starts_with("nvme") { format!("q{}", queue + 1) } else { format!("req.{queue}") };
        let ends = |irq: &&u32| self.lines.get(irq).is_some_and(|names| names.split(',').any(|name| name.ends_with(&suffix)));
        if let Some(&irq) = disk.lines.iter().find(ends) {
            return Some(irq);
        }
        // A poll queue has none. One queue and one line: they belong together.
        let mut in_use = disk.lines.iter().filter(|irq| self.lines.contains_key(irq));
        match (disk.queues.len(), in_use.next(), in_use.next()) {
            (1, Some(&only), None) => Some(only),
            _ => None,
        }
    }

    /// How often a line has interrupted since the kernel booted, by the kernel's own count.
    pub(crate) fn interrupts(&self, irq: u32) -> u64 {
        let counts = fs::read_to_string(self.root.join(format!("sys/kernel/irq/{irq}/per_cpu_count"))).unwrap_or_default();
        counts.trim().split(',').filter_map(|count| count.parse::<u64>().ok()).sum()
    }

    /// Room for every interrupt number, with a margin for devices that appear while it runs.
    pub(crate) fn irq_numbers(&self) -> u32 {
        let all = numbered(&self.root.join("sys/kernel/irq"));
        all.last().copied().unwrap_or(0).saturating_add(257)
    }
}

/// `nvme0c1n2` is a path of `nvme0n2`.
fn is_nvme_path_of(path: &str, namespace: &str) -> bool {
    let split = |name: &str| -> Option<(String, String)> {
        let (subsystem, rest) = name.strip_prefix("nvme")?.split_once(['c', 'n'])?;
        Some((subsystem.to_owned(), rest.rsplit('n').next()?.to_owned()))
    };
    path.contains('c') && !namespace.contains('c') && split(path).is_some() && split(path) == split(namespace)
}

/// The MSI lines of the nearest ancestor that has some.
fn own_lines(disk: &Path) -> Vec<u32> {
    let Ok(device) = fs::canonicalize(disk.join("device")) else { return Vec::new() };
    device.ancestors().map(|dir| numbered(&dir.join("msi_irqs"))).find(|lines| !lines.is_empty()).unwrap_or_default()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir).into_iter().flatten().filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn numbered(dir: &Path) -> Vec<u32> {
    let mut numbers: Vec<u32> = names(dir).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.len() {
        0 => "none".into(),
        1..=12 => names.join(", "),
        n => format!("{} and {} more", names.get(..12).unwrap_or_default().join(", "), n - 12),
    }
}

#[cfg(test)]
mod tests;
