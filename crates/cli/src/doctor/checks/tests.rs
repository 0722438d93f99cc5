use std::path::PathBuf;

use proptest::prelude::*;

use hw::uring::Unavailable;

use super::super::facts::{Cpus, Vfio};
use super::*;

/// What it is for, its name, how it is, what its command has, and what breaks it.
type Case = (Wanted, &'static str, State, &'static str, fn(&mut Facts));

/// A machine on which nothing is missing.
fn sound() -> Facts {
    Facts {
        kernel: "6.18".into(),
        uring: Err(Unavailable { why: "it is switched off".into(), remedy: "sysctl kernel.io_uring_disabled=0" }),
        characters: vec![("/dev/ng0n1".into(), true)],
        polls: vec![("nvme0n1".into(), true)],
        controllers: vec![Controller {
            bdf: "0000:01:00.0".into(),
            driver: Some("vfio-pci".into()),
            group: Some(("/dev/vfio/3".into(), true)),
            in_the_way: Vec::new(),
        }],
        trace: Vec::new(),
        memlock: None,
        hugepages: 8,
        transparent: "never".into(),
        iommu_groups: 4,
        vfio: Vfio { loaded: true, module: true, container: true, iommufd: false },
        cpus: Cpus { allowed: 4, virtual_machine: false, idle: vec![("C1".into(), 2)], governor: Some("performance".into()), load: 0.1 },
    }
}

fn check(facts: &Facts, wanted: Wanted, name: &str) -> Check {
    let all = all(facts);
    all.into_iter().find(|check| check.wanted == wanted && check.name == name).unwrap_or_else(|| panic!("no {wanted:?} {name}"))
}

#[test]
fn sound_machine_has_no_complaints() {
    let complaints: Vec<_> = all(&sound()).into_iter().filter(|check| check.state != State::Ok).map(|check| check.name).collect();
    assert_eq!(complaints, ["io_uring", "its newer features"]);
}

#[test]
fn each_lack_names_its_command() {
    let cases: [Case; 13] = [
        (Wanted::Kernel, "io_uring", State::Missing, "sysctl kernel.io_uring_disabled=0", |_| {}),
        (Wanted::Kernel, "poll queues", State::Limited, "echo 2 >/sys/module/nvme/parameters/poll_queues", |f| f.polls[0].1 = false),
        (Wanted::Kernel, "NVMe passthrough", State::Limited, "chown $USER /dev/ng0n1", |f| f.characters[0].1 = false),
        (Wanted::Kernel, "locked memory", State::Limited, "ulimit -l", |f| f.memlock = Some(64 << 10)),
        (Wanted::Pcie, "locked memory", State::Missing, "ulimit -l", |f| f.memlock = Some(64 << 10)),
        (Wanted::Kernel, "huge pages", State::Limited, "vm.nr_hugepages", |f| f.hugepages = 0),
        (Wanted::Pcie, "IOMMU", State::Missing, "intel_iommu=on", |f| f.iommu_groups = 0),
        (Wanted::Pcie, "vfio-pci", State::Limited, "modprobe vfio-pci", |f| f.vfio.loaded = false),
        (Wanted::Pcie, "VFIO containers", State::Missing, "CONFIG_VFIO_CONTAINER", |f| f.vfio.container = false),
        (Wanted::Pcie, "NVMe drives", State::Limited, "reap bind 0000:01:00.0", |f| f.controllers[0].driver = Some("nvme".into())),
        (Wanted::Pcie, "NVMe drives", State::Missing, "mem: and file: need none", |f| f.controllers.clear()),
        (Wanted::Trace, "eBPF", State::Missing, "sudo", |f| f.trace.push("no BTF".into())),
        (Wanted::Figures, "CPUs", State::Missing, "two or more", |f| f.cpus.allowed = 1),
    ];
    for (wanted, name, state, command, breaks) in cases {
        let mut facts = sound();
        breaks(&mut facts);
        let check = check(&facts, wanted, name);
        assert_eq!(check.state, state, "{wanted:?} {name}: {check:?}");
        assert!(check.command.as_ref().is_some_and(|text| text.contains(command)), "{check:?}");
    }
}

#[test]
fn foreign_vfio_group_is_limited() {
    let mut facts = sound();
    facts.controllers[0].group = Some((PathBuf::from("/dev/vfio/3"), false));
    facts.controllers[0].in_the_way = vec!["0000:01:00.1 (nvme)".into()];
    assert!(check(&facts, Wanted::Pcie, "NVMe drives").command.unwrap().starts_with("reap bind 0000:01:00.0 --user"));
    assert!(check(&facts, Wanted::Pcie, "IOMMU groups").found.contains("0000:01:00.1 (nvme)"));
}

proptest! {
    #[test]
    fn whatever_the_facts_each_check_is_whole(
        (memlock, hugepages, groups, allowed) in (any::<Option<u64>>(), any::<u64>(), 0usize..3, 0usize..3),
        (loaded, module, container, iommufd) in any::<(bool, bool, bool, bool)>(),
        (polls, opens, drives, virtual_machine) in any::<(bool, bool, bool, bool)>(),
        (load, governor) in (any::<f64>(), any::<Option<String>>()),
    ) {
        let mut facts = sound();
        (facts.memlock, facts.hugepages, facts.iommu_groups, facts.cpus.allowed) = (memlock, hugepages, groups, allowed);
        facts.vfio = Vfio { loaded, module, container, iommufd };
        (facts.polls[0].1, facts.characters[0].1, facts.cpus.virtual_machine) = (polls, opens, virtual_machine);
        (facts.cpus.load, facts.cpus.governor) = (load, governor);
        if !drives {
            facts.controllers.clear();
        }
        for check in all(&facts) {
            prop_assert!(!check.found.is_empty() && !check.why.is_empty());
            prop_assert_eq!(check.command.is_some(), matches!(check.state, State::Limited | State::Missing), "{:?}", check);
        }
    }
}
