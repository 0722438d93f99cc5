//! Divides the CPUs between job threads and the embedded device's thread, and describes the machine
//! for results. The device has a CPU of its own, or jobs would measure its scheduling.

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
    pub host: Vec<usize>,
    /// The device is not a thread of this process.
    pub outside: bool,
    /// Description of where job threads run, if `host` does not determine it.
    pub seated: Option<String>,
}

impl Machine {
    /// The machine that this process may use.
    pub fn here() -> io::Result<Machine> {
        Ok(Machine::of(hw::allowed_cpus()?))
    }

    /// The same without an embedded device: all CPUs are for job threads.
    pub fn without_device() -> io::Result<Machine> {
        let cpus = hw::allowed_cpus()?;
        Ok(Machine {
            device: None,
            host: if cpus.is_empty() { vec![0] } else { cpus },
            outside: true,
            seated: None,
        })
    }

    /// All CPUs, ascending.
    pub fn cpus(&self) -> Vec<usize> {
        self.host.iter().copied().chain(self.device).collect()
    }

    /// With two or more CPUs the last one is for the device.
    fn of(mut cpus: Vec<usize>) -> Machine {
        let device = if cpus.len() > 1 { cpus.pop() } else { None };
        // The kernel did not report the CPUs; threads are then not pinned successfully, but run.
        if cpus.is_empty() {
            cpus.push(0);
        }
        Machine { device, host: cpus, outside: false, seated: None }
    }

    /// The same with only these CPUs for job threads; an embedded device has the last of the
    /// others.
    ///
    /// # Errors
    /// This process may not use one of them, or none is left for the device.
    pub fn only(self, host: &[usize]) -> Result<Machine> {
        let all = self.cpus();
        if let Some(cpu) = host.iter().find(|cpu| !all.contains(cpu)) {
            bail!("this process may not use CPU {cpu}; it may use {}", list(&all));
        }
        let device = all.iter().rfind(|cpu| !host.contains(cpu)).copied();
        ensure!(
            self.outside || device.is_some() || all.len() == 1,
            "the emulated drive needs a CPU of its own; leave one of {} out",
            list(&all)
        );
        Ok(Machine { device: device.filter(|_| !self.outside), host: host.to_vec(), ..self })
    }

    /// Prefers these CPUs for job threads.
    pub fn prefer(&mut self, cpus: &[usize]) {
        self.host
            .sort_by_key(|cpu| cpus.iter().position(|first| first == cpu).unwrap_or(usize::MAX));
    }

    /// The CPUs for job threads that are in a job's `cpus_allowed`.
    pub fn named(&self, wish: &[u32]) -> Vec<usize> {
        self.host
            .iter()
            .copied()
            .filter(|&cpu| wish.iter().any(|&wanted| wanted as usize == cpu))
            .collect()
    }

    /// Keeps the calling thread, and unpinned threads that it starts, off the device's CPU, where
    /// they would interrupt the device.
    pub fn keep_clear(&self) {
        if let Some(&cpu) = self.host.first()
            && self.device.is_some()
            && let Err(error) = hw::pin(cpu)
        {
            tracing::warn!(cpu, %error, "the main thread may disturb the device's");
        }
    }

    /// Chooses a CPU for each of several concurrent threads, given the CPUs that each may use
    /// (empty: any): the one with the fewest threads so far. CPUs that are not for job threads are
    /// ignored.
    pub fn place(&self, wishes: &[Vec<u32>]) -> Vec<usize> {
        let mut load = vec![0u32; self.host.len()];
        let place_one = |wish: &Vec<u32>| {
            let wanted = |at: &usize| wish.iter().any(|&cpu| cpu as usize == self.host[*at]);
            let any = !(0..self.host.len()).any(|at| wanted(&at));
            let at = (0..self.host.len())
                .filter(|at| any || wanted(at))
                .min_by_key(|&at| load[at])
                .unwrap_or(0);
            load[at] += 1;
            self.host[at]
        };
        wishes.iter().map(place_one).collect()
    }

    /// Whether threads on these CPUs have to share a CPU with each other or with the device.
    pub fn oversubscribed(&self, cpus: &[usize]) -> bool {
        let mut sorted = cpus.to_vec();
        sorted.sort_unstable();
        self.device.is_none() && !self.outside || sorted.windows(2).any(|pair| pair[0] == pair[1])
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
            _ if self.seated.is_some() => self.seated.clone().unwrap_or_default(),
            Some(device) => {
                format!("host threads on CPU {}, device thread on CPU {device}", list(&self.host))
            }
            None if self.outside => format!("host threads on CPU {}", list(&self.host)),
            None => "host and device threads share one CPU".to_owned(),
        };
        format!(
            "{} CPUs ({}), Linux {}; {roles}; load average {}",
            self.host.len() + usize::from(self.device.is_some()),
            model.unwrap_or("unknown processor"),
            kernel.trim(),
            load.split(' ').next().unwrap_or("unknown"),
        )
    }
}

/// Prepares the calling thread for a job: pins it to `cpus`, if any, and sets its timer slack.
pub fn settle(cpus: &[usize]) {
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

/// Whether the system below `root` shows a hypervisor.
pub fn is_virtual(root: &Path) -> bool {
    let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split(' ').any(|flag| flag == "hypervisor")
        || ["sys/hypervisor/type", "proc/device-tree/hypervisor"]
            .iter()
            .any(|path| root.join(path).exists())
}

/// CPU time that a wake-up takes from other work on top of the woken thread's own, in nanoseconds:
/// interrupts and switches, which no thread's clock counts.
#[derive(Clone, Debug)]
pub struct WakeUp {
    /// By a notification.
    pub notified: f64,
    /// By a timer.
    pub timer: f64,
    /// Where the figures are from.
    pub source: String,
}

impl WakeUp {
    /// Of a price list, `costs`, or the default for this kind of machine. `io_uring`: that is what
    /// job threads wait in.
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

    /// Has `adaptive` count it.
    pub fn set(&self) {
        reap::set_wake_up_cost(Nanos(self.notified as u64), Nanos(self.timer as u64));
    }

    /// CPU time per I/O with that of the wake-ups.
    pub fn cpu_ns_per_io(&self, counted: &Counted) -> Option<f64> {
        let wake_ups =
            counted.host.wakeups as f64 * self.notified + counted.host.naps as f64 * self.timer;
        counted.per_io(counted.cpu.0 as f64 + wake_ups)
    }

    /// What a column of it counts.
    pub fn words(&self) -> String {
        let [notified, timer] = [self.notified, self.timer].map(|ns| format!("{:.1} µs", ns / 1e3));
        let each =
            if notified == timer { notified } else { format!("{notified}, by timer {timer}") };
        format!(
            "CPU per I/O: of threads, and what wake-ups take from other work: each {each} ({}).",
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
