//! *What* I/O to do, pure: fio job files, the operations of each job thread, pacing, verification, latencies, results.
//!
//! - [`fio`] reads job files into [`Job`]s, and says what is wrong with them;
//! - [`plan`] turns jobs into threads, groups, targets and CPUs;
//! - [`Generator`] says what a job thread does next, and measures it;
//! - [`report`] prints what came of it, as fio does.
//!
//! No clock, no thread, no file: time and files come in.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod fio;
mod generator;
mod job;
pub mod plan;
pub mod report;
mod stats;

pub use generator::{BadBlock, ErrorCode, Failure, Generator, Io, ListLine, LogLine, Misfit, Next, Seat, Target, Trail};
pub use job::{
    Amount, BlockSizes, DEFAULT_PERCENTILES, Direction, Distribution, Engine, FillPattern, Iolog, IologStep, Job, Logs, Measure, Pattern,
    PerOp, RandomGenerator, Rate, RateProcess, Stretch, Think, Unified, Verify, VerifyKind,
};
pub use stats::{Bands, Histogram, Latency, Moments, OpStats, Stats};
