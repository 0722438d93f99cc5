//! Memory nodes: which CPU is on which, and how far they are from each other, as the kernel tells.

use std::fs;
use std::path::Path;

use crate::cpu::cpu_list;

/// Where the kernel tells.
const SYSFS: &str = "/sys/devices/system/node";

/// The machine's memory nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The node of each CPU.
    of_cpu: Vec<u16>,
    distances: Vec<Vec<u8>>,
}

impl Nodes {
    /// This machine's. One that does not tell, as a container may not, has one node.
    pub fn here() -> Nodes {
        Nodes::read(Path::new(SYSFS))
    }

    fn read(from: &Path) -> Nodes {
        let mut nodes = Nodes::default();
        let text = |node: u16, file: &str| fs::read_to_string(from.join(format!("node{node}/{file}"))).unwrap_or_default();
        let online = fs::read_to_string(from.join("online")).unwrap_or_default();
        for node in cpu_list(&online).map(|node| node as u16) {
            for cpu in cpu_list(&text(node, "cpulist")) {
                nodes.of_cpu.resize(nodes.of_cpu.len().max(cpu + 1), 0);
                nodes.of_cpu[cpu] = node;
            }
            // Columns are of online nodes only; nodes that are offline have no row either.
            let columns = text(node, "distance").split_whitespace().map(|d| d.parse().unwrap_or(u8::MAX)).collect::<Vec<u8>>();
            let mut row = Vec::new();
            for (other, distance) in cpu_list(&online).zip(columns) {
                row.resize(row.len().max(other + 1), u8::MAX);
                row[other] = distance;
            }
            nodes.distances.resize(nodes.distances.len().max(usize::from(node) + 1), Vec::new());
            nodes.distances[usize::from(node)] = row;
        }
        if nodes.distances.is_empty() {
            nodes.distances.push(vec![10]);
        }
        nodes
    }

    /// How many there are, by the highest number.
    pub fn count(&self) -> usize {
        self.distances.len()
    }

    /// The node of a CPU; 0 of one that nothing is known of.
    #[inline]
    pub fn of(&self, cpu: usize) -> u16 {
        self.of_cpu.get(cpu).copied().unwrap_or(0)
    }

    /// How far `to` is from `from`, in the units of the firmware's table (10: the same node); `None`: one of them is not there.
    pub fn distance(&self, from: u16, to: u16) -> Option<u8> {
        self.distances.get(usize::from(from))?.get(usize::from(to)).copied()
    }
}

#[cfg(test)]
mod tests;
