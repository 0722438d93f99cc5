//! The policies by name.

use std::fmt;
use std::str::FromStr;

use super::count::NO_ROW;
use super::place::{Kind, Place};
use super::queue_depth::Counting;

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The path nearest to the CPU's memory node.
    Numa,
    /// One after the other.
    RoundRobin,
    /// The path with the fewest requests in flight, counted in one of five places.
    QueueDepth(Counting),
    /// The path on which this request is expected to complete first.
    Latency,
}

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no path policy `{name}`; {hint}")]
pub struct PolicyError {
    /// As given.
    pub name: String,
    /// What was probably meant, or what there is.
    pub hint: String,
}

impl Policy {
    /// All of them, by the numbers that `Policy::from_bits` reads.
    pub const ALL: [Policy; 8] = [
        Policy::Numa,
        Policy::RoundRobin,
        Policy::QueueDepth(Counting::Sum),
        Policy::QueueDepth(Counting::Controller),
        Policy::QueueDepth(Counting::Namespace),
        Policy::QueueDepth(Counting::Queue),
        Policy::QueueDepth(Counting::Cpu),
        Policy::Latency,
    ];

    /// Its name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Numa => "numa",
            Policy::RoundRobin => "round-robin",
            Policy::QueueDepth(Counting::Sum) => "queue-depth:sum",
            Policy::QueueDepth(Counting::Controller) => "queue-depth:controller",
            Policy::QueueDepth(Counting::Namespace) => "queue-depth:namespace",
            Policy::QueueDepth(Counting::Queue) => "queue-depth:queue",
            Policy::QueueDepth(Counting::Cpu) => "queue-depth:cpu",
            Policy::Latency => "latency",
        }
    }

    /// Whether it counts requests at all.
    #[inline]
    pub(super) fn counts(self) -> bool {
        !matches!(self, Policy::Numa | Policy::RoundRobin)
    }

    /// What it counts requests by; where it does not count, anything.
    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self {
            Policy::QueueDepth(counting) => counting.kind(),
            Policy::Latency | Policy::Numa | Policy::RoundRobin => Kind::Loads,
        }
    }

    /// The row in which it counts requests from there; [`NO_ROW`] if it does not count.
    #[inline]
    pub(super) fn row(self, place: &Place) -> u32 {
        if self.counts() { place.row(self.kind()) } else { NO_ROW }
    }

    /// The policy of a number from `u8::from`; of any other, the first.
    #[inline]
    pub(super) fn from_bits(bits: u8) -> Policy {
        Policy::ALL.get(usize::from(bits)).copied().unwrap_or(Policy::Numa)
    }
}

impl From<Policy> for u8 {
    fn from(policy: Policy) -> u8 {
        Policy::ALL.iter().position(|&p| p == policy).unwrap_or(0) as u8
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// `queue-depth` alone is the kernel's: a count for each controller.
    fn from_str(name: &str) -> Result<Policy, PolicyError> {
        if name == "queue-depth" {
            return Ok(Policy::QueueDepth(Counting::Controller));
        }
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let hint = match units::nearest(name, Policy::ALL.map(Policy::name)) {
                Some(policy) => format!("did you mean `{policy}`?"),
                None => format!("known are {}", Policy::ALL.map(Policy::name).join(", ")),
            };
            PolicyError { name: name.to_owned(), hint }
        })
    }
}
