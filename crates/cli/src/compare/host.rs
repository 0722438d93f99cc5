//! What disturbs a host that drives devices outside this process, and what it costs beside its job threads.
//!
//! No device thread tells of its gaps here. What disturbs blocks is others on the job threads' CPUs: other processes, which the
//! scheduler's run delay tells of, and the hypervisor, which `steal` tells of. And not all that the host does is done by job threads:
//! workers of the kernel's (io-wq, SQPOLL) are threads of this process as well.

use anyhow::Result;
use hw::{RunDelay, ThreadCpuClock};
use reap::Nanos;

/// One job thread, as others see it.
pub struct Clocks {
    cpu: ThreadCpuClock,
    /// Where the kernel keeps scheduler statistics.
    delay: Option<RunDelay>,
}

impl Clocks {
    /// The calling thread's.
    ///
    /// # Errors
    /// The system has no clock of it.
    pub fn of_current() -> Result<Clocks> {
        Ok(Clocks { cpu: ThreadCpuClock::of_current()?, delay: RunDelay::of_current().ok() })
    }
}

/// The job threads, and the CPUs that they are pinned to.
pub struct Host {
    threads: Vec<Clocks>,
    cpus: Vec<usize>,
}

/// What had been counted at an instant.
pub struct Reading {
    away: Nanos,
    /// CPU time of this process without job threads and the calling thread.
    beside: Nanos,
}

impl Host {
    /// Of these threads. `cpus`: theirs, each once.
    pub fn new(threads: Vec<Clocks>, cpus: Vec<usize>) -> Host {
        Host { threads, cpus }
    }

    /// Now. To be asked by the thread that does the asking between blocks, while no job thread runs.
    pub fn read(&self) -> Reading {
        let delays = self.threads.iter().filter_map(|thread| Some(thread.delay.as_ref()?.read().0));
        let jobs: u64 = self.threads.iter().filter_map(|thread| Some(thread.cpu.read()?.0)).sum();
        let away = Nanos(delays.sum::<u64>() + hw::stolen_by_hypervisor(&self.cpus).0);
        let process = hw::process_cpu().0;
        Reading { away, beside: Nanos(process.saturating_sub(jobs + hw::thread_cpu().0)) }
    }
}

impl Reading {
    /// How long, up to `later`, job threads waited for a CPU, and the hypervisor had theirs.
    pub fn away(&self, later: &Reading) -> Nanos {
        Nanos(later.away.0.saturating_sub(self.away.0))
    }

    /// CPU time of the process's other threads up to `later`.
    pub fn beside(&self, later: &Reading) -> Nanos {
        Nanos(later.beside.0.saturating_sub(self.beside.0))
    }
}

#[cfg(test)]
mod tests;
