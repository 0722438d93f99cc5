use proptest::prelude::*;

use super::*;

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn files_are_read_below_the_root() {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "6.12.1-cloud\n"),
        ("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n"),
        ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisor sse\n"),
        ("proc/loadavg", "1.25 0.5 0.2 1/99 7\n"),
        ("lib/modules/6.12.1-cloud/modules.dep", "kernel/drivers/vfio/pci/vfio_pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\n"),
        ("dev/vfio/vfio", ""),
        ("sys/kernel/iommu_groups/3/type", "DMA"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C8\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/block/nvme0n1/nsid", "1\n"),
        ("sys/block/nvme0n1/queue/io_poll", "1\n"),
        ("sys/class/nvme-generic/ng0n1/dev", "240:0"),
        ("sys/bus/pci/devices/0000:01:00.0/class", "0x010802\n"),
        ("sys/bus/pci/drivers/vfio-pci/bind", ""),
    ] {
        file(root.path(), path, text);
    }
    let facts = Facts::at(root.path());
    assert_eq!((facts.kernel.as_str(), facts.hugepages, facts.transparent.as_str()), ("6.12.1-cloud", 7, "madvise"));
    assert_eq!((facts.iommu_groups, facts.memlock), (1, None), "CAP_IPC_LOCK");
    assert_eq!(facts.vfio, Vfio { loaded: true, module: true, container: true, iommufd: false });
    assert_eq!((facts.polls, facts.characters.len()), (vec![("nvme0n1".to_owned(), true)], 1));
    assert_eq!((facts.controllers.len(), facts.controllers[0].bdf.as_str()), (1, "0000:01:00.0"));
    let cpus = facts.cpus;
    assert_eq!(
        (cpus.virtual_machine, cpus.idle, cpus.governor.as_deref(), cpus.load),
        (true, vec![("C6".into(), 133)], Some("powersave"), 1.25)
    );
}

#[test]
fn empty_sysfs_yields_no_facts() {
    let root = tempfile::tempdir().unwrap();
    let facts = Facts::at(root.path());
    assert!(facts.controllers.is_empty() && facts.polls.is_empty() && facts.iommu_groups == 0);
    assert_eq!(facts.vfio, Vfio::default());
    assert!(!facts.cpus.virtual_machine && facts.cpus.allowed > 0);
}

proptest! {
    #[test]
    fn any_status_and_any_choice_is_read(status in ".{0,60}|CapEff:.{0,20}", choices in "[a-z\\[\\] ]{0,24}") {
        memlock(&status);
        let word = chosen(&choices);
        let marked = format!("[{word}]");
        prop_assert!(word.is_empty() || choices.split_whitespace().any(|choice| choice == marked));
    }
}
