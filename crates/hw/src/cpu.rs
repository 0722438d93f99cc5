//! CPUs and memory: thread affinity and scheduling class, run delay, stolen time, memory size and
//! NUMA nodes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use units::Nanos;

/// The CPUs that the calling thread may run on, in ascending order.
///
/// # Errors
///
/// The error of sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    INITIAL_CPUS.get_or_init(|| {
        sched_getaffinity(Some(rustix::process::getpid())).map(|set| list(&set)).unwrap_or_default()
    });
    Ok(list(&sched_getaffinity(None)?))
}

/// Affinity of the main thread at the first call: most likely the thread has not been pinned yet.
static INITIAL_CPUS: OnceLock<Vec<usize>> = OnceLock::new();

/// Parses a list of CPUs or memory nodes as the kernel writes it: `0-3,8` or `0, 1`. Parts that are
/// not numbers are skipped.
pub(crate) fn cpu_list(text: &str) -> impl Iterator<Item = usize> {
    text.split(',').map(str::trim).flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        // The range is bounded, so that a nonsensical one does not yield 2^64 items.
        ends.map(|(first, last)| first..=last.min(CpuSet::MAX_CPU)).into_iter().flatten()
    })
}

fn list(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Pins the calling thread to the highest CPU of the process other than `cpu`. Best effort: without
/// another CPU, or if the system refuses, the affinity stays.
pub fn avoid_cpu(cpu: usize) {
    // Fills INITIAL_CPUS, if this is the first call.
    _ = allowed_cpus();
    if let Some(other) =
        INITIAL_CPUS.get().and_then(|cpus| cpus.iter().rfind(|&&other| other != cpu))
    {
        _ = pin(*other);
    }
}

/// The CPU that the calling thread runs on at this moment.
#[inline]
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// Number of CPUs for tables indexed by CPU: the highest allowed number plus one.
pub fn cpus() -> usize {
    allowed_cpus().ok().and_then(|cpus| cpus.last().copied()).map_or(1, |last| last + 1)
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// `InvalidInput`: the machine does not have the CPU, or the process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_to(&[cpu])
}

/// Lets the calling thread run only on these CPUs.
///
/// # Errors
/// `InvalidInput`: one of them is not a CPU number, or the process may use none of them.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= CpuSet::MAX_CPU) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Gives the calling thread the affinity of the process's main thread, undoing a pinning that it
/// inherited from the thread that started it. Best effort.
pub fn clear_affinity() {
    if let Ok(set) = sched_getaffinity(Some(rustix::process::getpid())) {
        _ = sched_setaffinity(None, &set);
    }
}

/// Sets SCHED_IDLE: the calling thread runs only when no other thread wants the CPU. Going back may
/// need privilege (RLIMIT_NICE).
pub fn sched_idle() -> io::Result<()> {
    // SAFETY: all zero is a valid `sched_param`, and the one that SCHED_IDLE wants.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 names the calling thread, and `param` is read only during the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The sum over `cpus` of the time that the hypervisor withheld the CPU while a thread was runnable
/// there: `steal` of `/proc/stat` (proc_stat(5)). The resolution is a clock tick, often 10 ms. Zero
/// where the kernel does not report it.
pub fn stolen_by_hypervisor(cpus: &[usize]) -> Nanos {
    let ticks =
        File::open("/proc/stat").and_then(io::read_to_string).map_or(0, |text| steal(&text, cpus));
    Nanos(
        (u128::from(ticks) * 1_000_000_000
            / u128::from(rustix::param::clock_ticks_per_second().max(1))) as u64,
    )
}

/// The eighth number of each line `cpuN`, summed over `cpus`.
fn steal(stat: &str, cpus: &[usize]) -> u64 {
    let of = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let cpu: usize = name.strip_prefix("cpu")?.parse().ok()?;
        cpus.contains(&cpu).then(|| numbers.split_ascii_whitespace().nth(7)?.parse().ok())?
    };
    stat.lines().filter_map(of).fold(0, u64::saturating_add)
}

/// Main memory of the machine, in bytes.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// The run delay of one thread: how long it has been runnable without running. It grows when other
/// threads compete for the CPU.
#[derive(Debug)]
pub struct RunDelay {
    schedstat: File,
    thread: Pid,
}

impl RunDelay {
    /// Opens the calling thread's statistics. Any thread can read them while that thread lives.
    ///
    /// # Errors
    /// `NotFound` where the kernel keeps no scheduler statistics.
    pub fn of_current() -> io::Result<RunDelay> {
        Ok(RunDelay { schedstat: File::open("/proc/thread-self/schedstat")?, thread: gettid() })
    }

    /// Whether these are the statistics of the calling thread: a `RunDelay` may be moved to another
    /// thread.
    pub fn is_of_current(&self) -> bool {
        self.thread == gettid()
    }

    /// The run delay so far: the second field of `schedstat`. Zero once the thread has ended.
    pub fn read(&self) -> Nanos {
        let mut text = [0; 96];
        let len = self.schedstat.read_at(&mut text, 0).unwrap_or(0);
        let second = text[..len].split(u8::is_ascii_whitespace).nth(1);
        Nanos(second.and_then(|field| std::str::from_utf8(field).ok()?.parse().ok()).unwrap_or(0))
    }
}

/// Where sysfs describes the NUMA nodes.
const SYSFS: &str = "/sys/devices/system/node";

/// The NUMA nodes of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Node number by CPU number.
    of_cpu: Vec<u16>,
    distances: Vec<Vec<u8>>,
}

impl Nodes {
    /// Reads sysfs. Without it, as in some containers, there is one node.
    pub fn detect() -> Nodes {
        Nodes::read(Path::new(SYSFS))
    }

    fn read(from: &Path) -> Nodes {
        let mut nodes = Nodes::default();
        let text = |node: u16, file: &str| {
            fs::read_to_string(from.join(format!("node{node}/{file}"))).unwrap_or_default()
        };
        let online = fs::read_to_string(from.join("online")).unwrap_or_default();
        for node in cpu_list(&online).map(|node| node as u16) {
            for cpu in cpu_list(&text(node, "cpulist")) {
                nodes.of_cpu.resize(nodes.of_cpu.len().max(cpu + 1), 0);
                nodes.of_cpu[cpu] = node;
            }
            // `distance` has a column per online node, not per node number; offline nodes have no
            // row.
            let columns = text(node, "distance")
                .split_whitespace()
                .map(|d| d.parse().unwrap_or(u8::MAX))
                .collect::<Vec<u8>>();
            let mut row = Vec::new();
            for (other, distance) in cpu_list(&online).zip(columns) {
                row.resize(row.len().max(other + 1), u8::MAX);
                row[other] = distance;
            }
            nodes.distances.resize(nodes.distances.len().max(usize::from(node) + 1), Vec::new());
            nodes.distances[usize::from(node)] = row;
        }
        if nodes.distances.is_empty() {
            // No sysfs: one node, at the distance that ACPI gives a node from itself.
            nodes.distances.push(vec![10]);
        }
        nodes
    }

    /// Number of nodes: the highest node number plus one.
    pub fn count(&self) -> usize {
        self.distances.len()
    }

    /// The node of a CPU; 0 if unknown.
    #[inline]
    pub fn of(&self, cpu: usize) -> u16 {
        self.of_cpu.get(cpu).copied().unwrap_or(0)
    }

    /// Distance of `to` from `from` in ACPI SLIT units (10: the same node). `None`: one of the
    /// nodes does not exist.
    pub fn distance(&self, from: u16, to: u16) -> Option<u8> {
        self.distances.get(usize::from(from))?.get(usize::from(to)).copied()
    }
}

#[cfg(test)]
mod tests;
