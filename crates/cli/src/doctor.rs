//! `reap doctor`: checks what Reap needs of this machine, and shows a command for each problem. It
//! only reads files, so tests run it on a made-up root directory.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use hw::block::Disk;
use hw::pci::{Function, SysfsPci};
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

/// Number of CAP_IPC_LOCK (capabilities(7)), with which RLIMIT_MEMLOCK does not apply.
const CAP_IPC_LOCK: u32 = 14;
/// Unit in bytes in which `pcie:` devices pin memory.
const PIECE: u64 = 4 << 20;
/// Locked memory in bytes that is enough for most jobs.
const AMPLE: u64 = 256 << 20;
/// Idle states with an exit latency up to this, in microseconds, hardly affect the latency of
/// drives.
const SHALLOW: u64 = 10;
/// Columns before the text of a check.
const INDENT: usize = 32;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    /// The requirement is met.
    Ok,
    /// What needs it works, but not as well as it could.
    Limited,
    /// What needs it does not work.
    Missing,
    /// The check does not apply here.
    None,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
struct Check {
    /// What has this requirement.
    #[serde(rename = "for")]
    wanted: Wanted,
    name: &'static str,
    state: CheckState,
    /// What was found.
    found: String,
    /// Why it matters.
    why: &'static str,
    /// How to fix it, if anything has to be fixed.
    command: Option<String>,
}

/// Runs `reap doctor`.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let here = System {
        root: Path::new("/"),
        uring: Features::probe(),
        trace: trace::missing_requirements().iter().map(ToString::to_string).collect(),
        memlock: getrlimit(Resource::Memlock).current,
        cpus: hw::allowed_cpus().map_or(0, |cpus| cpus.len()),
    };
    let mut checks = here.checks();
    // With --for only the checks asked for are shown.
    checks.retain(|check| args.wanted.is_empty() || args.wanted.contains(&check.wanted));
    let mut wanted = args.wanted.clone();
    // Without a drive a missing IOMMU is not a problem.
    if wanted.is_empty() {
        let drives = SysfsPci::system().controllers().is_ok_and(|all| !all.is_empty());
        wanted = [Wanted::Kernel, Wanted::Pcie][..1 + usize::from(drives)].to_vec();
    }
    wanted.sort();
    wanted.dedup();
    let possible = missing(&checks, &wanted).is_empty();
    output::print(&if args.layout.is_json() {
        serde_json::to_string_pretty(
            &json!({ "wanted": wanted, "possible": possible, "checks": checks }),
        )? + "\n"
    } else {
        text(&checks, &wanted, table::width().into())
    })?;
    Ok(if possible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Names of the missing checks among those for `wanted`.
fn missing(checks: &[Check], wanted: &[Wanted]) -> Vec<&'static str> {
    checks
        .iter()
        .filter(|check| check.state == CheckState::Missing && wanted.contains(&check.wanted))
        .map(|check| check.name)
        .collect()
}

/// The results as text of `width` columns. Commands are not wrapped, because they are copied.
fn text(checks: &[Check], wanted: &[Wanted], width: usize) -> String {
    let below = |line: &str| {
        wrap(line, width.saturating_sub(INDENT).max(30))
            .trim_end()
            .replace('\n', &format!("\n{:INDENT$}", ""))
    };
    let mut out = String::new();
    let mut before = None;
    for check in checks {
        if before != Some(check.wanted) {
            let heading = match check.wanted {
                Wanted::Kernel => "kernel: (files and block devices, by io_uring)",
                Wanted::Pcie => "pcie: (NVMe drives without the kernel's driver)",
                Wanted::Trace => "reap trace (this machine's kernel)",
                Wanted::Figures => "figures (reproducible measurements)",
            };
            out += &format!("{}{heading}\n", if before.is_some() { "\n" } else { "" });
            before = Some(check.wanted);
        }
        let state = match check.state {
            CheckState::Ok => "ok",
            CheckState::Limited => "limited",
            CheckState::Missing => "MISSING",
            CheckState::None => "-",
        };
        let (found, why) = (below(&escape(&check.found)), below(check.why));
        out += &format!("  {state:8} {:20} {found}\n{:INDENT$}{why}\n", check.name, "");
        if let Some(command) = &check.command {
            out += &format!("{:INDENT$}→ {}\n", "", escape(command));
        }
    }
    let names = missing(checks, wanted);
    let wanted: Vec<String> =
        wanted.iter().map(|wanted| format!("{wanted:?}").to_lowercase()).collect();
    out + &match names.is_empty() {
        true => format!("\nNothing is missing for {}.\n", wanted.join(", ")),
        false => format!("\nMissing for {}: {}.\n", wanted.join(", "), names.join(", ")),
    }
}

/// State, what was found, and how to fix it.
type Verdict = (CheckState, String, Option<String>);

fn ok(found: impl Into<String>) -> Verdict {
    (CheckState::Ok, found.into(), None)
}

fn none(found: impl Into<String>) -> Verdict {
    (CheckState::None, found.into(), None)
}

fn limited(found: impl Into<String>, command: impl Into<String>) -> Verdict {
    (CheckState::Limited, found.into(), Some(command.into()))
}

fn missing_one(found: impl Into<String>, command: impl Into<String>) -> Verdict {
    (CheckState::Missing, found.into(), Some(command.into()))
}

/// The system to check. The first fields were determined by system calls; everything else is read
/// from files below `root`.
struct System<'a> {
    root: &'a Path,
    uring: Result<Features, Unavailable>,
    /// Why `reap trace` does not work.
    trace: Vec<String>,
    /// RLIMIT_MEMLOCK in bytes; `None`: not limited.
    memlock: Option<u64>,
    /// CPUs that this process may use.
    cpus: usize,
}

impl System<'_> {
    /// All checks, grouped by what needs them.
    fn checks(&self) -> Vec<Check> {
        use Wanted::{Figures, Kernel, Pcie, Trace};
        let mut checks = Vec::new();
        let mut check = |wanted, name, why, (state, found, command): Verdict| {
            checks.push(Check { wanted, name, state, found, why, command });
        };
        let text = |path: &str| {
            fs::read_to_string(self.root.join(path)).unwrap_or_default().trim().to_owned()
        };
        let exists = |path: &str| self.root.join(path).exists();
        let opens = |path: String, how| access(self.root.join(path), how).is_ok();
        let kernel = text("proc/sys/kernel/osrelease");
        let bus = SysfsPci::at(&self.root.join("sys/bus/pci"));
        let controllers = bus.controllers().unwrap_or_default();

        let verdict = match &self.uring {
            Err(error) => missing_one(error.why.clone(), error.remedy),
            Ok(features) if !features.timeouts || !features.keeps_overflow || !features.shared => {
                missing_one(
                    format!("Linux {kernel} is too old for io_uring devices"),
                    "boot Linux 5.19 or newer",
                )
            }
            Ok(features) => {
                let newer = [
                    (features.owner, "single-issuer rings (6.1)"),
                    (features.min_wait, "waits for several completions (6.12)"),
                    (features.io_poll, "polled I/O (IOPOLL)"),
                    (features.hybrid_io_poll, "hybrid polled I/O (6.13)"),
                    (features.sq_poll, "SQPOLL for this user"),
                    (features.big, "NVMe passthrough (5.19)"),
                ];
                let lacking: Vec<&str> =
                    newer.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect();
                match lacking.is_empty() {
                    true => ok(format!("Linux {kernel} has all features that Reap uses")),
                    false => limited(
                        format!("Linux {kernel} lacks {}", lacking.join(", ")),
                        "boot a newer kernel",
                    ),
                }
            }
        };
        check(
            Kernel,
            "io_uring",
            "`kernel:` devices use it; newer features save system calls or add modes",
            verdict,
        );
        let namespaces: Vec<Disk> =
            Disk::all(self.root).into_iter().filter(|disk| disk.nsid().is_some()).collect();
        let characters = names(&self.root.join("sys/class/nvme-generic"));
        let closed =
            characters.iter().filter(|name| !opens(format!("dev/{name}"), Access::READ_OK));
        let closed: Vec<String> = closed.map(|name| format!("/dev/{name}")).collect();
        let verdict = match closed[..] {
            _ if namespaces.is_empty() => none("no namespaces of the kernel's nvme driver"),
            _ if characters.is_empty() => limited(
                format!("Linux {kernel} has no character devices of namespaces"),
                "boot Linux 5.19 or newer",
            ),
            [] => ok(format!("{} namespaces can be opened", characters.len())),
            _ => limited(
                format!("this user may not open {}", closed.join(", ")),
                format!("chown $USER {}", closed.join(" ")),
            ),
        };
        check(
            Kernel,
            "NVMe passthrough",
            "requests to `kernel:/dev/ng0n1` bypass the kernel's block layer",
            verdict,
        );
        let without: Vec<String> = namespaces
            .iter()
            .filter(|disk| disk.queue("io_poll") != Some(1))
            .map(Disk::name)
            .collect();
        let verdict = match without[..] {
            _ if namespaces.is_empty() => none("no namespaces of the kernel's nvme driver"),
            [] => ok(format!("{} namespaces have some", namespaces.len())),
            _ => {
                // nvme reads poll_queues only when it binds a drive, which must not be in use then.
                let first = controllers
                    .iter()
                    .find(|controller| controller.driver().as_deref() == Some("nvme"));
                let again = first.map_or_else(String::new, |Function { bdf, .. }| {
                    let driver = "/sys/bus/pci/drivers/nvme";
                    format!(", and, if it is not in use, echo {bdf} >{driver}/unbind; echo {bdf} >{driver}/bind")
                });
                limited(
                    format!("{} have none", without.join(", ")),
                    format!("echo 2 >/sys/module/nvme/parameters/poll_queues{again}"),
                )
            }
        };
        check(
            Kernel,
            "poll queues",
            "without them `kernel:` devices use interrupts even in polled modes, and kernel-iopoll is not available",
            verdict,
        );
        let why = "io_uring is faster with registered buffers, which are locked in memory";
        check(Kernel, "locked memory", why, self.locked_memory(Kernel));
        let count: u64 =
            text("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").parse().unwrap_or(0);
        let choices = text("sys/kernel/mm/transparent_hugepage/enabled");
        let verdict = match (
            count,
            ["[always]", "[madvise]"].iter().any(|choice| choices.contains(choice)),
        ) {
            (0, true) => ok(format!("transparent huge pages ({choices}); none reserved")),
            (0, false) => limited(
                "none reserved, and transparent huge pages are off",
                "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, or sysctl vm.nr_hugepages=64",
            ),
            (count, _) => ok(format!("{count} of 2 MiB reserved")),
        };
        check(
            Kernel,
            "huge pages",
            "buffers in 2 MiB pages have fewer TLB misses and are registered faster",
            verdict,
        );

        let groups = names(&self.root.join("sys/kernel/iommu_groups")).len();
        let verdict = match groups {
            0 => missing_one(
                "the kernel has no IOMMU group",
                "enable VT-d or AMD-Vi in the firmware; on Intel add intel_iommu=on to the kernel command line; reboot",
            ),
            groups => ok(format!("{groups} groups")),
        };
        check(
            Pcie,
            "IOMMU",
            "restricts a drive's DMA to memory that Reap maps; required by vfio-pci",
            verdict,
        );
        // Module names may have `-` or `_`, as for modprobe(8).
        let listed = |file: &str| {
            text(&format!("lib/modules/{kernel}/{file}")).replace('_', "-").contains("/vfio-pci.ko")
        };
        let loaded = bus.has_driver("vfio-pci");
        let verdict = match (loaded, listed("modules.dep") || listed("modules.builtin")) {
            (true, _) => ok("loaded"),
            (false, true) => limited("not loaded; `reap bind` loads it", "modprobe vfio-pci"),
            (false, false) => missing_one(
                format!("Linux {kernel} has no module of that name"),
                "boot a kernel with CONFIG_VFIO_PCI, such as Debian's",
            ),
        };
        check(
            Pcie,
            "vfio-pci",
            "the kernel driver that gives user space access to drives",
            verdict,
        );
        let verdict = match (exists("dev/vfio/vfio"), loaded || exists("dev/iommu")) {
            (true, _) => ok("/dev/vfio/vfio exists"),
            (false, true) => missing_one(
                "no /dev/vfio/vfio",
                "modprobe vfio_iommu_type1; else boot a kernel with CONFIG_VFIO_CONTAINER or CONFIG_IOMMUFD_VFIO_CONTAINER",
            ),
            (false, false) => none("VFIO is not loaded"),
        };
        check(
            Pcie,
            "VFIO containers",
            "Reap maps memory through /dev/vfio/vfio; iommufd is not supported",
            verdict,
        );
        let ours: Vec<&Function> = controllers
            .iter()
            .filter(|found| found.driver().as_deref() == Some("vfio-pci"))
            .collect();
        let group_opens =
            |group: u32| opens(format!("dev/vfio/{group}"), Access::READ_OK | Access::WRITE_OK);
        let closed =
            ours.iter().find(|found| found.iommu_group().is_some_and(|group| !group_opens(group)));
        let verdict = match (controllers.first(), ours.first(), closed) {
            (None, ..) => missing_one(
                "no NVMe controller on the PCI bus",
                "install a drive; mem: and file: need none",
            ),
            (Some(first), None, _) => limited(
                format!("{} on the bus, none bound to vfio-pci", controllers.len()),
                format!("reap bind {}, if it is not in use", first.bdf),
            ),
            (_, _, Some(Function { bdf, .. })) => limited(
                format!("this user may not open {bdf}"),
                format!("reap bind {bdf} --user $USER, as root"),
            ),
            (_, Some(_), None) => {
                ok(format!("{} of {} can be used", ours.len(), controllers.len()))
            }
        };
        check(
            Pcie,
            "NVMe drives",
            "`pcie:` devices are drives bound to vfio-pci that this user may open",
            verdict,
        );
        // Other functions in the drives' groups that have a kernel driver, except bridges.
        let mut shared = Vec::new();
        for controller in &controllers {
            let others = controller.group_members().unwrap_or_default();
            for other in
                others.iter().filter(|other| other.bdf != controller.bdf && !other.is_bridge())
            {
                let driver = other.driver().filter(|driver| driver != "vfio-pci");
                shared.extend(driver.map(|driver| format!("{} ({driver})", other.bdf)));
            }
        }
        let verdict = match shared[..] {
            _ if controllers.is_empty() || groups == 0 => none("no drive in an IOMMU group"),
            [] => ok("no drive shares a group with a device that has a kernel driver"),
            _ => limited(
                format!("a drive's group has {}", shared.join(", ")),
                "bind each of them to vfio-pci, or move the drive to another slot",
            ),
        };
        check(
            Pcie,
            "IOMMU groups",
            "all devices of a drive's IOMMU group must be bound to vfio-pci",
            verdict,
        );
        check(
            Pcie,
            "locked memory",
            "memory for DMA is pinned in units of 4 MiB",
            self.locked_memory(Pcie),
        );

        // Each missing requirement of `trace` has its own remedy in its text.
        let verdict = match self.trace.is_empty() {
            true => ok("supported by this `reap`, user and kernel"),
            false => missing_one(
                self.trace.join("; "),
                "sudo reap trace, by a `reap` built with --features ebpf, on Linux 5.15 or newer with BTF",
            ),
        };
        check(
            Trace,
            "eBPF",
            "`reap trace` counts completions per interrupt in the kernel",
            verdict,
        );

        let verdict = match self.cpus {
            0 | 1 => missing_one(
                "host and device threads share one CPU",
                "allow two or more (taskset, or the container's limit)",
            ),
            count => ok(format!("{count} for this process")),
        };
        check(
            Figures,
            "CPUs",
            "the embedded device's thread has one, job threads have the others",
            verdict,
        );
        let verdict = match is_virtual(self.root) {
            true => limited(
                "this is a virtual machine",
                "compare on bare metal for results that apply there; `reap sim --costs bare-metal` simulates one",
            ),
            false => ok("no hypervisor was found"),
        };
        check(
            Figures,
            "bare metal",
            "in a virtual machine interrupts, timers and idle states cause VM exits",
            verdict,
        );
        // The enabled idle states of the first CPU with a long exit latency in microseconds.
        let idle = "sys/devices/system/cpu/cpu0/cpuidle";
        let states = names(&self.root.join(idle));
        let state = |name: &String| {
            let said = |attribute: &str| text(&format!("{idle}/{name}/{attribute}"));
            let latency: u64 = said("latency").parse().unwrap_or(0);
            (said("disable") != "1" && latency > SHALLOW)
                .then(|| format!("{} ({latency} µs)", said("name")))
        };
        let deep: Vec<String> = states.iter().filter_map(state).collect();
        let verdict = match deep[..] {
            _ if states.is_empty() => none("not reported"),
            [] => ok("all are shallow"),
            _ => limited(
                format!("deep: {}", deep.join(", ")),
                format!("cpupower idle-set -D {SHALLOW}"),
            ),
        };
        check(
            Figures,
            "idle states",
            "leaving a deep idle state takes long, which affects modes that sleep",
            verdict,
        );
        let verdict = match text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_str() {
            "" => none("no cpufreq governor"),
            "performance" => ok("the governor is performance"),
            other => {
                limited(format!("the governor is {other}"), "cpupower frequency-set -g performance")
            }
        };
        check(
            Figures,
            "frequency",
            "a CPU that lowers its frequency while idle is slow after a wake-up",
            verdict,
        );
        let load = text("proc/loadavg")
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok())
            .unwrap_or(0.0);
        let verdict = match load {
            load if load < 0.5 => ok(format!("load average {load:.2}")),
            load => limited(
                format!("load average {load:.2}"),
                "stop other programs (see `top`), and wait a minute",
            ),
        };
        check(Figures, "other work", "other programs affect modes differently", verdict);
        checks
    }

    fn locked_memory(&self, wanted: Wanted) -> Verdict {
        let command = "ulimit -l unlimited, as root; `USER - memlock unlimited` in /etc/security/limits.conf makes it last";
        let status = fs::read_to_string(self.root.join("proc/self/status")).unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective =
            effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        match self.memlock.filter(|_| effective >> CAP_IPC_LOCK & 1 == 0) {
            None => ok("not limited for this user"),
            Some(limit) if limit >= AMPLE => ok(format!("{} MiB", limit >> 20)),
            Some(limit) if limit < PIECE && wanted == Wanted::Pcie => missing_one(
                format!("RLIMIT_MEMLOCK is {limit} bytes; the minimum is {PIECE}"),
                command,
            ),
            Some(limit) => limited(format!("RLIMIT_MEMLOCK is {limit} bytes"), command),
        }
    }
}

#[cfg(test)]
mod tests;
