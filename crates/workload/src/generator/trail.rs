//! What a job notes down of its I/Os: `write_bw_log` and its kin, and `write_iolog`.

use super::Io;
use crate::job::{Job, Logs};
use crate::stats::ddir;
use units::{Nanos, Op};

/// Lines that are kept of each; what follows is counted.
const MOST: usize = 16 << 20;

/// Figures of one I/O, or of those of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogLine {
    /// When it completed, or the stretch ended, from the start of the job.
    pub at: Nanos,
    /// How long the stretch was; of one I/O, how long the device took.
    pub span: Nanos,
    /// Reads, writes or trims, as fio numbers them: 0, 1, 2.
    pub direction: u8,
    /// I/Os.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Mean latencies: of submission, of completion, of both together.
    pub mean: [Nanos; 3],
}

/// One I/O of a list: [`crate::Iolog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLine {
    /// From the start of the job.
    pub at: Nanos,
    /// What it was. A Flush has the offset of the I/O before it, as in fio.
    pub io: Io,
    /// A Flush of `fdatasync`.
    pub data_sync: bool,
}

/// What a job noted down.
#[derive(Debug, Default)]
pub struct Trail {
    logs: bool,
    list: bool,
    average: Nanos,
    began: Nanos,
    window_end: Nanos,
    /// Of the stretch under way, for each direction: `mean` is a sum yet.
    sums: [LogLine; 3],
    /// The samples in their order.
    pub lines: Vec<LogLine>,
    /// The I/Os in their order.
    pub ios: Vec<ListLine>,
    /// Lines that found no room.
    pub lost: u64,
}

impl Trail {
    pub(super) fn new(job: &Job) -> Option<Trail> {
        let Logs { average, .. } = job.logs;
        let (logs, list) = (job.logs.any(), job.write_iolog.is_some());
        (logs || list).then(|| Trail { logs, list, average, ..Trail::default() })
    }

    pub(super) fn begin(&mut self, now: Nanos) {
        (self.began, self.window_end) = (now, now + self.average);
    }

    /// An I/O is issued.
    pub(super) fn issued(&mut self, line: ListLine) {
        if !self.list {
        } else if self.ios.len() < MOST {
            self.ios.push(ListLine { at: line.at - self.began, ..line });
        } else {
            self.lost += 1;
        }
    }

    /// An I/O of `bytes` bytes that was posted, announced and found at these instants.
    pub(super) fn completed(&mut self, op: Op, bytes: u32, [posted, announced, found]: [Nanos; 3]) {
        let direction = ddir(op);
        if !self.logs || op == Op::Flush {
            return;
        }
        let spans = [announced - posted, found - announced, found - posted];
        if self.average == Nanos::ZERO {
            let (at, bytes) = (found - self.began, u64::from(bytes));
            return self.keep(LogLine { at, span: spans[1], direction: direction as u8, ios: 1, bytes, mean: spans });
        }
        self.until(found);
        let sum = &mut self.sums[direction];
        sum.ios += 1;
        sum.bytes += u64::from(bytes);
        sum.mean.iter_mut().zip(spans).for_each(|(sum, span)| *sum += span);
    }

    /// Ends the stretches that are over at `now`.
    fn until(&mut self, now: Nanos) {
        if now < self.window_end {
            return;
        }
        self.close(self.window_end);
        // Stretches without any I/O have no line.
        let over = (now - self.window_end).0 / self.average.0.max(1) + 1;
        self.window_end += Nanos(self.average.0.saturating_mul(over));
    }

    /// The job has ended: so has the last stretch.
    pub(super) fn end(&mut self, now: Nanos) {
        if self.average > Nanos::ZERO {
            // Whole stretches first: the last I/O may have come long before the end.
            self.until(now);
            self.close(now);
        }
    }

    fn close(&mut self, now: Nanos) {
        for (direction, sum) in std::mem::take(&mut self.sums).into_iter().enumerate().filter(|(_, sum)| sum.ios > 0) {
            let mean = sum.mean.map(|span| Nanos(span.0 / sum.ios));
            let span = self.average - (self.window_end - now);
            self.keep(LogLine { at: now - self.began, span, direction: direction as u8, mean, ..sum });
        }
    }

    fn keep(&mut self, line: LogLine) {
        if self.lines.len() < MOST {
            self.lines.push(line);
        } else {
            self.lost += 1;
        }
    }
}
