//! The machine: where a thread runs, how urgently, how long it had to wait for a CPU, how much memory there is, and on which nodes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use units::Nanos;

/// The CPUs that the calling thread may run on, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    AT_FIRST.get_or_init(|| sched_getaffinity(Some(rustix::process::getpid())).map(|set| list(&set)).unwrap_or_default());
    Ok(list(&sched_getaffinity(None)?))
}

/// Those of the process's main thread when somebody first asked: most likely it has not pinned itself yet.
static AT_FIRST: OnceLock<Vec<usize>> = OnceLock::new();

/// `0-3,8` or `0, 1`, as the kernel writes lists of CPUs and of memory nodes. What is no number is left out.
pub(crate) fn cpu_list(text: &str) -> impl Iterator<Item = usize> {
    text.split(',').map(str::trim).flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        ends.map(|(first, last)| first..=last.min(CpuSet::MAX_CPU)).into_iter().flatten()
    })
}

fn list(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Has the calling thread run elsewhere than on `cpu`, where there is another that this process may use. Otherwise, or where the system
/// refuses, the thread stays where it may run.
pub fn avoid(cpu: usize) {
    _ = allowed_cpus();
    if let Some(other) = AT_FIRST.get().and_then(|cpus| cpus.iter().rfind(|&&other| other != cpu)) {
        _ = pin(*other);
    }
}

/// The CPU that the calling thread runs on at this moment.
#[inline]
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// How many CPUs the machine can have, by the highest number that this process may use.
pub fn cpus() -> usize {
    allowed_cpus().ok().and_then(|cpus| cpus.last().copied()).map_or(1, |last| last + 1)
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// `InvalidInput` if the machine lacks it or the process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_to(&[cpu])
}

/// Lets the calling thread run only on these CPUs.
///
/// # Errors
/// `InvalidInput` if the machine lacks one of them, or the process may use none of them.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= CpuSet::MAX_CPU) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run wherever the process's main thread may, whatever the thread that started it was pinned to. Where the
/// system refuses, the thread stays where it may run.
pub fn roam() {
    if let Ok(set) = sched_getaffinity(Some(rustix::process::getpid())) {
        _ = sched_setaffinity(None, &set);
    }
}

/// Lets the calling thread run only when nobody else wants its CPU (SCHED_IDLE). There may be no way back without
/// privilege.
pub fn sched_idle() -> io::Result<()> {
    // SAFETY: all zero is a valid `sched_param`, and the one that SCHED_IDLE wants.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 names the calling thread, and `param` is read only during the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How long a hypervisor has had each of `cpus` while something wanted to run there, added up: `steal` of `/proc/stat` (proc(5)), in
/// ticks of [`rustix::param::clock_ticks_per_second`], often 10 ms. Zero where nobody tells.
pub fn stolen_by_hypervisor(cpus: &[usize]) -> Nanos {
    let ticks = File::open("/proc/stat").and_then(io::read_to_string).map_or(0, |text| steal(&text, cpus));
    Nanos((u128::from(ticks) * 1_000_000_000 / u128::from(rustix::param::clock_ticks_per_second().max(1))) as u64)
}

/// The eighth number of the lines `cpuN`.
fn steal(stat: &str, cpus: &[usize]) -> u64 {
    let of = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let cpu: usize = name.strip_prefix("cpu")?.parse().ok()?;
        cpus.contains(&cpu).then(|| numbers.split_ascii_whitespace().nth(7)?.parse().ok())?
    };
    stat.lines().filter_map(of).fold(0, u64::saturating_add)
}

/// Bytes of main memory that the machine has.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// How long one thread has been runnable without running: it grows when someone else wants the CPU.
#[derive(Debug)]
pub struct RunDelay {
    schedstat: File,
    thread: Pid,
}

impl RunDelay {
    /// The calling thread's, readable from any thread while it lives.
    ///
    /// # Errors
    /// `NotFound` where the kernel keeps no scheduler statistics.
    pub fn of_current() -> io::Result<RunDelay> {
        Ok(RunDelay { schedstat: File::open("/proc/thread-self/schedstat")?, thread: gettid() })
    }

    /// Whether it is the calling thread's: a thread that keeps it may have been sent to another.
    pub fn is_of_current(&self) -> bool {
        self.thread == gettid()
    }

    /// Its run delay so far: the second field of `schedstat`. Zero once the thread has ended.
    pub fn read(&self) -> Nanos {
        let mut text = [0; 96];
        let len = self.schedstat.read_at(&mut text, 0).unwrap_or(0);
        let second = text[..len].split(u8::is_ascii_whitespace).nth(1);
        Nanos(second.and_then(|field| std::str::from_utf8(field).ok()?.parse().ok()).unwrap_or(0))
    }
}

/// Where the kernel tells.
const SYSFS: &str = "/sys/devices/system/node";

/// The machine's memory nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The node of each CPU.
    of_cpu: Vec<u16>,
    distances: Vec<Vec<u8>>,
}

impl Nodes {
    /// This machine's. One that does not tell, as a container may not, has one node.
    pub fn here() -> Nodes {
        Nodes::read(Path::new(SYSFS))
    }

    fn read(from: &Path) -> Nodes {
        let mut nodes = Nodes::default();
        let text = |node: u16, file: &str| fs::read_to_string(from.join(format!("node{node}/{file}"))).unwrap_or_default();
        let online = fs::read_to_string(from.join("online")).unwrap_or_default();
        for node in cpu_list(&online).map(|node| node as u16) {
            for cpu in cpu_list(&text(node, "cpulist")) {
                nodes.of_cpu.resize(nodes.of_cpu.len().max(cpu + 1), 0);
                nodes.of_cpu[cpu] = node;
            }
            // Columns are of online nodes only; nodes that are offline have no row either.
            let columns = text(node, "distance").split_whitespace().map(|d| d.parse().unwrap_or(u8::MAX)).collect::<Vec<u8>>();
            let mut row = Vec::new();
            for (other, distance) in cpu_list(&online).zip(columns) {
                row.resize(row.len().max(other + 1), u8::MAX);
                row[other] = distance;
            }
            nodes.distances.resize(nodes.distances.len().max(usize::from(node) + 1), Vec::new());
            nodes.distances[usize::from(node)] = row;
        }
        if nodes.distances.is_empty() {
            nodes.distances.push(vec![10]);
        }
        nodes
    }

    /// How many there are, by the highest number.
    pub fn count(&self) -> usize {
        self.distances.len()
    }

    /// The node of a CPU; 0 of one that nothing is known of.
    #[inline]
    pub fn of(&self, cpu: usize) -> u16 {
        self.of_cpu.get(cpu).copied().unwrap_or(0)
    }

    /// How far `to` is from `from`, in the units of the firmware's table (10: the same node); `None`: one of them is not there.
    pub fn distance(&self, from: u16, to: u16) -> Option<u8> {
        self.distances.get(usize::from(from))?.get(usize::from(to)).copied()
    }
}

#[cfg(test)]
mod tests;
