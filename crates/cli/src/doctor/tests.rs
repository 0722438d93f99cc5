use proptest::prelude::*;

use super::*;

fn check(wanted: Wanted, state: CheckState) -> Check {
    Check {
        wanted,
        name: "thing",
        state,
        found: "found\u{1b}".into(),
        why: "it matters",
        command: Some("mend".into()),
    }
}

#[test]
fn only_wanted_checks_decide_status() {
    let checks =
        [check(Wanted::Kernel, CheckState::Limited), check(Wanted::Pcie, CheckState::Missing)];
    assert_eq!(missing(&checks, &[Wanted::Kernel]).len(), 0);
    assert_eq!(missing(&checks, &[Wanted::Kernel, Wanted::Pcie]).len(), 1);
}

#[test]
fn checks_print_reason_and_command() {
    let text = text(
        &[check(Wanted::Kernel, CheckState::Ok), check(Wanted::Pcie, CheckState::Missing)],
        &[Wanted::Pcie],
        120,
    );
    assert!(text.contains("  MISSING  thing                found?\n"), "{text}");
    assert!(
        text.contains("it matters\n")
            && text.contains("→ mend\n")
            && text.ends_with("\nMissing for pcie: thing.\n"),
        "{text}"
    );
}

/// Text is wrapped to the terminal; commands, which are copied, are not.
#[test]
fn text_wraps_and_commands_do_not() {
    let command =
        "reap bind 0000:01:00.0 --user somebody && reap doctor --for pcie --for kernel --for trace";
    let long = Check {
        found: "found at last ".repeat(12),
        command: Some(command.into()),
        ..check(Wanted::Pcie, CheckState::Missing)
    };
    let text = text(&[long], &[Wanted::Pcie], 80);
    assert!(text.contains(command), "{text}");
    let longest =
        text.lines().filter(|line| !line.contains('→')).map(|line| line.chars().count()).max();
    assert!(longest <= Some(80) && text.lines().count() > 6, "{text}");
}

/// Files of a machine on which nothing is missing: a drive that the kernel has, and one of
/// vfio-pci's.
const SOUND: [(&str, &str); 20] = [
    ("proc/sys/kernel/osrelease", "6.12.1-cloud\n"),
    ("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n"),
    ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu sse\n"),
    ("proc/loadavg", "0.25 0.5 0.2 1/99 7\n"),
    (
        "lib/modules/6.12.1-cloud/modules.dep",
        "kernel/drivers/vfio/pci/vfio_pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\n",
    ),
    ("dev/vfio/vfio", ""),
    ("dev/vfio/3", ""),
    ("dev/ng0n1", ""),
    ("sys/kernel/iommu_groups/3/type", "DMA"),
    ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("sys/block/nvme0n1/nsid", "1\n"),
    ("sys/block/nvme0n1/queue/io_poll", "1\n"),
    ("sys/class/nvme-generic/ng0n1/dev", "240:0"),
    ("sys/bus/pci/devices/0000:01:00.0/class", "0x010802\n"),
    ("sys/bus/pci/devices/0000:01:00.1/class", "0x020000\n"),
    ("sys/bus/pci/drivers/vfio-pci/bind", ""),
];

fn sound() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in SOUND {
        write(root.path(), path, text);
    }
    let at = |path: &str| root.path().join(path);
    let device = at("sys/bus/pci/devices/0000:01:00.0");
    std::os::unix::fs::symlink(at("sys/bus/pci/drivers/vfio-pci"), device.join("driver")).unwrap();
    std::os::unix::fs::symlink(at("sys/kernel/iommu_groups/3"), device.join("iommu_group"))
        .unwrap();
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn here(root: &Path) -> System<'_> {
    System {
        root,
        uring: Err(Unavailable {
            why: "it is switched off".into(),
            remedy: "sysctl kernel.io_uring_disabled=0",
        }),
        trace: Vec::new(),
        memlock: None,
        cpus: 4,
    }
}

fn named(here: &System<'_>, wanted: Wanted, name: &str) -> Check {
    let found =
        here.checks().into_iter().find(|check| check.wanted == wanted && check.name == name);
    found.unwrap_or_else(|| panic!("no {wanted:?} {name}"))
}

#[test]
fn sound_machine_has_no_complaints() {
    let root = sound();
    let complaints: Vec<_> = here(root.path())
        .checks()
        .into_iter()
        .filter(|check| check.state != CheckState::Ok)
        .collect();
    assert_eq!(
        complaints.iter().map(|check| check.name).collect::<Vec<_>>(),
        ["io_uring"],
        "{complaints:?}"
    );
}

/// What is written to a file, or the file that goes away.
type Change = (&'static str, Option<&'static str>);

#[test]
fn each_lack_names_its_command() {
    use Wanted::{Figures, Kernel, Pcie};
    let cases: [(Wanted, &str, CheckState, &str, Change); 12] = [
        (
            Kernel,
            "io_uring",
            CheckState::Missing,
            "sysctl kernel.io_uring_disabled=0",
            ("proc/loadavg", Some("0.1")),
        ),
        (
            Kernel,
            "poll queues",
            CheckState::Limited,
            "nvme/parameters/poll_queues",
            ("sys/block/nvme0n1/queue/io_poll", Some("0")),
        ),
        (
            Kernel,
            "NVMe passthrough",
            CheckState::Limited,
            "chown $USER /dev/ng0n1",
            ("dev/ng0n1", None),
        ),
        (Kernel, "huge pages", CheckState::Limited, "vm.nr_hugepages", (SOUND[9].0, Some("0"))),
        (Pcie, "IOMMU", CheckState::Missing, "intel_iommu=on", ("sys/kernel/iommu_groups", None)),
        (
            Pcie,
            "vfio-pci",
            CheckState::Limited,
            "modprobe vfio-pci",
            ("sys/bus/pci/drivers/vfio-pci", None),
        ),
        (
            Pcie,
            "VFIO containers",
            CheckState::Missing,
            "CONFIG_VFIO_CONTAINER",
            ("dev/vfio/vfio", None),
        ),
        (
            Pcie,
            "NVMe drives",
            CheckState::Limited,
            "reap bind 0000:01:00.0,",
            ("sys/bus/pci/devices/0000:01:00.0/driver", None),
        ),
        (
            Pcie,
            "NVMe drives",
            CheckState::Limited,
            "reap bind 0000:01:00.0 --user",
            ("dev/vfio/3", None),
        ),
        (
            Pcie,
            "NVMe drives",
            CheckState::Missing,
            "mem: and file: need none",
            ("sys/bus/pci/devices/0000:01:00.0", None),
        ),
        (
            Figures,
            "bare metal",
            CheckState::Limited,
            "--costs bare-metal",
            ("proc/cpuinfo", Some("flags : fpu hypervisor sse\n")),
        ),
        (
            Figures,
            "idle states",
            CheckState::Limited,
            "idle-set -D 10",
            (SOUND[12].0, Some("133\n")),
        ),
    ];
    for (wanted, name, state, command, (path, text)) in cases {
        let root = sound();
        let at = root.path().join(path);
        match text {
            Some(text) => write(root.path(), path, text),
            None if at.is_dir() && !at.is_symlink() => fs::remove_dir_all(at).unwrap(),
            None => fs::remove_file(at).unwrap(),
        }
        let check = named(&here(root.path()), wanted, name);
        assert_eq!(check.state, state, "{wanted:?} {name}: {check:?}");
        assert!(check.command.as_ref().is_some_and(|text| text.contains(command)), "{check:?}");
    }
}

#[test]
fn limits_of_this_process_count() {
    let root = sound();
    let low = System {
        memlock: Some(64 << 10),
        trace: vec!["no BTF".into()],
        cpus: 1,
        ..here(root.path())
    };
    for (wanted, name, state, command) in [
        (Wanted::Kernel, "locked memory", CheckState::Limited, "ulimit -l"),
        (Wanted::Pcie, "locked memory", CheckState::Missing, "ulimit -l"),
        (Wanted::Trace, "eBPF", CheckState::Missing, "sudo"),
        (Wanted::Figures, "CPUs", CheckState::Missing, "two or more"),
    ] {
        let check = named(&low, wanted, name);
        assert!(
            check.state == state
                && check.command.as_ref().is_some_and(|text| text.contains(command)),
            "{check:?}"
        );
    }
    write(root.path(), "proc/self/status", "CapEff:\t0000000000004000\n");
    assert_eq!(named(&low, Wanted::Pcie, "locked memory").state, CheckState::Ok, "CAP_IPC_LOCK");
}

#[test]
fn shared_iommu_group_is_limited() {
    let root = sound();
    let at = |path: &str| root.path().join(path);
    fs::create_dir_all(at("sys/bus/pci/drivers/e1000e")).unwrap();
    std::os::unix::fs::symlink(
        at("sys/bus/pci/drivers/e1000e"),
        at("sys/bus/pci/devices/0000:01:00.1/driver"),
    )
    .unwrap();
    let members = at("sys/kernel/iommu_groups/3/devices");
    fs::create_dir_all(&members).unwrap();
    for bdf in ["0000:01:00.0", "0000:01:00.1"] {
        std::os::unix::fs::symlink(at("sys/bus/pci/devices").join(bdf), members.join(bdf)).unwrap();
    }
    let check = named(&here(root.path()), Wanted::Pcie, "IOMMU groups");
    assert!(
        check.state == CheckState::Limited && check.found.contains("0000:01:00.1 (e1000e)"),
        "{check:?}"
    );
}

#[test]
fn empty_sysfs_is_no_error() {
    let root = tempfile::tempdir().unwrap();
    let here = here(root.path());
    assert_eq!(named(&here, Wanted::Pcie, "NVMe drives").state, CheckState::Missing);
    assert_eq!(named(&here, Wanted::Pcie, "VFIO containers").state, CheckState::None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_file_makes_whole_checks(texts in prop::collection::vec("\\PC{0,12}|[0-9:x]{0,6}|CapEff:.{0,20}|\\[[a-z\\]]{0,9}", 20), memlock: Option<u64>) {
        let root = sound();
        for ((path, _), text) in SOUND.iter().zip(&texts) {
            write(root.path(), path, text);
        }
        for check in (System { memlock, ..here(root.path()) }).checks() {
            prop_assert!(!check.found.is_empty() && !check.why.is_empty());
            prop_assert_eq!(check.command.is_some(), matches!(check.state, CheckState::Limited | CheckState::Missing), "{:?}", check);
        }
    }
}
