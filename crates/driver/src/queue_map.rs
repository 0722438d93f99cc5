//! Maps software queues (one per submitting thread) to hardware queues (queue pairs of the
//! controller), as blk-mq does.

use std::ops::Range;

/// The hardware queue of each software queue. One to one while there are enough hardware queues;
/// otherwise neighbours share one, and the groups differ by at most one in size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueMap {
    software: usize,
    hardware: usize,
}

/// The map is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// No software queue, or more than 65,535.
    #[error("{0} software queues: there must be 1 to 65535")]
    Software(usize),
    /// No hardware queue, or more than the 65,535 that NVMe can number (Base 3.3.1, queue 0 is the
    /// admin queue).
    #[error("{0} hardware queues: there must be 1 to 65535")]
    Hardware(usize),
}

impl QueueMap {
    /// Spreads `software` queues evenly over at most `hardware` ones.
    pub fn new(software: usize, hardware: usize) -> Result<QueueMap, MapError> {
        let valid = 1..=usize::from(u16::MAX);
        if !valid.contains(&software) {
            return Err(MapError::Software(software));
        }
        if !valid.contains(&hardware) {
            return Err(MapError::Hardware(hardware));
        }
        // Hardware queues in excess of the software queues would stay idle.
        Ok(QueueMap { software, hardware: hardware.min(software) })
    }

    /// Number of software queues.
    pub fn software_queues(&self) -> usize {
        self.software
    }

    /// Number of hardware queues in use: no more than software queues.
    pub fn hardware_queues(&self) -> usize {
        self.hardware
    }

    /// The hardware queue of a software queue. `software` at or above
    /// [`QueueMap::software_queues`] wraps around.
    pub fn hardware_of(&self, software: usize) -> usize {
        // Multiply before dividing, or neighbours would not spread evenly. No overflow: both are 16
        // bits.
        software % self.software * self.hardware / self.software
    }

    /// The software queues of a hardware queue: neighbours, and at least one. Empty past the last
    /// hardware queue.
    pub fn software_of(&self, hardware: usize) -> Range<usize> {
        if hardware >= self.hardware {
            return self.software..self.software;
        }
        // The inverse of `hardware_of`, hence rounding up.
        let first = |hardware: usize| (hardware * self.software).div_ceil(self.hardware);
        first(hardware)..first(hardware + 1)
    }

    /// Whether several software queues share this hardware queue, so that one thread may reap
    /// another's completions.
    pub fn is_shared(&self, hardware: usize) -> bool {
        self.software_of(hardware).len() > 1
    }
}

#[cfg(test)]
mod tests;
