use rustix::event::{EventfdFlags, eventfd};

use super::EventFd;

#[test]
fn one_of_another_process_never_waits() {
    // Blocking, and full.
    let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let full = (u64::MAX - 1).to_ne_bytes();
    rustix::io::write(&fd, &full).expect("written");
    let adopted = EventFd::adopt(fd).expect("adopted");
    adopted.signal();
    assert_eq!(adopted.drain(), u64::MAX - 1);
    adopted.signal();
    assert_eq!(adopted.drain(), 1);
}

#[test]
fn other_descriptors_are_refused() {
    let (pipe, _other) = std::io::pipe().expect("a pipe");
    assert!(EventFd::adopt(pipe.into()).is_err());
    let file = tempfile::tempfile().expect("a file");
    assert!(EventFd::adopt(file.into()).is_err());
}
