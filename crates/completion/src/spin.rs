//! What spinning means where others want the CPU.

use std::fmt;
use std::str::FromStr;

use crate::Mode;

/// What a thread that spins for its completions does about other threads that are ready on its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Nothing: the scheduler takes the CPU when the slice is over, or when a thread wakes that has had clearly less. In the kernel host this
    /// is polled I/O that spins until a reschedule is due, and in the user host a poller that never gives way.
    #[default]
    Spins,
    /// It looks once, and gives the CPU to the next one; it stays ready (`sched_yield`).
    Yields,
    /// It is told, and its policy naps for 50 µs.
    Naps,
}

impl Spin {
    /// By name.
    pub const ALL: [(&str, Spin); 3] = [("spins", Spin::Spins), ("yields", Spin::Yields), ("naps", Spin::Naps)];

    /// Whether a policy of this mode is told that others want the CPU. Rules that weigh it are told in any case.
    pub fn tells_wanted(self, mode: Mode) -> bool {
        self == Spin::Naps || !mode.spins()
    }

    /// Whether a thread that spins in this mode gives the CPU to others that are ready.
    pub fn gives_way(self, mode: Mode) -> bool {
        self == Spin::Yields && mode.spins()
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Spin::ALL.iter().find(|(_, spin)| spin == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Spin {
    type Err = String;

    fn from_str(name: &str) -> Result<Spin, String> {
        let names = Spin::ALL.map(|(name, _)| name);
        Spin::ALL.iter().find(|(known, _)| *known == name).map(|(_, spin)| *spin).ok_or_else(|| {
            let near = units::nearest(name, names.iter().copied()).map_or(String::new(), |near| format!("did you mean '{near}'? "));
            format!("there is no way of spinning called `{name}` ({near}known: {})", names.join(", "))
        })
    }
}
