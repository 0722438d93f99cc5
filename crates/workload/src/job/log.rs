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
    /// `log_max_value`: of such a time the largest value, not the mean; `log_window_value=both`: first the mean, then that.
    pub value: LogValue,
    /// `log_offset`: each line ends with the I/O's offset.
    pub offset: bool,
    /// `log_prio`: each line has the I/O's priority, which is 0 in Reap.
    pub priority: bool,
    /// `log_issue_time`: each line ends with the time of issue, in nanoseconds.
    pub issue_time: bool,
    /// `per_job_logs`: a file for each thread; else threads of one name share one.
    pub shared: bool,
}

/// What of a stretch of time a log keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogValue {
    /// The mean.
    #[default]
    Mean,
    /// The largest.
    Max,
    /// Both.
    Both,
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
