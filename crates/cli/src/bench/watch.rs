//! What a job thread does over time: its counts, every so often.

use reap::{Counters, Nanos};
use workload::{Generator, Histogram};

/// Everything counted since the thread began, at an instant.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// From the thread's beginning.
    pub at: Nanos,
    /// I/Os that ended.
    pub ios: u64,
    /// CPU time of the thread.
    pub cpu: Nanos,
    /// What its queues counted.
    pub host: Counters,
    /// Latencies since the snapshot before: from the intended start, or from the decision to issue.
    pub latency: Histogram,
}

/// Takes snapshots.
pub struct Watch {
    every: Nanos,
    began: Nanos,
    cpu: Nanos,
    /// All latencies by the last snapshot.
    latency: Histogram,
    taken: Vec<Snapshot>,
}

impl Watch {
    /// The calling thread begins, and looks `every` so often.
    pub fn new(every: Nanos) -> Watch {
        Watch { every, began: hw::now(), cpu: hw::thread_cpu(), latency: Histogram::default(), taken: Vec::new() }
    }

    /// Takes a snapshot; `host` is what the queues counted since the one before. Returns when the next is due: by the clock, whenever
    /// this one was taken, so that those of many runs fall on the same instants.
    pub fn look(&mut self, now: Nanos, generator: &Generator, host: Counters) -> Nanos {
        let stats = generator.stats();
        let mut latency = Histogram::default();
        for op in [&stats.read, &stats.write] {
            if let Some(histogram) = &op.latency().histogram {
                latency.merge(histogram);
            }
        }
        let host = self.taken.last().map_or(host, |last| last.host.and(host));
        self.taken.push(Snapshot {
            at: now - self.began,
            ios: stats.read.ios + stats.write.ios,
            cpu: hw::thread_cpu() - self.cpu,
            host,
            latency: latency.since(&self.latency),
        });
        self.latency = latency;
        let every = self.every.0.max(1);
        self.began + Nanos(every * ((now - self.began).0 / every + 1))
    }

    /// The snapshots, in order.
    pub fn into_snapshots(self) -> Vec<Snapshot> {
        self.taken
    }
}
