use super::*;

fn machine(cpus: &[usize]) -> Machine {
    Machine::of(cpus.to_vec())
}

#[test]
fn the_last_cpu_is_the_devices() {
    assert_eq!(machine(&[0, 1, 2]), Machine { device: Some(2), host: vec![0, 1], outside: false });
    assert_eq!(machine(&[3]), Machine { device: None, host: vec![3], outside: false });
}

#[test]
fn threads_spread_over_the_cpus_they_may_use() {
    let machine = machine(&[0, 1, 2, 3, 4]);
    assert_eq!(machine.place(&[vec![], vec![], vec![], vec![], vec![]]), [0, 1, 2, 3, 0]);
    assert_eq!(machine.place(&[vec![1], vec![1, 2], vec![], vec![1, 2]]), [1, 2, 0, 1]);
}

#[test]
fn a_wish_for_the_devices_cpu_is_no_wish() {
    assert_eq!(machine(&[0, 1]).place(&[vec![1], vec![7]]), [0, 0]);
}

#[test]
fn two_threads_on_a_cpu_are_one_too_many() {
    let two = machine(&[0, 1, 2]);
    assert!(!two.oversubscribed(&[0, 1]));
    assert!(two.oversubscribed(&[0, 1, 0]));
    assert!(machine(&[0]).oversubscribed(&[0]), "the device needs a CPU too");
}

#[test]
fn without_an_embedded_device_all_cpus_are_the_hosts() {
    let machine = Machine { device: None, host: vec![0, 1], outside: true };
    assert_eq!(machine.place(&[vec![], vec![]]), [0, 1]);
    assert!(!machine.oversubscribed(&[0, 1]) && machine.oversubscribed(&[0, 0]));
    assert!(machine.describe().contains("host threads on CPU 0-1; load"), "{}", machine.describe());
    assert_eq!((machine.cpus(), Machine::of(vec![0, 1, 2]).cpus()), (vec![0, 1], vec![0, 1, 2]));
}

#[test]
fn lists_are_short() {
    assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
}
