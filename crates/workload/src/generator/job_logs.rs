//! Samples and I/Os that a job thread records for its log files: `write_bw_log`, `write_lat_log`,
//! `write_iops_log` and `write_iolog`. `report::logs` writes the files.

use super::Io;
use crate::job::{Job, Logs};
use crate::stats::ddir;
use units::{Nanos, Op};

/// Maximum number of samples, and of I/Os, that are kept; further ones are counted as dropped.
const MAX_KEPT: usize = 16 << 20;

/// One I/O, or the average over a window of `log_avg_msec`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogSample {
    /// When the I/O completed or the window ended, from the start of the job.
    pub at: Nanos,
    /// Length of the window; for a sample of one I/O, its completion latency.
    pub span: Nanos,
    /// Reads, writes or trims, as fio numbers them: 0, 1, 2.
    pub direction: u8,
    /// Number of I/Os.
    pub ios: u64,
    /// Bytes of these I/Os.
    pub bytes: u64,
    /// Mean latencies: slat, clat, lat.
    pub mean: [Nanos; 3],
}

/// One I/O of `write_iolog`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IologEntry {
    /// When the I/O was issued, from the start of the job.
    pub at: Nanos,
    /// The I/O. A Flush has the offset of the I/O before it, as in fio.
    pub io: Io,
    /// The Flush comes from `fdatasync`, not from `fsync`.
    pub data_sync: bool,
}

/// What a job thread recorded.
#[derive(Debug, Default)]
pub struct LogBuffer {
    /// Samples are recorded.
    logs: bool,
    /// I/Os are recorded (`write_iolog`).
    list: bool,
    /// `log_avg_msec`; 0: each I/O is a sample.
    average: Nanos,
    began: Nanos,
    window_end: Nanos,
    /// Sums of the current window by direction; `mean` holds sums until the window is closed.
    sums: [LogSample; 3],
    /// The samples, in order.
    pub samples: Vec<LogSample>,
    /// The I/Os, in order.
    pub ios: Vec<IologEntry>,
    /// Samples and I/Os that were dropped, as too many were recorded.
    pub dropped: u64,
}

impl LogBuffer {
    pub(super) fn new(job: &Job) -> Option<LogBuffer> {
        let Logs { average, .. } = job.logs;
        let (logs, list) = (job.logs.any(), job.write_iolog.is_some());
        (logs || list).then(|| LogBuffer { logs, list, average, ..LogBuffer::default() })
    }

    pub(super) fn begin(&mut self, now: Nanos) {
        (self.began, self.window_end) = (now, now + self.average);
    }

    /// Records an issued I/O.
    pub(super) fn issued(&mut self, line: IologEntry) {
        if !self.list {
        } else if self.ios.len() < MAX_KEPT {
            self.ios.push(IologEntry { at: line.at - self.began, ..line });
        } else {
            self.dropped += 1;
        }
    }

    /// Records a completed I/O by the times when it was queued, committed and reaped.
    pub(super) fn completed(
        &mut self,
        op: Op,
        bytes: u32,
        [queued, committed, reaped]: [Nanos; 3],
    ) {
        let direction = ddir(op);
        // fio's logs have reads, writes and trims only.
        if !self.logs || op == Op::Flush {
            return;
        }
        let spans = [committed - queued, reaped - committed, reaped - queued];
        // Without log_avg_msec each I/O is a sample.
        if self.average == Nanos::ZERO {
            let (at, bytes) = (reaped - self.began, u64::from(bytes));
            return self.keep(LogSample {
                at,
                span: spans[1],
                direction: direction as u8,
                ios: 1,
                bytes,
                mean: spans,
            });
        }
        self.close_windows(reaped);
        let sum = &mut self.sums[direction];
        sum.ios += 1;
        sum.bytes += u64::from(bytes);
        sum.mean.iter_mut().zip(spans).for_each(|(sum, span)| *sum += span);
    }

    /// Closes the windows that are over at `now`.
    fn close_windows(&mut self, now: Nanos) {
        if now < self.window_end {
            return;
        }
        self.close(self.window_end);
        // Windows without I/O have no sample.
        let over = (now - self.window_end).0 / self.average.0.max(1) + 1;
        self.window_end += Nanos(self.average.0.saturating_mul(over));
    }

    /// Closes the last window when the job ends.
    pub(super) fn end(&mut self, now: Nanos) {
        if self.average > Nanos::ZERO {
            // The last I/O may have completed several windows ago.
            self.close_windows(now);
            self.close(now);
        }
    }

    /// Adds the samples of the window that ends at `now`.
    fn close(&mut self, now: Nanos) {
        for (direction, sum) in
            std::mem::take(&mut self.sums).into_iter().enumerate().filter(|(_, sum)| sum.ios > 0)
        {
            // The last window may be shorter than the others.
            let mean = sum.mean.map(|span| Nanos(span.0 / sum.ios));
            let span = self.average - (self.window_end - now);
            self.keep(LogSample {
                at: now - self.began,
                span,
                direction: direction as u8,
                mean,
                ..sum
            });
        }
    }

    /// Stores a sample, unless the limit is reached.
    fn keep(&mut self, line: LogSample) {
        if self.samples.len() < MAX_KEPT {
            self.samples.push(line);
        } else {
            self.dropped += 1;
        }
    }
}
