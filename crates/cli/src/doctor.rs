//! `reap doctor`: what this machine can do for Reap, what is missing, and what mends it.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use hw::block::Disk;
use hw::pci::{Bus, Function};
use hw::uring::{Features, Unavailable};
use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use serde_json::json;

use crate::args::{DoctorArgs, Wanted};
use crate::list::names;
use crate::machine::is_virtual;
use crate::output::{self, escape};
use crate::rows::table::{self, wrap};

/// CAP_IPC_LOCK (capabilities(7)): locked memory is not limited.
const CAP_IPC_LOCK: u32 = 14;
/// Memory is pinned by this much for `pcie:`, and two pieces are enough for two queues of 4 KiB blocks.
const PIECE: u64 = 4 << 20;
/// Locked memory that most jobs' buffers fit in.
const AMPLE: u64 = 256 << 20;
/// Leaving an idle state that takes longer is seen in the latency of drives of today, in microseconds.
const SHALLOW: u64 = 10;
/// Columns before what was found.
const INDENT: usize = 32;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
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
#[derive(Clone, Debug, Serialize)]
struct Check {
    /// What it is for.
    #[serde(rename = "for")]
    wanted: Wanted,
    name: &'static str,
    state: State,
    /// What was found.
    found: String,
    /// Why it matters.
    why: &'static str,
    /// What mends it; `None`: nothing has to be mended, or nothing can be.
    command: Option<String>,
}

/// Looks, and says it.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let here = Here {
        root: Path::new("/"),
        uring: Features::probe(),
        trace: trace::missing_requirements().iter().map(ToString::to_string).collect(),
        memlock: getrlimit(Resource::Memlock).current,
        cpus: hw::allowed_cpus().map_or(0, |cpus| cpus.len()),
    };
    let mut checks = here.checks();
    // Where something is asked for, the rest is no part of the answer.
    checks.retain(|check| args.wanted.is_empty() || args.wanted.contains(&check.wanted));
    let mut wanted = args.wanted.clone();
    if wanted.is_empty() {
        let drives = Bus::system().controllers().is_ok_and(|all| !all.is_empty());
        wanted = [Wanted::Kernel, Wanted::Pcie][..1 + usize::from(drives)].to_vec();
    }
    wanted.sort();
    wanted.dedup();
    let possible = missing(&checks, &wanted).is_empty();
    output::print(&if args.layout.is_json() {
        serde_json::to_string_pretty(&json!({ "wanted": wanted, "possible": possible, "checks": checks }))? + "\n"
    } else {
        text(&checks, &wanted, table::width().into())
    })?;
    Ok(if possible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is missing that is needed for what is `wanted`, by name.
fn missing(checks: &[Check], wanted: &[Wanted]) -> Vec<&'static str> {
    checks.iter().filter(|check| check.state == State::Missing && wanted.contains(&check.wanted)).map(|check| check.name).collect()
}

/// The results for people, on lines of `width` characters; commands, which are copied, stay whole.
fn text(checks: &[Check], wanted: &[Wanted], width: usize) -> String {
    let below = |line: &str| wrap(line, width.saturating_sub(INDENT).max(30)).trim_end().replace('\n', &format!("\n{:INDENT$}", ""));
    let mut out = String::new();
    let mut before = None;
    for check in checks {
        if before != Some(check.wanted) {
            let heading = match check.wanted {
                Wanted::Kernel => "kernel: (files and block devices, by io_uring)",
                Wanted::Pcie => "pcie: (NVMe drives without the kernel's driver)",
                Wanted::Trace => "reap trace (this machine's kernel)",
                Wanted::Figures => "figures (what they depend on)",
            };
            out += &format!("{}{heading}\n", if before.is_some() { "\n" } else { "" });
            before = Some(check.wanted);
        }
        let state = match check.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "MISSING",
            State::None => "-",
        };
        let (found, why) = (below(&escape(&check.found)), below(check.why));
        out += &format!("  {state:8} {:20} {found}\n{:INDENT$}{why}\n", check.name, "");
        if let Some(command) = &check.command {
            out += &format!("{:INDENT$}→ {}\n", "", escape(command));
        }
    }
    let names = missing(checks, wanted);
    let wanted: Vec<String> = wanted.iter().map(|wanted| format!("{wanted:?}").to_lowercase()).collect();
    out + &match names.is_empty() {
        true => format!("\nNothing is missing for {}.\n", wanted.join(", ")),
        false => format!("\nMissing for {}: {}.\n", wanted.join(", "), names.join(", ")),
    }
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

fn missing_one(found: impl Into<String>, command: impl Into<String>) -> Verdict {
    (State::Missing, found.into(), Some(command.into()))
}

/// What the kernel was asked. All else is read from files below `root`, so that a test can make some.
struct Here<'a> {
    root: &'a Path,
    uring: Result<Features, Unavailable>,
    /// Whatever keeps `reap trace` from working.
    trace: Vec<String>,
    /// RLIMIT_MEMLOCK in bytes; `None`: not limited.
    memlock: Option<u64>,
    /// CPUs that this process may use.
    cpus: usize,
}

impl Here<'_> {
    /// All of them, by what they are for.
    fn checks(&self) -> Vec<Check> {
        use Wanted::{Figures, Kernel, Pcie, Trace};
        let mut checks = Vec::new();
        let mut check = |wanted, name, why, (state, found, command): Verdict| {
            checks.push(Check { wanted, name, state, found, why, command });
        };
        let text = |path: &str| fs::read_to_string(self.root.join(path)).unwrap_or_default().trim().to_owned();
        let exists = |path: &str| self.root.join(path).exists();
        let opens = |path: String, how| access(self.root.join(path), how).is_ok();
        let kernel = text("proc/sys/kernel/osrelease");
        let bus = Bus::at(&self.root.join("sys/bus/pci"));
        let controllers = bus.controllers().unwrap_or_default();

        let verdict = match &self.uring {
            Err(error) => missing_one(error.why.clone(), error.remedy),
            Ok(features) if !features.timeouts || !features.keeps_overflow || !features.shared => {
                missing_one(format!("Linux {kernel} has too old an io_uring"), "boot Linux 5.19 or newer")
            }
            Ok(features) => {
                let newer = [
                    (features.owner, "completions for one owner (6.1)"),
                    (features.min_wait, "waits for several completions (6.12)"),
                    (features.io_poll, "polling by the kernel"),
                    (features.hybrid_io_poll, "hybrid polling by the kernel (6.13)"),
                    (features.sq_poll, "submission by a kernel thread, for this user"),
                    (features.big, "commands that pass through (5.19)"),
                ];
                let lacking: Vec<&str> = newer.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect();
                match lacking.is_empty() {
                    true => ok(format!("Linux {kernel} has all of it that Reap uses")),
                    false => limited(format!("Linux {kernel} lacks {}", lacking.join(", ")), "boot a newer kernel"),
                }
            }
        };
        check(
            Kernel,
            "io_uring",
            "`kernel:` does all its I/O by it; newer features save system calls, or are modes to compare with",
            verdict,
        );
        let namespaces: Vec<Disk> = Disk::all(self.root).into_iter().filter(|disk| disk.nsid().is_some()).collect();
        let characters = names(&self.root.join("sys/class/nvme-generic"));
        let closed = characters.iter().filter(|name| !opens(format!("dev/{name}"), Access::READ_OK));
        let closed: Vec<String> = closed.map(|name| format!("/dev/{name}")).collect();
        let verdict = match closed[..] {
            _ if namespaces.is_empty() => none("the kernel drives no NVMe namespace here"),
            _ if characters.is_empty() => {
                limited(format!("Linux {kernel} has no character devices of namespaces"), "boot Linux 5.19 or newer")
            }
            [] => ok(format!("{} namespaces can be opened", characters.len())),
            _ => limited(format!("this user may not open {}", closed.join(", ")), format!("chown $USER {}", closed.join(" "))),
        };
        check(Kernel, "NVMe passthrough", "by `kernel:/dev/ng0n1` requests skip the kernel's block layer", verdict);
        let without: Vec<String> = namespaces.iter().filter(|disk| disk.queue("io_poll") != Some(1)).map(Disk::name).collect();
        let verdict = match without[..] {
            _ if namespaces.is_empty() => none("the kernel drives no NVMe namespace here"),
            [] => ok(format!("{} namespaces have some", namespaces.len())),
            _ => {
                // A drive that is in use is not to be taken from the kernel's driver.
                let first = controllers.iter().find(|controller| controller.driver().as_deref() == Some("nvme"));
                let again = first.map_or_else(String::new, |Function { bdf, .. }| {
                    let driver = "/sys/bus/pci/drivers/nvme";
                    format!(", and, while nobody uses it, echo {bdf} >{driver}/unbind; echo {bdf} >{driver}/bind")
                });
                limited(format!("{} have none", without.join(", ")), format!("echo 2 >/sys/module/nvme/parameters/poll_queues{again}"))
            }
        };
        check(Kernel, "poll queues", "without them a polled mode takes interrupts on `kernel:`, and kernel-iopoll cannot be had", verdict);
        let why = "io_uring knows registered buffers faster, and they are locked; others are used as they are";
        check(Kernel, "locked memory", why, self.locked_memory(Kernel));
        let count: u64 = text("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").parse().unwrap_or(0);
        let choices = text("sys/kernel/mm/transparent_hugepage/enabled");
        let verdict = match (count, ["[always]", "[madvise]"].iter().any(|choice| choices.contains(choice))) {
            (0, true) => ok(format!("transparent ones ({choices}); none set aside")),
            (0, false) => limited(
                "none, and no transparent ones",
                "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, or sysctl vm.nr_hugepages=64",
            ),
            (count, _) => ok(format!("{count} of 2 MiB are set aside")),
        };
        check(Kernel, "huge pages", "buffers in pages of 2 MiB cost fewer misses of the TLB, and less to register", verdict);

        let groups = names(&self.root.join("sys/kernel/iommu_groups")).len();
        let verdict = match groups {
            0 => missing_one(
                "the kernel has no IOMMU group",
                "switch VT-d or AMD-Vi on in the firmware; where it is Intel's, add intel_iommu=on to the kernel's command line; reboot",
            ),
            groups => ok(format!("{groups} groups")),
        };
        check(Pcie, "IOMMU", "it keeps a drive from all memory but what Reap maps for it; without one vfio-pci takes no device", verdict);
        // With `-` and `_` for one another, as modprobe(8) takes them.
        let listed = |file: &str| text(&format!("lib/modules/{kernel}/{file}")).replace('_', "-").contains("/vfio-pci.ko");
        let loaded = bus.has_driver("vfio-pci");
        let verdict = match (loaded, listed("modules.dep") || listed("modules.builtin")) {
            (true, _) => ok("it is loaded"),
            (false, true) => limited("it is not loaded; `reap bind` loads it", "modprobe vfio-pci"),
            (false, false) => {
                missing_one(format!("Linux {kernel} has no module of that name"), "boot a kernel with CONFIG_VFIO_PCI, such as Debian's")
            }
        };
        check(Pcie, "vfio-pci", "this driver of the kernel's hands drives to Reap", verdict);
        let verdict = match (exists("dev/vfio/vfio"), loaded || exists("dev/iommu")) {
            (true, _) => ok("/dev/vfio/vfio is there"),
            (false, true) => missing_one(
                "there is no /dev/vfio/vfio",
                "modprobe vfio_iommu_type1; else boot a kernel with CONFIG_VFIO_CONTAINER or CONFIG_IOMMUFD_VFIO_CONTAINER",
            ),
            (false, false) => none("VFIO is not loaded"),
        };
        check(Pcie, "VFIO containers", "Reap maps memory by /dev/vfio/vfio; iommufd alone is not used", verdict);
        let ours: Vec<&Function> = controllers.iter().filter(|found| found.driver().as_deref() == Some("vfio-pci")).collect();
        let group_opens = |group: u32| opens(format!("dev/vfio/{group}"), Access::READ_OK | Access::WRITE_OK);
        let closed = ours.iter().find(|found| found.iommu_group().is_some_and(|group| !group_opens(group)));
        let verdict = match (controllers.first(), ours.first(), closed) {
            (None, ..) => missing_one("there is no NVMe controller on the PCI bus", "put a drive in; mem: and file: need none"),
            (Some(first), None, _) => limited(
                format!("{} on the bus, none of them at vfio-pci", controllers.len()),
                format!("reap bind {}, if nobody uses it", first.bdf),
            ),
            (_, _, Some(Function { bdf, .. })) => {
                limited(format!("this user may not open {bdf}"), format!("reap bind {bdf} --user $USER, as root"))
            }
            (_, Some(_), None) => ok(format!("{} of {} can be used", ours.len(), controllers.len())),
        };
        check(Pcie, "NVMe drives", "`pcie:` drives one that vfio-pci has, and that this user may open", verdict);
        // Other functions of the drives' groups that the kernel drives.
        let mut shared = Vec::new();
        for controller in &controllers {
            let others = controller.group_members().unwrap_or_default();
            for other in others.iter().filter(|other| other.bdf != controller.bdf && !other.is_bridge()) {
                let driver = other.driver().filter(|driver| driver != "vfio-pci");
                shared.extend(driver.map(|driver| format!("{} ({driver})", other.bdf)));
            }
        }
        let verdict = match shared[..] {
            _ if controllers.is_empty() || groups == 0 => none("there is no drive in one"),
            [] => ok("no drive shares one with what the kernel drives"),
            _ => limited(
                format!("with a drive are {}", shared.join(", ")),
                "give each of them to vfio-pci, or put the drive into another slot",
            ),
        };
        check(Pcie, "IOMMU groups", "an IOMMU keeps groups apart: what shares one with a drive must be vfio-pci's too", verdict);
        check(Pcie, "locked memory", "what a drive reaches is pinned by 4 MiB, as it is first used", self.locked_memory(Pcie));

        // Each thing that is lacking says what to do.
        let verdict = match self.trace.is_empty() {
            true => ok("this `reap`, this user and this kernel have what it needs"),
            false => missing_one(
                self.trace.join("; "),
                "sudo reap trace, by a `reap` built with --features ebpf, on Linux 5.15 or newer with BTF",
            ),
        };
        check(Trace, "eBPF", "`reap trace` counts completions per interrupt in the kernel", verdict);

        let verdict = match self.cpus {
            0 | 1 => missing_one("host and device threads share one CPU", "taskset, or the container's limit: give it two or more"),
            count => ok(format!("{count} for this process")),
        };
        check(Figures, "CPUs", "the embedded device's thread has one, job threads have the others", verdict);
        let verdict = match is_virtual(self.root) {
            true => limited(
                "this is a virtual machine",
                "compare on bare metal what is meant for it; `reap sim --costs bare-metal` simulates one",
            ),
            false => ok("no hypervisor shows itself"),
        };
        check(Figures, "bare metal", "in a virtual machine interrupts, timers and idling cost exits to the hypervisor", verdict);
        // Of the first CPU those that are not switched off, each with the microseconds that leaving it takes.
        let idle = "sys/devices/system/cpu/cpu0/cpuidle";
        let states = names(&self.root.join(idle));
        let state = |name: &String| {
            let said = |attribute: &str| text(&format!("{idle}/{name}/{attribute}"));
            let latency: u64 = said("latency").parse().unwrap_or(0);
            (said("disable") != "1" && latency > SHALLOW).then(|| format!("{} ({latency} µs)", said("name")))
        };
        let deep: Vec<String> = states.iter().filter_map(state).collect();
        let verdict = match deep[..] {
            _ if states.is_empty() => none("the system shows none"),
            [] => ok("all of them are shallow"),
            _ => limited(format!("deep ones are {}", deep.join(", ")), format!("cpupower idle-set -D {SHALLOW}")),
        };
        check(Figures, "idle states", "a CPU that sleeps deeply wakes late, which counts for modes that sleep", verdict);
        let verdict = match text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_str() {
            "" => none("the system does not govern it"),
            "performance" => ok("the governor is performance"),
            other => limited(format!("the governor is {other}"), "cpupower frequency-set -g performance"),
        };
        check(Figures, "frequency", "a CPU that clocks down while a mode sleeps is slower when it wakes", verdict);
        let load = text("proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        let verdict = match load {
            load if load < 0.5 => ok(format!("load average {load:.2}")),
            load => limited(format!("load average {load:.2}"), "end what else runs (`top` shows it), and wait a minute"),
        };
        check(Figures, "other work", "what others take of the CPUs is not the same for all modes", verdict);
        checks
    }

    fn locked_memory(&self, wanted: Wanted) -> Verdict {
        let command = "ulimit -l unlimited, as root; `USER - memlock unlimited` in /etc/security/limits.conf makes it last";
        let status = fs::read_to_string(self.root.join("proc/self/status")).unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        match self.memlock.filter(|_| effective >> CAP_IPC_LOCK & 1 == 0) {
            None => ok("not limited for this user"),
            Some(limit) if limit >= AMPLE => ok(format!("{} MiB", limit >> 20)),
            Some(limit) if limit < PIECE && wanted == Wanted::Pcie => {
                missing_one(format!("RLIMIT_MEMLOCK is {limit} bytes; the least is {PIECE}"), command)
            }
            Some(limit) => limited(format!("RLIMIT_MEMLOCK is {limit} bytes"), command),
        }
    }
}

#[cfg(test)]
mod tests;
