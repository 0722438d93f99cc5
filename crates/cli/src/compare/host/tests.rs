use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// Computes until this thread has had so much more.
fn compute(span: Nanos) {
    let end = hw::thread_cpu() + span;
    while hw::thread_cpu() < end {}
}

const SOME: Nanos = Nanos::from_millis(20);

#[test]
fn what_is_done_beside_job_threads_is_told_from_what_they_do() {
    let ((tell, told), (go, gone)) = (channel(), channel::<()>());
    let job = thread::spawn(move || {
        tell.send(Clocks::of_current().unwrap()).unwrap();
        _ = gone.recv();
        compute(SOME);
        _ = gone.recv();
    });
    let host = Host::new(vec![told.recv().unwrap()], hw::allowed_cpus().unwrap());
    let before = host.read();
    go.send(()).unwrap();
    thread::spawn(|| compute(SOME)).join().unwrap();
    compute(SOME);
    let after = host.read();
    // The job and the asking thread are no part of it. Other tests of this process are, so there is no upper limit.
    assert!(before.beside(&after) >= SOME, "{:?}", before.beside(&after));
    drop(go);
    job.join().unwrap();
}

#[test]
fn nothing_that_shrinks_is_a_disturbance() {
    let reading = |away, beside| Reading { away: Nanos(away), beside: Nanos(beside) };
    let (a, b) = (reading(10, 20), reading(15, 50));
    assert_eq!((a.away(&b), a.beside(&b)), (Nanos(5), Nanos(30)));
    assert_eq!((b.away(&a), b.beside(&a)), (Nanos::ZERO, Nanos::ZERO));
}
