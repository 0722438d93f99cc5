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

impl super::Job {
    /// The job's I/Os are those of `list` from now on.
    pub(crate) fn replays(&mut self, list: Iolog) {
        let ops = |wanted: fn(units::Op) -> bool| list.steps.iter().any(|step| matches!(step, IologStep::Io { op, .. } if wanted(*op)));
        let (reads, writes, trims) =
            (ops(|op| op == units::Op::Read), ops(|op| op == units::Op::Write), ops(|op| op == units::Op::Deallocate));
        let longest = |of: units::Op| {
            let len = |step: &IologStep| if let IologStep::Io { op, len, .. } = step { (*op == of).then_some(*len) } else { None };
            list.steps.iter().filter_map(len).max()
        };
        self.pattern = super::Pattern {
            direction: match (reads, writes, trims) {
                (true, true, _) | (true, _, true) => super::Direction::Mixed,
                (_, true, true) => super::Direction::TrimWrite,
                (_, true, false) => super::Direction::Write,
                (_, false, true) => super::Direction::Trim,
                _ => super::Direction::Read,
            },
            random: false,
            step: 0,
        };
        for op in [units::Op::Read, units::Op::Write] {
            if let Some(bytes) = longest(op) {
                *self.block.get_mut(op) = super::BlockSizes::fixed(bytes.max(1));
            }
        }
        self.verify = None;
        self.iolog = Some(Box::new(list));
    }
}
