//! Divides the CPUs between job threads and the embedded device's thread, and describes the machine
//! for results. The device's thread gets a CPU of its own if there are two or more: otherwise jobs
//! would measure how that thread is scheduled.

use std::fs;
use std::io;
use std::path::Path;

use ::sim::Costs;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use units::Nanos;

use crate::bench::Counted;

/// The CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPU of the embedded device's thread; `None`: there is only one CPU, or no embedded device.
    pub device: Option<usize>,
    /// CPUs of job threads, preferred ones first; never empty.
    pub job_cpus: Vec<usize>,
    /// The device is not embedded: none of its threads is in this process.
    pub external_device: bool,
    /// Text for [`Machine::describe`] on where job threads run, in place of the list `job_cpus`.
    pub placement_note: Option<String>,
}

impl Machine {
    /// The CPUs that this process may use, divided between job threads and an embedded device.
    pub fn here() -> io::Result<Machine> {
        Ok(Machine::of(hw::allowed_cpus()?))
    }

    /// All CPUs that this process may use are for job threads: there is no embedded device.
    pub fn without_device() -> io::Result<Machine> {
        let cpus = hw::allowed_cpus()?;
        Ok(Machine {
            device: None,
            job_cpus: if cpus.is_empty() { vec![0] } else { cpus },
            external_device: true,
            placement_note: None,
        })
    }

    /// All CPUs, ascending.
    pub fn cpus(&self) -> Vec<usize> {
        self.job_cpus.iter().copied().chain(self.device).collect()
    }

    /// Divides ascending CPUs. With two or more, the last one is for the device.
    fn of(mut cpus: Vec<usize>) -> Machine {
        let device = if cpus.len() > 1 { cpus.pop() } else { None };
        // The kernel did not report the CPUs. Pinning to CPU 0 may fail; the threads then run
        // unpinned.
        if cpus.is_empty() {
            cpus.push(0);
        }
        Machine { device, job_cpus: cpus, external_device: false, placement_note: None }
    }

    /// Leaves only the CPUs `job_cpus` to job threads. An embedded device gets the highest CPU that
    /// is not among them.
    ///
    /// # Errors
    /// This process may not use one of `job_cpus`, or they leave no CPU for the embedded device.
    pub fn only(self, job_cpus: &[usize]) -> Result<Machine> {
        let all = self.cpus();
        if let Some(cpu) = job_cpus.iter().find(|cpu| !all.contains(cpu)) {
            bail!("this process may not use CPU {cpu}; it may use {}", list(&all));
        }
        let device = all.iter().rfind(|cpu| !job_cpus.contains(cpu)).copied();
        ensure!(
            self.external_device || device.is_some() || all.len() == 1,
            "the embedded device needs a CPU of its own; leave one of {} out",
            list(&all)
        );
        Ok(Machine {
            device: device.filter(|_| !self.external_device),
            job_cpus: job_cpus.to_vec(),
            ..self
        })
    }

    /// Moves these CPUs to the front of `job_cpus`, in the order given.
    pub fn prefer(&mut self, cpus: &[usize]) {
        self.job_cpus
            .sort_by_key(|cpu| cpus.iter().position(|first| first == cpu).unwrap_or(usize::MAX));
    }

    /// The CPUs for job threads that are in `cpus_allowed`, as a job has it.
    pub fn allowed_by(&self, cpus_allowed: &[u32]) -> Vec<usize> {
        self.job_cpus
            .iter()
            .copied()
            .filter(|&cpu| cpus_allowed.iter().any(|&allowed| allowed as usize == cpu))
            .collect()
    }

    /// Keeps the calling thread, and unpinned threads that it starts, off the CPU of the embedded
    /// device's thread, which they would preempt.
    pub fn avoid_device_cpu(&self) {
        if let Some(&cpu) = self.job_cpus.first()
            && self.device.is_some()
            && let Err(error) = hw::pin(cpu)
        {
            tracing::warn!(cpu, %error, "the main thread is not pinned, and may preempt the device's thread");
        }
    }

    /// Chooses a CPU for each of several concurrent threads: of the CPUs that the thread may use
    /// (`allowed`; empty: any), the one with the fewest threads so far. CPUs that are not for job
    /// threads are ignored.
    pub fn place(&self, allowed: &[Vec<u32>]) -> Vec<usize> {
        let mut load = vec![0u32; self.job_cpus.len()];
        let place_one = |cpus: &Vec<u32>| {
            let wanted = |at: &usize| cpus.iter().any(|&cpu| cpu as usize == self.job_cpus[*at]);
            let any = !(0..self.job_cpus.len()).any(|at| wanted(&at));
            let at = (0..self.job_cpus.len())
                .filter(|at| any || wanted(at))
                .min_by_key(|&at| load[at])
                .unwrap_or(0);
            load[at] += 1;
            self.job_cpus[at]
        };
        allowed.iter().map(place_one).collect()
    }

    /// Whether threads on these CPUs have to share a CPU with each other or with the device.
    pub fn oversubscribed(&self, cpus: &[usize]) -> bool {
        let mut sorted = cpus.to_vec();
        sorted.sort_unstable();
        self.device.is_none() && !self.external_device
            || sorted.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// One line: processor, kernel, CPUs of threads, load average.
    pub fn describe(&self) -> String {
        let word = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (kernel, info) = (word("/proc/sys/kernel/osrelease"), word("/proc/cpuinfo"));
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|rest| rest.trim_matches([' ', '\t', ':']));
        let load = word("/proc/loadavg");
        let roles = match self.device {
            _ if self.placement_note.is_some() => self.placement_note.clone().unwrap_or_default(),
            Some(device) => {
                format!(
                    "host threads on CPU {}, device thread on CPU {device}",
                    list(&self.job_cpus)
                )
            }
            None if self.external_device => format!("host threads on CPU {}", list(&self.job_cpus)),
            None => "host and device threads share one CPU".to_owned(),
        };
        format!(
            "{} CPUs ({}), Linux {}; {roles}; load average {}",
            self.job_cpus.len() + usize::from(self.device.is_some()),
            model.unwrap_or("unknown processor"),
            kernel.trim(),
            load.split(' ').next().unwrap_or("unknown"),
        )
    }
}

/// Prepares the calling thread for a job: pins it to `cpus`, if any, and sets its timer slack.
pub fn prepare_job_thread(cpus: &[usize]) {
    if !cpus.is_empty()
        && let Err(error) = hw::pin_to(cpus)
    {
        tracing::warn!(?cpus, %error, "a job thread is not pinned");
    }
    fine_timers();
}

/// Sets the timer slack of the calling thread, and of threads that it starts, to 1 ns. Threads that
/// open devices need it as well, because opening measures how late timers are.
pub fn fine_timers() {
    if let Err(error) = hw::set_timer_slack(units::Nanos(1)) {
        tracing::warn!(%error, "timers may be 50 µs late");
    }
}

/// Whether /proc and /sys say that this is a virtual machine. `root`: the directory in place of /.
pub fn is_virtual(root: &Path) -> bool {
    let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split(' ').any(|flag| flag == "hypervisor")
        || ["sys/hypervisor/type", "proc/device-tree/hypervisor"]
            .iter()
            .any(|path| root.join(path).exists())
}

/// CPU time that a wake-up costs in addition to what the woken thread's CPU clock counts, in
/// nanoseconds: interrupt handling and context switches.
#[derive(Clone, Debug)]
pub struct WakeUp {
    /// A wake-up by a notification.
    pub notified: f64,
    /// A wake-up by a timer.
    pub timer: f64,
    /// Where the figures are from.
    pub source: String,
}

impl WakeUp {
    /// From `costs`, as measured by `reap calibrate`, or the default for this kind of machine.
    /// `io_uring`: job threads wait in io_uring_enter(2), not on an eventfd.
    pub fn new(costs: Option<(&Costs, &Path)>, io_uring: bool) -> WakeUp {
        let (costs, source) = match costs {
            Some((costs, path)) => (costs, path.display().to_string()),
            None if is_virtual(Path::new("/")) => (
                &Costs::VIRTUAL,
                "not measured here: the default for virtual machines, see `reap calibrate`".into(),
            ),
            None => (
                &Costs::BARE_METAL,
                "not measured here: the default for bare metal, see `reap calibrate`".into(),
            ),
        };
        let notified = if io_uring { costs.wake_up.io_uring } else { costs.wake_up.eventfd };
        WakeUp { notified: notified.0 as f64, timer: costs.wake_up.timer.0 as f64, source }
    }

    /// Makes the mode `adaptive` include these costs in what it minimises.
    pub fn apply(&self) {
        reap::set_wake_up_cost(Nanos(self.notified as u64), Nanos(self.timer as u64));
    }

    /// CPU time per I/O: that of the threads plus the cost of their wake-ups.
    pub fn cpu_ns_per_io(&self, counted: &Counted) -> Option<f64> {
        let wake_ups =
            counted.queues.wakeups as f64 * self.notified + counted.queues.naps as f64 * self.timer;
        counted.per_io(counted.cpu.0 as f64 + wake_ups)
    }

    /// Explains the column CPU per I/O.
    pub fn caption(&self) -> String {
        let [notified, timer] = [self.notified, self.timer].map(|ns| format!("{:.1} µs", ns / 1e3));
        let each =
            if notified == timer { notified } else { format!("{notified} (by timer {timer})") };
        format!(
            "CPU per I/O: CPU time of the threads, plus {each} per wake-up for interrupts and context switches ({}).",
            self.source
        )
    }

    /// The figures for scripts.
    pub fn json(&self) -> Value {
        json!({ "notified": self.notified, "timer": self.timer, "source": self.source })
    }
}

/// `0-2,5`
pub fn list(cpus: &[usize]) -> String {
    units::cpu_ranges(&cpus.iter().map(|&cpu| cpu as u32).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
