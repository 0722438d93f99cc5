use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use super::*;

fn work() {
    let before = thread_cpu();
    while thread_cpu() - before < Nanos::from_millis(2) {
        black_box(());
    }
}

#[test]
fn work_costs_cpu_time() {
    let (process, thread) = (process_cpu(), thread_cpu());
    work();
    assert!(thread_cpu() - thread >= Nanos::from_millis(2));
    assert!(process_cpu() > process);
}

#[test]
fn other_threads_clocks_are_readable() {
    let (give, take) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let worker = thread::spawn(move || {
        work();
        give.send((ThreadCpuClock::of_current().unwrap(), thread_cpu())).unwrap();
        _ = ended.recv();
    });
    let (clock, own) = take.recv().unwrap();
    assert!(clock.read().unwrap() >= own);
    drop(end);
    worker.join().unwrap();
}

#[test]
fn sleeps_last_until_their_instant() {
    set_timer_slack(Nanos(1)).unwrap();
    let until = now() + Nanos::from_micros(300);
    sleep_until(until);
    assert!(now() >= until);
    sleep_until(Nanos::ZERO);
    set_timer_slack(Nanos::ZERO).unwrap();
}

#[test]
fn usage_counts_faults_and_switches() {
    let before = thread_usage();
    while thread_usage().user + thread_usage().system == before.user + before.system {
        black_box(vec![1u8; 64 << 10]);
    }
    sleep_until(now() + Nanos::from_micros(100));
    let after = thread_usage();
    assert!(after.sleeps > before.sleeps && after.sleeps <= after.context_switches);
    assert!(after.minor_faults >= before.minor_faults);
}

#[test]
fn reaped_children_cost_cpu_time() {
    let before = children_cpu();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert!(children_cpu() > before);
}
