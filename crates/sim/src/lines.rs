//! The cost of accessing cache lines that several CPUs use, in a simplified MESI protocol: it
//! depends on which CPUs hold a copy.
//!
//! ```text
//!   access   line                                cost
//!   any      in the CPU's own cache              line_own
//!   any      last written by CPU w               line_node or line_remote, by w's NUMA node
//!   any      not written yet                     line_memory
//!   write    with copies elsewhere               the most expensive transfer (invalidation)
//! ```

use units::Nanos;

use crate::Machine;

/// Cache lines by number. A write invalidates all other CPUs' copies; a read adds a copy.
#[derive(Clone, Debug)]
pub struct Lines {
    own: Nanos,
    node: Nanos,
    remote: Nanos,
    memory: Nanos,
    /// NUMA node, by CPU.
    nodes: Vec<u16>,
    lines: Vec<CacheLine>,
}

/// One line.
#[derive(Clone, Copy, Debug, Default)]
struct CacheLine {
    /// The CPU that wrote the line last. `None`: not written yet. Copies by reads alone make no
    /// access of another CPU cheaper.
    writer: Option<u16>,
    /// CPUs with a copy.
    copies: [u64; Machine::MAX_CPUS / 64],
}

impl Lines {
    /// Creates `lines` lines that no CPU has written yet.
    pub fn new(machine: &Machine, lines: usize) -> Lines {
        let memory = machine.costs.memory;
        Lines {
            own: memory.line_own,
            node: memory.line_node,
            remote: memory.line_remote,
            memory: memory.line_memory,
            nodes: (0..machine.cpus).map(|cpu| machine.node_of(cpu) as u16).collect(),
            lines: vec![CacheLine::default(); lines],
        }
    }

    /// Adds lines. Returns the number of the first new line.
    pub(crate) fn grow(&mut self, lines: usize) -> usize {
        let first = self.lines.len();
        self.lines.resize(first + lines, CacheLine::default());
        first
    }

    /// Reads a line on `cpu`. Returns the cost in nanoseconds.
    pub fn read(&mut self, cpu: usize, line: usize) -> Nanos {
        let price = self.price(cpu, line);
        if let Some(line) = self.lines.get_mut(line) {
            line.copies[cpu / 64 % line.copies.len()] |= 1 << (cpu % 64);
        }
        price
    }

    /// Writes a line on `cpu`, atomically or not. Returns the cost in nanoseconds.
    pub fn write(&mut self, cpu: usize, line: usize) -> Nanos {
        let shared = self.lines.get(line).is_some_and(|line| line.is_in_another_cache(cpu));
        // The write waits until every copy is invalidated.
        let price = if shared {
            self.price(cpu, line).max(self.farthest(cpu, line))
        } else {
            self.price(cpu, line)
        };
        if let Some(line) = self.lines.get_mut(line) {
            *line = CacheLine { writer: Some(cpu as u16), ..CacheLine::default() };
            line.copies[cpu / 64 % line.copies.len()] |= 1 << (cpu % 64);
        }
        price
    }

    /// The cost of a transfer between two CPUs' caches, in nanoseconds.
    pub fn between(&self, cpu: usize, other: usize) -> Nanos {
        match (self.nodes.get(cpu), self.nodes.get(other)) {
            _ if cpu == other => self.own,
            (Some(a), Some(b)) if a == b => self.node,
            _ => self.remote,
        }
    }

    /// Whether two CPUs are on different NUMA nodes, so that they share no cache.
    pub(crate) fn are_apart(&self, cpu: usize, other: usize) -> bool {
        self.nodes.get(cpu) != self.nodes.get(other)
    }

    fn price(&self, cpu: usize, line: usize) -> Nanos {
        match self.lines.get(line) {
            Some(line) if line.has(cpu) => self.own,
            Some(&CacheLine { writer: Some(writer), .. }) => self.between(cpu, writer.into()),
            _ => self.memory,
        }
    }

    /// The cost of the transfer from the farthest CPU with a copy.
    fn farthest(&self, cpu: usize, line: usize) -> Nanos {
        let Some(line) = self.lines.get(line) else { return self.own };
        let others = (0..self.nodes.len()).filter(|&other| other != cpu && line.has(other));
        others.map(|other| self.between(cpu, other)).fold(self.own, Nanos::max)
    }
}

impl CacheLine {
    fn has(&self, cpu: usize) -> bool {
        self.copies.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Whether another CPU has a copy.
    fn is_in_another_cache(&self, cpu: usize) -> bool {
        let own = |word: usize| if word == cpu / 64 { 1u64 << (cpu % 64) } else { 0 };
        self.copies.iter().enumerate().any(|(word, copies)| copies & !own(word) != 0)
    }
}

#[cfg(test)]
mod tests;
