use super::*;
use crate::{EventFd, now};

const NO_WAIT: Option<Nanos> = Some(Nanos::ZERO);

fn keys(poller: &Poller, timeout: Option<Nanos>) -> Vec<u64> {
    let mut keys = vec![99];
    poller.wait(timeout, &mut keys).unwrap();
    keys.sort_unstable();
    keys
}

#[test]
fn each_signal_is_reported_once() {
    let (poller, eventfd) = (Poller::new().unwrap(), EventFd::new().unwrap());
    poller.add(&eventfd, 5).unwrap();
    assert_eq!(keys(&poller, NO_WAIT), []);
    eventfd.signal();
    assert_eq!(keys(&poller, None), [5]);
    assert_eq!(keys(&poller, NO_WAIT), []);
    eventfd.signal();
    assert_eq!(keys(&poller, Some(Nanos::MAX)), [5]);
    assert_eq!((eventfd.drain(), eventfd.drain()), (2, 0));
}

/// Why the count is read without draining: another thread may read it between the signal and the
/// report to the sleeper.
#[test]
fn only_draining_consumes_wakeups() {
    let (poller, eventfd) = (Poller::new().unwrap(), EventFd::new().unwrap());
    poller.add(&eventfd, 5).unwrap();
    eventfd.signal();
    assert_eq!(eventfd.count().unwrap(), 1);
    assert_eq!(keys(&poller, NO_WAIT), [5]);
    (0..300).for_each(|_| eventfd.signal());
    assert_eq!(
        (eventfd.count().unwrap(), eventfd.drain(), eventfd.count().unwrap()),
        (301, 301, 0)
    );
    assert_eq!(keys(&poller, NO_WAIT), [], "drained signals are not reported");
}

#[test]
fn earlier_signals_are_reported() {
    let (poller, eventfd) = (Poller::new().unwrap(), EventFd::new().unwrap());
    eventfd.signal();
    poller.add(&eventfd, 5).unwrap();
    assert_eq!(keys(&poller, NO_WAIT), [5]);
}

#[test]
fn descriptors_are_added_once() {
    let (poller, eventfd) = (Poller::new().unwrap(), EventFd::new().unwrap());
    poller.add(&eventfd, 1).unwrap();
    assert_eq!(poller.add(&eventfd, 2).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    poller.remove(&eventfd).unwrap();
    assert_eq!(poller.remove(&eventfd).unwrap_err().kind(), io::ErrorKind::NotFound);
    eventfd.signal();
    assert_eq!(keys(&poller, NO_WAIT), []);
}

#[test]
fn excess_events_come_next_call() {
    let poller = Poller::new().unwrap();
    let eventfds: Vec<EventFd> = (0..100).map(|_| EventFd::new().unwrap()).collect();
    for (key, eventfd) in (0..).zip(&eventfds) {
        poller.add(eventfd, key).unwrap();
        eventfd.signal();
    }
    let mut all = keys(&poller, NO_WAIT);
    all.extend(keys(&poller, NO_WAIT));
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<u64>>());
}

#[test]
fn fallback_wait_is_the_same() {
    let (poller, eventfd, mut keys) = (Poller::new().unwrap(), EventFd::new().unwrap(), Vec::new());
    poller.add(&eventfd, 5).unwrap();
    poller.wait_without_pwait2(Some(&timespec(Nanos(1_500))), &mut keys).unwrap();
    assert_eq!(keys, []);
    eventfd.signal();
    poller.wait_without_pwait2(None, &mut keys).unwrap();
    assert_eq!(keys, [5]);
}

#[test]
fn timeouts_are_waited_out() {
    let poller = Poller::new().unwrap();
    let (before, timeout) = (now(), Nanos(1_234_567));
    assert_eq!(keys(&poller, Some(timeout)), []);
    assert!(now() - before >= timeout);
}

#[test]
fn pollers_nest_in_epoll() {
    let (inner, outer, eventfd) =
        (Poller::new().unwrap(), Poller::new().unwrap(), EventFd::new().unwrap());
    inner.add(&eventfd, 1).unwrap();
    outer.add(&inner, 2).unwrap();
    assert_eq!(keys(&outer, NO_WAIT), []);
    eventfd.signal();
    assert_eq!((keys(&outer, NO_WAIT), keys(&inner, NO_WAIT)), (vec![2], vec![1]));
}

/// A full socket in a poller; the other end makes room.
#[test]
fn writability_is_reported_on_request() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    let (mut near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&near, 5).unwrap();
    // Writable already, but not requested.
    assert_eq!(keys(&poller, NO_WAIT), []);
    poller.watch_writes(&near, 5, true).unwrap();
    assert_eq!(keys(&poller, NO_WAIT), [5 | Poller::WRITABLE]);
    let mut sent = 0;
    while let Ok(more) = near.write(&[7; 4096]) {
        sent += more;
    }
    assert_eq!(keys(&poller, NO_WAIT), []);
    far.write_all(&[1]).unwrap();
    assert_eq!(keys(&poller, None), [5]);
    far.read_exact(&mut vec![0; sent]).unwrap();
    assert!(keys(&poller, None).contains(&(5 | Poller::WRITABLE)));
    // Each change of the registration reports conditions that hold already once more.
    poller.watch_writes(&near, 5, false).unwrap();
    assert_eq!(keys(&poller, NO_WAIT), [5]);
    poller.watch_writes(&near, 5, true).unwrap();
    assert_eq!(keys(&poller, NO_WAIT), [5, 5 | Poller::WRITABLE]);
    let other = Poller::new().unwrap();
    assert_eq!(other.watch_writes(&near, 5, true).unwrap_err().kind(), io::ErrorKind::NotFound);
}
