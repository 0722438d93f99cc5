use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use hw::Poller;

use super::*;

/// A thread with the drain thread's calls: `started`, then sleep until there is no user.
fn begin(drain: &Arc<Drain>, begun: &mpsc::Sender<()>) -> io::Result<JoinHandle<()>> {
    let (drain, begun) = (drain.clone(), begun.clone());
    let poller = Poller::new()?;
    poller.add(&drain.wake, 0)?;
    std::thread::Builder::new().spawn(move || {
        drain.started();
        begun.send(()).unwrap();
        let mut events = Vec::new();
        while !drain.finish_if_unused() {
            drain.wake.arm();
            if drain.has_users() {
                poller.wait(None, &mut events).unwrap();
            }
            drain.wake.disarm();
        }
    })
}

#[test]
fn drain_thread_ends_with_last_queue() {
    let drain = Arc::new(Drain::new().unwrap());
    let (begun, begins) = mpsc::channel();
    let engage = || drain.acquire(|| begin(&drain, &begun));
    assert!(!drain.is_running() && !drain.has_users());
    assert_eq!(drain.cpu(), Nanos::ZERO);
    let mut spent = Nanos::ZERO;
    for _ in 0..2 {
        engage().unwrap();
        begins.recv().unwrap();
        engage().unwrap();
        assert!(drain.is_running() && drain.has_users());
        let running = drain.cpu();
        assert!(running > spent, "what the thread has spent so far counts beside what others had");
        drain.release();
        assert!(drain.is_running() && drain.has_users(), "one queue is left in the mode");
        drain.release();
        assert!(!drain.is_running() && !drain.has_users());
        spent = drain.cpu();
        assert!(spent >= running);
        assert!(begins.try_recv().is_err(), "a thread for each of them");
    }
}

#[test]
fn failed_drain_threads_change_nothing() {
    let drain = Arc::new(Drain::new().unwrap());
    assert!(drain.acquire(|| Err(io::ErrorKind::WouldBlock.into())).is_err());
    assert!(!drain.is_running() && !drain.has_users());
    let (begun, begins) = mpsc::channel();
    drain.acquire(|| begin(&drain, &begun)).unwrap();
    begins.recv().unwrap();
    drain.release();
    assert!(!drain.is_running());
}
