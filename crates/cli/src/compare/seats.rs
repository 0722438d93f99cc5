//! On which CPUs a comparison's job threads run. Each is pinned, so that no round differs from another by where its threads were, and to
//! where the completions of its device are found without a detour: of a disk of the kernel's, the CPU of its interrupt.

use std::path::Path;

use anyhow::{Context, Result};
use hw::block::Completing;
use reap::KernelUri;
use workload::plan::Plan;

use crate::args::Cpus;
use crate::machine::{Machine, list};

/// Where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// Of each thread of the plan, the CPUs that it is pinned to; none: it is not.
    pub threads: Vec<Vec<usize>>,
    /// All that job threads may be on, ascending, each once.
    pub used: Vec<usize>,
    /// Those on which they, or their device's interrupts, take time from others; ascending, each once.
    pub disturbed: Vec<usize>,
    /// The CPUs that the threads need, at most one for each.
    pub needed: usize,
    /// The device is no thread of this process.
    pub outside: bool,
    /// More threads than CPUs.
    pub oversubscribed: bool,
}

/// The machine with the CPUs of `--cpus` for the host.
///
/// # Errors
/// See [`Machine::only`].
pub fn given(machine: Machine, cpus: Option<&Cpus>) -> Result<Machine> {
    match cpus {
        None => Ok(machine),
        Some(Cpus(cpus)) => machine.only(&cpus.iter().map(|&cpu| cpu as usize).collect::<Vec<_>>()).context("--cpus"),
    }
}

impl Seats {
    /// For the threads of `plan`. The first of the devices, by their URIs, that is a disk's says which CPUs of `machine` are taken first,
    /// unless CPUs were `given`. `machine` says afterwards where they are, in words.
    pub fn new(root: &Path, plan: &Plan, machine: &mut Machine, devices: &[&str], given: bool) -> Seats {
        let wishes: Vec<Vec<u32>> = plan.threads.iter().map(|thread| thread.cpus.clone()).collect();
        let mut known = None;
        if machine.outside && !given {
            known = devices.iter().find_map(|uri| Completing::of(root, &uri.parse::<KernelUri>().ok()?.path));
            // CPUs that this process may not use are no seat.
            known = known.filter(|known| known.cpus.iter().any(|cpu| machine.host.contains(cpu)));
            known.iter().for_each(|known| machine.prefer(&known.cpus));
        }
        let pins = !machine.outside || given || known.is_some();
        let placed = machine.place(&wishes);
        let ascending = |mut cpus: Vec<usize>| {
            cpus.sort_unstable();
            cpus.dedup();
            cpus
        };
        let threads: Vec<Vec<usize>> =
            wishes.iter().zip(&placed).map(|(wish, &cpu)| if pins { vec![cpu] } else { machine.named(wish) }).collect();
        let free = threads.iter().any(Vec::is_empty);
        let used = ascending(if free { machine.host.clone() } else { threads.concat() });
        if machine.outside {
            let on = format!("threads on CPU {}", list(&used));
            machine.seated = Some(match &known {
                _ if given => format!("{on}, as --cpus says"),
                Some(known) if used.first().is_some_and(|cpu| used.len() == 1 && known.cpus.contains(cpu)) => {
                    let what = if known.by_interrupt { "interrupt" } else { "queue" };
                    format!("{on}, the CPU of {}'s {what}", known.disk)
                }
                Some(known) => {
                    let what = if known.by_interrupt { "interrupts" } else { "queues" };
                    format!("{on}; {}'s {what} are on CPU {}", known.disk, list(&ascending(known.cpus.clone())))
                }
                None => format!(
                    "threads not pinned, because the CPU of the device's interrupt is not known (--cpus says which); CPUs {}",
                    list(&used)
                ),
            });
        }
        // A device outside this process may interrupt any CPU.
        let disturbed = ascending(if machine.outside { [machine.host.clone(), used.clone()].concat() } else { used.clone() });
        let (needed, oversubscribed) = (ascending(placed.clone()).len(), machine.oversubscribed(&placed));
        Seats { threads, used, disturbed, needed, outside: machine.outside, oversubscribed }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use rustix::fs::{major, minor};
    use workload::fio::{self, Input};
    use workload::plan;

    use super::*;

    fn outside() -> Machine {
        Machine { device: None, host: vec![0, 1, 2], outside: true, seated: None }
    }

    fn plan_of(text: &str) -> Plan {
        plan::plan(&fio::parse(&[Input { name: "j", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs, &[0, 1, 2])
    }

    /// A root where a file stands on a disk with interrupts on CPUs 2 and 1, and the URI of that file.
    fn disk() -> (tempfile::TempDir, String) {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        fs::write(at("file"), "").unwrap();
        let number = fs::metadata(root.path().join("file")).unwrap().dev();
        fs::write(at("sys/devices/0000:02/nvme/nvme0/nvme0n1/size"), "8").unwrap();
        symlink(
            root.path().join("sys/devices/0000:02/nvme/nvme0/nvme0n1"),
            at(&format!("sys/dev/block/{}:{}", major(number), minor(number))),
        )
        .unwrap();
        for (irq, handler, cpu) in [("30", "nvme0q0", "0"), ("31", "nvme0q1", "2"), ("32", "nvme0q2", "1")] {
            fs::write(at(&format!("sys/devices/0000:02/msi_irqs/{irq}")), "msix").unwrap();
            fs::write(at(&format!("proc/irq/{irq}/effective_affinity_list")), cpu).unwrap();
            fs::create_dir(at(&format!("proc/irq/{irq}/{handler}"))).unwrap();
        }
        let uri = format!("kernel:{}", root.path().join("file").display());
        (root, uri)
    }

    #[test]
    fn threads_go_to_the_interrupts_of_the_disk() {
        let (root, uri) = disk();
        let seats = |jobs: &str| {
            let mut machine = outside();
            let seats = Seats::new(root.path(), &plan_of(jobs), &mut machine, &["mem:1G", &uri], false);
            (seats.threads, seats.disturbed, machine.seated.unwrap())
        };
        let one = "threads on CPU 2, the CPU of nvme0n1's interrupt".to_owned();
        assert_eq!(seats("[a]\n"), (vec![vec![2]], vec![0, 1, 2], one));
        let three = "threads on CPU 0-2; nvme0n1's interrupts are on CPU 1-2".to_owned();
        assert_eq!(seats("[a]\nnumjobs=3\n"), (vec![vec![2], vec![1], vec![0]], vec![0, 1, 2], three));
        // What a job names is not overruled.
        assert_eq!(seats("[a]\ncpus_allowed=0\n").0, [[0]]);
    }

    #[test]
    fn where_nothing_is_known_nothing_is_pinned() {
        let (root, mut machine) = (tempfile::tempdir().unwrap(), outside());
        let seats = Seats::new(root.path(), &plan_of("[a]\n[b]\ncpus_allowed=1\n"), &mut machine, &["pcie:0000:01:00.0"], false);
        assert_eq!((seats.threads, seats.used, seats.needed), (vec![vec![], vec![1]], vec![0, 1, 2], 2));
        assert!(machine.seated.unwrap().starts_with("threads not pinned, because"));
    }

    #[test]
    fn given_cpus_are_taken() {
        let (root, uri) = disk();
        let mut machine = given(outside(), Some(&Cpus(vec![0, 1]))).unwrap();
        let seats = Seats::new(root.path(), &plan_of("[a]\n"), &mut machine, &[&uri], true);
        assert_eq!((seats.threads, machine.seated.unwrap().as_str()), (vec![vec![0]], "threads on CPU 0, as --cpus says"));
        assert!(format!("{:#}", given(outside(), Some(&Cpus(vec![5]))).unwrap_err()).starts_with("--cpus: this process may not use CPU 5"));
    }

    #[test]
    fn an_embedded_device_leaves_all_as_it_is() {
        let mut machine = Machine { device: Some(1), host: vec![0], outside: false, seated: None };
        let seats = Seats::new(Path::new("/"), &plan_of("[a]\n"), &mut machine, &["mem:1G"], false);
        assert_eq!((seats.threads, seats.disturbed, machine.seated), (vec![vec![0]], vec![0], None));
    }
}
