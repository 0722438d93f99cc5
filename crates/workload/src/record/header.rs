//! What a recording says about itself: the header before the submissions, the end after them. JSON, to be read by eye.

use serde::{Deserialize, Serialize};

/// What was recorded. Unknown fields of later minor changes are passed over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Name and version of the program that wrote it.
    pub program: String,
    /// When the recording began.
    pub unix_ms: u64,
    /// The completion mode.
    pub mode: String,
    /// Processor, kernel, who ran where.
    pub machine: String,
    /// CPUs that the job threads had.
    #[serde(default)]
    pub cpus: usize,
    /// The clock of every instant and span, in nanoseconds.
    pub clock: String,
    /// One for each target of the jobs.
    pub devices: Vec<DeviceHead>,
    /// One for each job thread.
    pub threads: Vec<ThreadHead>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceHead {
    /// The URI that it was opened with.
    pub uri: String,
    /// Bytes of its namespace.
    pub bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Hardware queues that the threads shared.
    pub hardware_queues: usize,
    /// Commands in flight on each.
    pub tags: u32,
    /// The controller itself stamped service times; otherwise there are upper bounds.
    pub stamped: bool,
    /// The timing of an embedded controller; none: not known.
    pub timing: Option<Timing>,
}

/// A service-time profile, as far as a replay needs more of it than each command's time. Zero: no limit, none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Name of the profile.
    pub profile: String,
    /// Commands served at once.
    pub channels: u32,
    /// Bytes per second over the link to the host.
    pub bytes_per_second: u64,
    /// Commands per second.
    pub iops: u64,
    /// Commands that may start at once after a pause.
    pub iops_burst: u32,
    /// Whether data were moved.
    pub moves_data: bool,
    /// Interrupts held back in secret.
    pub hidden: Coalescing,
    /// What the profile's dice said of reads.
    pub read: ServiceTimes,
    /// Of writes.
    pub write: ServiceTimes,
    /// Of flushes.
    pub flush: ServiceTimes,
}

/// The distribution that service times were drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// Time that every command takes.
    pub base_ns: u64,
    /// Mean of the exponentially distributed time on top.
    pub jitter_ns: u64,
    /// How many of a million take `tail_ns` longer.
    pub tail_ppm: u32,
    /// The extra time of those.
    pub tail_ns: u64,
    /// They come in runs of so many.
    pub tail_run: u32,
}

/// Interrupt coalescing that no feature shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalescing {
    /// Entries per vector before a message.
    pub entries: u32,
    /// Longest wait for them.
    pub time_ns: u64,
    /// Entries announced per second and vector.
    pub announced_per_second: u64,
    /// Depth of that bucket.
    pub announced_burst: u32,
    /// Messages per second of the whole controller.
    pub messages_per_second: u64,
}

/// A job thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadHead {
    /// Name of its job.
    pub job: String,
    /// The job's options as written.
    pub options: Vec<(String, String)>,
    /// It started when all threads of lower stages were done.
    pub stage: u32,
    /// Which of the header's CPUs it ran on.
    #[serde(default)]
    pub cpu: u32,
    /// The devices it used, as indices into the header's.
    pub targets: Vec<usize>,
    /// I/Os in flight at most.
    pub depth: u32,
    /// I/Os per doorbell at most; 0: as the batches were recorded.
    pub batch: u32,
    /// The longest request in bytes.
    pub longest: u32,
}

/// What follows the submissions: that they are all there, and what the run itself measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Submissions of each thread.
    pub submissions: Vec<u64>,
    /// The recording stopped before the run did, because it could not be written as fast.
    pub stopped_early: bool,
    /// Figures of the run that was recorded, recording included; none if nothing was measured.
    pub run: Option<Figures>,
}

/// What a real run came to, over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// I/Os that ended.
    pub ios: u64,
    /// How long was measured.
    pub wall_ns: u64,
    /// CPU time of the job threads per I/O.
    pub cpu_ns_per_io: f64,
    /// What sending messages cost the device, per I/O.
    pub notify_ns_per_io: f64,
    /// Messages.
    pub messages: f64,
    /// Wake-ups by a message.
    pub wakeups: u64,
    /// Submission doorbells.
    pub sq_doorbells: f64,
    /// Latency until the completion was found, all operations: from the decision to issue if the job has
    /// `lat_percentiles`, else from the doorbell.
    pub p50_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
}
