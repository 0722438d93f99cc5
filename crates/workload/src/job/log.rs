//! The logs that a job writes, and the one that it replays.

use units::Nanos;

/// `write_bw_log`, `write_lat_log`, `write_iops_log` and `log_…`: fio's lists of samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// `write_bw_log`: the beginning of the file's name, if there is one.
    pub bandwidth: Option<String>,
    /// `write_lat_log`.
    pub latency: Option<String>,
    /// `write_iops_log`.
    pub iops: Option<String>,
    /// `log_avg_msec`: samples are averages over so long; 0: each I/O is one.
    pub average: Nanos,
}

impl Logs {
    /// Whether any is written.
    pub fn any(&self) -> bool {
        self.bandwidth.is_some() || self.latency.is_some() || self.iops.is_some()
    }
}

/// `read_iolog` and its kin: the I/Os of a list, instead of `rw`.
#[derive(Clone, Debug, PartialEq)]
pub struct Iolog {
    /// The file's name, for messages.
    pub name: String,
    /// The I/Os in order.
    pub steps: Vec<IologStep>,
    /// The names of the list's files, in the order in which they are added.
    pub files: Vec<String>,
}

/// One line of such a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IologStep {
    /// An I/O.
    Io {
        /// What it does.
        op: units::Op,
        /// Which of the list's files it goes to.
        file: u16,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// When it was issued, from the start of the list; `None`: the list does not say.
        at: Option<Nanos>,
    },
    /// A pause.
    Wait(Nanos),
}
