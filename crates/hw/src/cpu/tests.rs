use std::thread;

use super::*;

#[test]
fn a_thread_is_pinned_to_a_cpu_that_it_may_use() {
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
fn a_cpu_that_the_machine_lacks_is_refused() {
    for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
        assert_eq!(pin(cpu).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_thread_may_step_back() {
    thread::spawn(|| sched_idle().unwrap()).join().unwrap();
}

#[test]
fn run_delay_never_shrinks() {
    let Ok(delay) = RunDelay::of_current() else { return };
    let first = delay.read();
    thread::yield_now();
    assert!(delay.read() >= first && run_delay() >= first);
}

#[test]
fn a_run_delay_tells_whose_it_is() {
    let Ok(delay) = RunDelay::of_current() else { return };
    assert!(delay.is_of_current());
    assert!(!thread::spawn(move || delay.is_of_current()).join().unwrap());
}
