mod nodes;

use std::thread;

use super::*;

#[test]
fn threads_are_pinned() {
    thread::spawn(|| {
        let allowed = allowed_cpus().unwrap();
        let last = *allowed.last().unwrap();
        pin(last).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [last]);
    })
    .join()
    .unwrap();
}

#[test]
fn missing_cpus_are_refused() {
    for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
        assert_eq!(pin(cpu).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn threads_may_become_idle_class() {
    thread::spawn(|| sched_idle().unwrap()).join().unwrap();
}

#[test]
fn run_delay_never_shrinks() {
    let Ok(delay) = RunDelay::of_current() else { return };
    let first = delay.read();
    thread::yield_now();
    assert!(delay.read() >= first);
}

#[test]
fn run_delays_know_their_thread() {
    let Ok(delay) = RunDelay::of_current() else { return };
    assert!(delay.is_of_current());
    assert!(!thread::spawn(move || delay.is_of_current()).join().unwrap());
}

#[test]
fn steal_is_the_eighth_field() {
    let stat = "cpu  9 9 9 9 9 9 9 99 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 30 9 10\ncpu10 0 0 0 0 0 0 0 500 0 0\nintr 1 2\n";
    assert_eq!(
        [steal(stat, &[0]), steal(stat, &[0, 1]), steal(stat, &[10]), steal(stat, &[2])],
        [8, 38, 500, 0]
    );
    assert_eq!(
        [steal("cpu0 1 2\n", &[0]), steal("", &[0]), steal("cpu0 a b c d e f g h\n", &[0])],
        [0, 0, 0]
    );
    let first = stolen_by_hypervisor(&allowed_cpus().unwrap());
    assert!(stolen_by_hypervisor(&allowed_cpus().unwrap()) >= first);
}

/// Also if the thread that started this one is pinned.
#[test]
fn avoided_cpus_are_left() {
    let all = allowed_cpus().unwrap();
    let ran_on = |cpu: usize| {
        let pinned = std::thread::spawn(move || {
            pin(cpu).unwrap();
            let other = std::thread::spawn(move || {
                avoid_cpu(cpu);
                (current_cpu(), allowed_cpus().unwrap())
            });
            other.join().unwrap()
        });
        pinned.join().unwrap()
    };
    for &cpu in &all {
        let (now, may) = ran_on(cpu);
        assert_eq!(
            all.len() > 1,
            now != cpu && may.iter().all(|&may| may != cpu),
            "{now} of {may:?}, without {cpu} of {all:?}"
        );
    }
}
