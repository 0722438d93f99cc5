//! What the facts mean: a verdict for each thing that something of Reap stands on, why it matters, and what mends it. Pure.

use hw::uring::Features;
use serde::Serialize;

use super::facts::{Controller, Facts};
use crate::args::Wanted;

/// Memory is pinned by so much for `pcie:`, and two pieces are enough for two queues of 4 KiB blocks.
const PIECE: u64 = 4 << 20;
/// Locked memory that most jobs' buffers fit in.
const AMPLE: u64 = 256 << 20;
/// Leaving an idle state that takes longer is seen in the latency of drives of today, in microseconds.
const SHALLOW: u64 = 10;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, worse than it could.
    Limited,
    /// What it is for cannot be had.
    Missing,
    /// There is nothing here that it could be said of.
    None,
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What it is for: `kernel`, `pcie`, `trace`, `figures`.
    #[serde(rename = "for")]
    pub wanted: Wanted,
    pub name: &'static str,
    pub state: State,
    /// What was found.
    pub found: String,
    /// Why it matters.
    pub why: &'static str,
    /// What mends it; `None`: nothing has to be mended, or nothing can be.
    pub command: Option<String>,
}

/// How it is, what was found, and what mends it.
type Verdict = (State, String, Option<String>);

fn ok(found: impl Into<String>) -> Verdict {
    (State::Ok, found.into(), None)
}

fn none(found: impl Into<String>) -> Verdict {
    (State::None, found.into(), None)
}

fn limited(found: impl Into<String>, command: impl Into<String>) -> Verdict {
    (State::Limited, found.into(), Some(command.into()))
}

fn missing(found: impl Into<String>, command: impl Into<String>) -> Verdict {
    (State::Missing, found.into(), Some(command.into()))
}

/// All of them, by what they are for: a name, why it matters, and how it is.
pub fn all(facts: &Facts) -> Vec<Check> {
    use Wanted::{Figures, Kernel, Pcie, Trace};
    let mut checks = Vec::new();
    let mut check = |wanted, name, why, (state, found, command): Verdict| {
        checks.push(Check { wanted, name, state, found, why, command });
    };
    let Facts { kernel, controllers, vfio, cpus, .. } = facts;

    let verdict = match &facts.uring {
        Err(error) => missing(&error.why, error.remedy),
        Ok(features) if !features.timeouts || !features.keeps_overflow || !features.shared => {
            missing(format!("Linux {kernel} has too old an io_uring"), "boot Linux 5.19 or newer")
        }
        Ok(_) => ok(format!("Linux {kernel} has it, and this user may use it")),
    };
    check(Kernel, "io_uring", "`kernel:` does all its I/O by it", verdict);
    let lacking: Result<Vec<&str>, _> = facts.uring.as_ref().map(|features| lacking(features).collect());
    let verdict = match lacking.as_deref() {
        Err(_) => none("there is no io_uring"),
        Ok([]) => ok("all that Reap uses"),
        Ok(lacking) => limited(format!("Linux {kernel} lacks {}", lacking.join(", ")), "boot a newer kernel"),
    };
    let why = "they save system calls and wake-ups, or are modes of the kernel's own to compare with";
    check(Kernel, "its newer features", why, verdict);
    let closed: Vec<String> = facts.characters.iter().filter(|(_, opens)| !opens).map(|(path, _)| path.display().to_string()).collect();
    let verdict = match closed[..] {
        _ if facts.polls.is_empty() => none("the kernel drives no NVMe namespace here"),
        _ if facts.characters.is_empty() => {
            limited(format!("Linux {kernel} has no character devices of namespaces"), "boot Linux 5.19 or newer")
        }
        [] => ok(format!("{} namespaces can be opened", facts.characters.len())),
        _ => limited(format!("this user may not open {}", closed.join(", ")), format!("chown $USER {}", closed.join(" "))),
    };
    check(Kernel, "NVMe passthrough", "by `kernel:/dev/ng0n1` requests skip the kernel's block layer", verdict);
    let without: Vec<&str> = facts.polls.iter().filter(|(_, polls)| !polls).map(|(name, _)| name.as_str()).collect();
    let verdict = match without[..] {
        _ if facts.polls.is_empty() => none("the kernel drives no NVMe namespace here"),
        [] => ok(format!("{} namespaces have some", facts.polls.len())),
        _ => {
            // A drive that is in use is not to be taken from the kernel's driver.
            let first = controllers.iter().find(|controller| controller.driver.as_deref() == Some("nvme"));
            let again = first.map_or_else(String::new, |Controller { bdf, .. }| {
                format!(
                    ", and, while nobody uses it, echo {bdf} >/sys/bus/pci/drivers/nvme/unbind; echo {bdf} >/sys/bus/pci/drivers/nvme/bind"
                )
            });
            limited(format!("{} have none", without.join(", ")), format!("echo 2 >/sys/module/nvme/parameters/poll_queues{again}"))
        }
    };
    check(Kernel, "poll queues", "without them a polled mode takes interrupts on `kernel:`, and kernel-iopoll cannot be had", verdict);
    let why = "io_uring knows registered buffers faster, and they are locked; others are used as they are";
    check(Kernel, "locked memory", why, memlock(facts, Kernel));
    let verdict = match (facts.hugepages, facts.transparent.as_str()) {
        (0, "always" | "madvise") => ok(format!("transparent ones ({}); none set aside", facts.transparent)),
        (0, _) => limited(
            "none, and no transparent ones",
            "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, or sysctl vm.nr_hugepages=64",
        ),
        (count, _) => ok(format!("{count} of 2 MiB are set aside")),
    };
    check(Kernel, "huge pages", "buffers in pages of 2 MiB cost fewer misses of the TLB, and less to register", verdict);

    let verdict = match facts.iommu_groups {
        0 => missing(
            "the kernel has no IOMMU group",
            "switch VT-d or AMD-Vi on in the firmware; where it is Intel's, add intel_iommu=on to the kernel's command line; reboot",
        ),
        groups => ok(format!("{groups} groups")),
    };
    check(Pcie, "IOMMU", "it keeps a drive from all memory but what Reap maps for it; without one vfio-pci takes no device", verdict);
    let verdict = match (vfio.loaded, vfio.module) {
        (true, _) => ok("it is loaded"),
        (false, true) => limited("it is not loaded; `reap bind` loads it", "modprobe vfio-pci"),
        (false, false) => {
            missing(format!("Linux {kernel} has no module of that name"), "boot a kernel with CONFIG_VFIO_PCI, such as Debian's")
        }
    };
    check(Pcie, "vfio-pci", "this driver of the kernel's hands drives to Reap", verdict);
    let verdict = match (vfio.container, vfio.loaded || vfio.iommufd) {
        (true, _) => ok("/dev/vfio/vfio is there"),
        (false, true) => missing(
            "there is no /dev/vfio/vfio",
            "modprobe vfio_iommu_type1; else boot a kernel with CONFIG_VFIO_CONTAINER or CONFIG_IOMMUFD_VFIO_CONTAINER",
        ),
        (false, false) => none("VFIO is not loaded"),
    };
    check(Pcie, "VFIO containers", "Reap maps memory by /dev/vfio/vfio; iommufd alone is not used", verdict);
    let ours: Vec<&Controller> = controllers.iter().filter(|controller| controller.driver.as_deref() == Some("vfio-pci")).collect();
    let closed = ours.iter().find_map(|controller| controller.group.as_ref().filter(|(_, opens)| !opens).map(|_| &controller.bdf));
    let verdict = match (controllers.first(), ours.first(), closed) {
        (None, ..) => missing("there is no NVMe controller on the PCI bus", "put a drive in; mem: and file: need none"),
        (Some(first), None, _) => limited(
            format!("{} on the bus, none of them at vfio-pci", controllers.len()),
            format!("reap bind {}, if nobody uses it", first.bdf),
        ),
        (_, Some(_), Some(bdf)) => limited(format!("this user may not open {bdf}"), format!("reap bind {bdf} --user $USER, as root")),
        (_, Some(_), None) => ok(format!("{} of {} can be used", ours.len(), controllers.len())),
    };
    check(Pcie, "NVMe drives", "`pcie:` drives one that vfio-pci has, and that this user may open", verdict);
    let shared: Vec<String> = controllers.iter().flat_map(|controller| controller.in_the_way.clone()).collect();
    let verdict = match shared[..] {
        _ if controllers.is_empty() || facts.iommu_groups == 0 => none("there is no drive in one"),
        [] => ok("no drive shares one with what the kernel drives"),
        _ => {
            limited(format!("with a drive are {}", shared.join(", ")), "give each of them to vfio-pci, or put the drive into another slot")
        }
    };
    check(Pcie, "IOMMU groups", "an IOMMU keeps groups apart: what shares one with a drive must be vfio-pci's too", verdict);
    check(Pcie, "locked memory", "what a drive reaches is pinned by 4 MiB, as it is first used", memlock(facts, Pcie));

    // Each thing that is lacking says what to do.
    let verdict = match facts.trace.is_empty() {
        true => ok("this `reap`, this user and this kernel have what it needs"),
        false => {
            missing(facts.trace.join("; "), "sudo reap trace, by a `reap` built with --features ebpf, on Linux 5.15 or newer with BTF")
        }
    };
    check(Trace, "eBPF", "`reap trace` counts completions per interrupt in the kernel", verdict);

    let verdict = match cpus.allowed {
        0 | 1 => missing("host and device threads share one CPU", "taskset, or the container's limit: give it two or more"),
        count => ok(format!("{count} for this process")),
    };
    check(Figures, "CPUs", "the embedded device's thread has one, job threads have the others", verdict);
    let verdict = match cpus.virtual_machine {
        true => {
            limited("this is a virtual machine", "compare on bare metal what is meant for it; `reap sim --costs bare-metal` simulates one")
        }
        false => ok("no hypervisor shows itself"),
    };
    check(Figures, "bare metal", "in a virtual machine interrupts, timers and idling cost exits to the hypervisor", verdict);
    let deep = cpus.idle.iter().filter(|(_, latency)| *latency > SHALLOW);
    let deep: Vec<String> = deep.map(|(name, latency)| format!("{name} ({latency} µs)")).collect();
    let verdict = match deep[..] {
        _ if cpus.idle.is_empty() => none("the system shows none"),
        [] => ok("all of them are shallow"),
        _ => limited(format!("deep ones are {}", deep.join(", ")), format!("cpupower idle-set -D {SHALLOW}")),
    };
    check(Figures, "idle states", "a CPU that sleeps deeply wakes late, which counts for modes that sleep", verdict);
    let verdict = match cpus.governor.as_deref() {
        None => none("the system does not govern it"),
        Some("performance") => ok("the governor is performance"),
        Some(other) => limited(format!("the governor is {other}"), "cpupower frequency-set -g performance"),
    };
    check(Figures, "frequency", "a CPU that clocks down while a mode sleeps is slower when it wakes", verdict);
    let verdict = match cpus.load {
        load if load < 0.5 => ok(format!("load average {load:.2}")),
        load => limited(format!("load average {load:.2}"), "end what else runs (`top` shows it), and wait a minute"),
    };
    check(Figures, "other work", "what others take of the CPUs is not the same for all modes", verdict);
    checks
}

fn lacking(features: &Features) -> impl Iterator<Item = &'static str> {
    [
        (features.owner, "completions for one owner (6.1)"),
        (features.min_wait, "waits for several completions (6.12)"),
        (features.io_poll, "polling by the kernel"),
        (features.hybrid_io_poll, "hybrid polling by the kernel (6.13)"),
        (features.sq_poll, "submission by a kernel thread, for this user"),
        (features.big, "commands that pass through (5.19)"),
    ]
    .into_iter()
    .filter(|(has, _)| !has)
    .map(|(_, what)| what)
}

fn memlock(facts: &Facts, wanted: Wanted) -> Verdict {
    let command = "ulimit -l unlimited, as root; `USER - memlock unlimited` in /etc/security/limits.conf makes it last";
    match facts.memlock {
        None => ok("not limited for this user"),
        Some(limit) if limit >= AMPLE => ok(format!("{} MiB", limit >> 20)),
        Some(limit) if limit < PIECE && wanted == Wanted::Pcie => {
            missing(format!("RLIMIT_MEMLOCK is {limit} bytes; the least is {PIECE}"), command)
        }
        Some(limit) => limited(format!("RLIMIT_MEMLOCK is {limit} bytes"), command),
    }
}

#[cfg(test)]
mod tests;
