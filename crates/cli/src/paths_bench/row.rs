//! What is told of a cell.

use serde::Serialize;

/// A cell and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Path policy.
    pub policy: &'static str,
    /// Paths to choose from.
    pub paths: u8,
    /// Hardware queues of each path.
    pub queues: u16,
    /// Threads that submit at the same time, each in a queue and on a CPU of its own.
    pub threads: u8,
    /// Nanoseconds for one choose + start + end: median over rounds.
    pub ns: f64,
    /// The least and the most of any round.
    pub ns_min: f64,
    pub ns_max: f64,
    /// Instructions of the same, on one thread; `None`: not counted.
    pub instructions: Option<f64>,
}
