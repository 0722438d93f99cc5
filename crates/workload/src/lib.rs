//! fio's workloads without I/O: job files, the I/Os of each job thread, rates, verification,
//! statistics and reports. The crate has no clock, thread or file; the caller passes in times and
//! the contents of files, so `reap run` and the simulator share it.
//!
//! - [`fio`] parses job files into [`Job`]s;
//! - [`plan`] expands jobs into threads with groups, targets (devices and files) and CPUs;
//! - [`Generator`] decides which I/O a job thread issues next, and keeps its statistics;
//! - [`report`] prints results as fio does.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod fio;
mod generator;
mod job;
pub mod plan;
pub mod report;
mod stats;

pub use generator::{
    BadBlock, ErrorCode, Generator, Io, IoFailure, IologEntry, JobError, LogBuffer, LogSample,
    Next, TargetSize, ThreadId,
};
pub use job::{
    Amount, BlockSizes, DEFAULT_PERCENTILES, Direction, Distribution, Engine, FillPattern, Iolog,
    IologStep, Job, Logs, Measure, Pattern, PerOp, RandomGenerator, Rate, RatePhase, RateProcess,
    Think, Unified, Verify, VerifyKind,
};
pub use stats::{Bands, Histogram, Latency, Moments, OpStats, Stats};
