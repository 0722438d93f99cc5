//! The machine: which CPU is the embedded device's, if there is one; which ones are the host's; and a line about it.

use std::fs;
use std::io;
use std::path::Path;

use ::sim::Costs;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::bench::Counted;

/// The CPUs of this process and who uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The embedded device's thread is pinned here; `None`: there is but one CPU, and it is everybody's, or no embedded device.
    pub device: Option<usize>,
    /// Job threads run on these, the first ones first; never empty.
    pub host: Vec<usize>,
    /// The device is no thread of this process.
    pub outside: bool,
    /// Where the host's threads are, in words, where `host` does not say it.
    pub seated: Option<String>,
}

impl Machine {
    /// The machine that this process may use.
    pub fn here() -> io::Result<Machine> {
        Ok(Machine::of(hw::allowed_cpus()?))
    }

    /// The same where no device is a thread of this process: all CPUs are the host's.
    pub fn without_device() -> io::Result<Machine> {
        let cpus = hw::allowed_cpus()?;
        Ok(Machine { device: None, host: if cpus.is_empty() { vec![0] } else { cpus }, outside: true, seated: None })
    }

    /// All CPUs, ascending.
    pub fn cpus(&self) -> Vec<usize> {
        self.host.iter().copied().chain(self.device).collect()
    }

    /// With two CPUs or more the last one is the device's.
    fn of(mut cpus: Vec<usize>) -> Machine {
        let device = if cpus.len() > 1 { cpus.pop() } else { None };
        if cpus.is_empty() {
            cpus.push(0);
        }
        Machine { device, host: cpus, outside: false, seated: None }
    }

    /// The same with only these for the host, in this order; an embedded device gets the last of the others.
    ///
    /// # Errors
    /// This process may not use one of them, or they leave none to the device.
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

    /// Has the host's threads take these CPUs before others, where the host has them.
    pub fn prefer(&mut self, cpus: &[usize]) {
        self.host.sort_by_key(|cpu| cpus.iter().position(|first| first == cpu).unwrap_or(usize::MAX));
    }

    /// Those of the host's CPUs that a job names; none if it names none.
    pub fn named(&self, wish: &[u32]) -> Vec<usize> {
        self.host.iter().copied().filter(|&cpu| wish.iter().any(|&wanted| wanted as usize == cpu)).collect()
    }

    /// Keeps the calling thread, and those that it starts and that do not pin themselves, away from the device's CPU: one
    /// that ran there for a moment would be a gap in the device's running.
    pub fn keep_clear(&self) {
        if let Some(&cpu) = self.host.first()
            && self.device.is_some()
            && let Err(error) = hw::pin(cpu)
        {
            tracing::warn!(cpu, %error, "the main thread may disturb the device's");
        }
    }

    /// The CPU of each thread that runs at the same time as the others, given which ones each may use (none named:
    /// any): the one with the fewest threads so far. A CPU that is not the host's counts as not named.
    pub fn place(&self, wishes: &[Vec<u32>]) -> Vec<usize> {
        let mut load = vec![0u32; self.host.len()];
        let place_one = |wish: &Vec<u32>| {
            let wanted = |at: &usize| wish.iter().any(|&cpu| cpu as usize == self.host[*at]);
            let any = !(0..self.host.len()).any(|at| wanted(&at));
            let at = (0..self.host.len()).filter(|at| any || wanted(at)).min_by_key(|&at| load[at]).unwrap_or(0);
            load[at] += 1;
            self.host[at]
        };
        wishes.iter().map(place_one).collect()
    }

    /// Whether threads on these CPUs wait for each other, or for the device.
    pub fn oversubscribed(&self, cpus: &[usize]) -> bool {
        let mut sorted = cpus.to_vec();
        sorted.sort_unstable();
        self.device.is_none() && !self.outside || sorted.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// One line: processor, kernel, who runs where, and how busy it is.
    pub fn describe(&self) -> String {
        let word = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (kernel, info) = (word("/proc/sys/kernel/osrelease"), word("/proc/cpuinfo"));
        let model = info.lines().find_map(|line| line.strip_prefix("model name")).map(|rest| rest.trim_matches([' ', '\t', ':']));
        let load = word("/proc/loadavg");
        let roles = match self.device {
            _ if self.seated.is_some() => self.seated.clone().unwrap_or_default(),
            Some(device) => format!("host threads on CPU {}, device thread on CPU {device}", list(&self.host)),
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

/// Makes the calling thread a job's: pins it to these CPUs, if there are any, and has its timers as fine as the kernel can.
pub fn settle(cpus: &[usize]) {
    if !cpus.is_empty()
        && let Err(error) = hw::pin_to(cpus)
    {
        tracing::warn!(?cpus, %error, "a job thread is not pinned");
    }
    fine_timers();
}

/// Has the timers of the calling thread, and of those that it starts, as fine as the kernel can: those of a job, and of a thread that opens
/// devices, where it is measured how late they are.
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
        || ["sys/hypervisor/type", "proc/device-tree/hypervisor"].iter().any(|path| root.join(path).exists())
}

/// CPU time that a wake-up takes from other work on top of the woken thread's own, in nanoseconds: interrupts and switches, which no thread's
/// clock counts.
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
    /// Of a price list, `costs`, or the default for this kind of machine. `io_uring`: that is what job threads wait in.
    pub fn new(costs: Option<(&Costs, &Path)>, io_uring: bool) -> WakeUp {
        let (costs, source) = match costs {
            Some((costs, path)) => (costs, path.display().to_string()),
            None if is_virtual(Path::new("/")) => {
                (&Costs::VIRTUAL, "not measured here: the default for virtual machines, see `reap calibrate`".into())
            }
            None => (&Costs::BARE_METAL, "not measured here: the default for bare metal, see `reap calibrate`".into()),
        };
        let notified = if io_uring { costs.wake_up.io_uring } else { costs.wake_up.eventfd };
        WakeUp { notified: notified.0 as f64, timer: costs.wake_up.timer.0 as f64, source }
    }

    /// CPU time per I/O with that of the wake-ups.
    pub fn cpu_ns_per_io(&self, counted: &Counted) -> Option<f64> {
        let wake_ups = counted.host.wakeups as f64 * self.notified + counted.host.naps as f64 * self.timer;
        counted.per_io(counted.cpu.0 as f64 + wake_ups)
    }

    /// What a column of it counts.
    pub fn words(&self) -> String {
        let [notified, timer] = [self.notified, self.timer].map(|ns| format!("{:.1} µs", ns / 1e3));
        let each = if notified == timer { notified } else { format!("{notified}, by timer {timer}") };
        format!("CPU per I/O: of threads, and what wake-ups take from other work: each {each} ({}).", self.source)
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
