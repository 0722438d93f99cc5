use super::*;

fn machine(cpus: &[usize]) -> Machine {
    Machine::of(cpus.to_vec())
}

#[test]
fn the_last_cpu_is_the_devices() {
    assert_eq!(
        machine(&[0, 1, 2]),
        Machine {
            device: Some(2),
            job_cpus: vec![0, 1],
            external_device: false,
            placement_note: None
        }
    );
    assert_eq!(
        machine(&[3]),
        Machine { device: None, job_cpus: vec![3], external_device: false, placement_note: None }
    );
}

#[test]
fn threads_spread_over_allowed_cpus() {
    let machine = machine(&[0, 1, 2, 3, 4]);
    assert_eq!(machine.place(&[vec![], vec![], vec![], vec![], vec![]]), [0, 1, 2, 3, 0]);
    assert_eq!(machine.place(&[vec![1], vec![1, 2], vec![], vec![1, 2]]), [1, 2, 0, 1]);
}

#[test]
fn device_cpu_is_not_assigned() {
    assert_eq!(machine(&[0, 1]).place(&[vec![1], vec![7]]), [0, 0]);
}

#[test]
fn two_threads_per_cpu_oversubscribe() {
    let two = machine(&[0, 1, 2]);
    assert!(!two.oversubscribed(&[0, 1]));
    assert!(two.oversubscribed(&[0, 1, 0]));
    assert!(machine(&[0]).oversubscribed(&[0]), "the device needs a CPU too");
}

#[test]
fn no_device_frees_all_cpus() {
    let machine =
        Machine { device: None, job_cpus: vec![0, 1], external_device: true, placement_note: None };
    assert_eq!(machine.place(&[vec![], vec![]]), [0, 1]);
    assert!(!machine.oversubscribed(&[0, 1]) && machine.oversubscribed(&[0, 0]));
    assert!(machine.describe().contains("host threads on CPU 0-1; load"), "{}", machine.describe());
    assert_eq!((machine.cpus(), Machine::of(vec![0, 1, 2]).cpus()), (vec![0, 1], vec![0, 1, 2]));
}

#[test]
fn lists_are_short() {
    assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
}

#[test]
fn the_host_is_given_its_cpus() {
    let only = |host: &[usize]| machine(&[0, 1, 2]).only(host).map_err(|error| error.to_string());
    assert_eq!(
        only(&[1]),
        Ok(Machine {
            device: Some(2),
            job_cpus: vec![1],
            external_device: false,
            placement_note: None
        })
    );
    assert_eq!(
        only(&[2, 1]),
        Ok(Machine {
            device: Some(0),
            job_cpus: vec![2, 1],
            external_device: false,
            placement_note: None
        })
    );
    assert!(only(&[0, 3]).unwrap_err().contains("CPU 3; it may use 0-2"));
    assert!(only(&[0, 1, 2]).unwrap_err().contains("a CPU of its own"));
    let outside =
        Machine { device: None, job_cpus: vec![0, 1], external_device: true, placement_note: None };
    assert_eq!(outside.clone().only(&[1, 0]).unwrap(), Machine { job_cpus: vec![1, 0], ..outside });
}

#[test]
fn preferred_cpus_are_taken_first() {
    let mut machine = Machine {
        device: None,
        job_cpus: vec![0, 1, 2, 3],
        external_device: true,
        placement_note: None,
    };
    machine.prefer(&[2, 9, 1]);
    assert_eq!(machine.place(&[vec![], vec![], vec![], vec![0], vec![]]), [2, 1, 0, 0, 3]);
    assert_eq!(machine.allowed_by(&[1, 3, 7]), [1, 3]);
    assert!(machine.allowed_by(&[]).is_empty());
}
