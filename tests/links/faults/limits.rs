//! Limits of the process and its user: memory that may be locked, descriptors, permissions.

use std::fmt::Debug;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use reap::{Device, Mode, OpenError, QueueError, TargetFault};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use tracing::field::{Field, Visit};
use tracing::span;

use super::{fault, is_child, passes, start, start_as, told};
use crate::place::{BYTES, Scratch, options};
use crate::table::skipped;
use crate::work::Job;

/// Runs the test in a process of nobody's, with a directory of its own. Skipped where this is not
/// root's.
fn as_nobody(test: &str, wrapper: &[&str]) {
    if !getuid().is_root() {
        return skipped("only root can run a program as nobody");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("links");
    let own = std::env::current_exe().unwrap();
    // Where the build's directory is nobody cannot go.
    if fs::hard_link(&own, &program).is_err() {
        fs::copy(&own, &program).unwrap();
    }
    fs::write(dir.path().join("roots"), vec![0; 1 << 20]).unwrap();
    fs::set_permissions(dir.path().join("roots"), Permissions::from_mode(0o600)).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let wrapper: Vec<&str> = nobody.iter().chain(wrapper).copied().collect();
    passes(start_as(
        &program.display().to_string(),
        test,
        &wrapper,
        &dir.path().display().to_string(),
    ));
}

#[test]
fn forbidden_open_says_what_helps() {
    if !is_child() {
        return as_nobody("faults::limits::forbidden_open_says_what_helps", &[]);
    }
    let dir = told();
    let why = fault(&format!("kernel:{dir}/roots"));
    assert!(
        matches!(&why, TargetFault::Permission { what, .. } if what.contains("reading and writing") && what.contains("the file's mode")),
        "{why}"
    );
    assert!(why.to_string().contains("readonly=yes"), "{why}");
    let why = fault(&format!("kernel:{dir}/roots?readonly=yes"));
    assert!(
        matches!(&why, TargetFault::Permission { what, .. } if what.contains("for reading (") && what.contains("the file's mode")),
        "{why}"
    );
    assert!(
        matches!(fault("kernel:/nobody-may-write-here?size=1M"), TargetFault::Permission { what, .. } if what.contains("no file can be made"))
    );
    if fs::metadata("/dev/loop0").is_ok() {
        assert!(matches!(
            fault("kernel:/dev/loop0"),
            TargetFault::Permission { .. } | TargetFault::NotFound(_)
        ));
    }
    // What is readable can be read.
    fs::write(format!("{dir}/own"), vec![0; 1 << 20]).unwrap();
    fs::set_permissions(format!("{dir}/own"), Permissions::from_mode(0o400)).unwrap();
    assert!(matches!(fault(&format!("kernel:{dir}/own")), TargetFault::Permission { .. }));
    let device = Device::open_with(&format!("kernel:{dir}/own?readonly=yes"), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    queue.block_on(queue.read(&ns, 0, device.buffer(4096).unwrap())).unwrap().0.unwrap();
}

/// Counts the warnings of a kind.
struct Warnings(&'static str, &'static AtomicU32);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(Mutex<String>);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
                self.0.lock().unwrap().push_str(&format!("{value:?} "));
            }
        }
        let mut text = Text(Mutex::default());
        event.record(&mut text);
        let text = text.0.into_inner().unwrap();
        println!("said: {text}");
        if text.contains(self.0) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Buffers are then used unregistered, which is said once for the device. Where the kernel counts
/// rings too there is none without.
#[test]
fn memlock_zero_is_reported_once() {
    if !is_child() {
        let name = "faults::limits::memlock_zero_is_reported_once";
        for limit in ["--memlock=0:0", "--memlock=1048576:1048576"] {
            as_nobody(name, &["prlimit", limit]);
        }
        return;
    }
    static SAID: AtomicU32 = AtomicU32::new(0);
    tracing::subscriber::set_global_default(Warnings("unregistered", &SAID)).unwrap();
    let limit = getrlimit(Resource::Memlock).current.unwrap();
    let path = format!("{}/locked", told());
    fs::write(&path, vec![0; BYTES as usize]).unwrap();
    let device = match Device::open_with(&format!("kernel:{path}"), &options(2)) {
        Ok(device) => device,
        Err(why) => {
            let why = why.to_string();
            assert!(
                limit == 0
                    && why.contains("RLIMIT_MEMLOCK is 0 bytes")
                    && why.contains("ulimit -l"),
                "{limit}: {why}"
            );
            return;
        }
    };
    for mode in Mode::ALL {
        device.set_mode(mode);
        Job::of(1).run(&once_freed(|| device.queue()));
        Job { fused: true, ..Job::of(2) }.run(&once_freed(|| device.local_queue()));
    }
    let region =
        device.register(reap::Pages::new(1 << 20).unwrap()).map_err(|(why, _)| why).unwrap();
    let (queue, ns) = (once_freed(|| device.queue()), device.namespaces()[0]);
    queue.block_on(queue.write(&ns, 0, region.buffer(0..65536).unwrap())).unwrap().0.unwrap();
    assert_eq!(SAID.load(Ordering::Relaxed), 1, "once for the device");
}

/// The kernel frees a ring some time after it is closed, and until then counts its memory against
/// the user's limit.
fn once_freed<Q>(take: impl Fn() -> Result<Q, QueueError>) -> Q {
    let since = Instant::now();
    loop {
        match take() {
            Err(QueueError::Ring(_)) if since.elapsed() < Duration::from_secs(60) => {
                thread::sleep(Duration::from_millis(5))
            }
            taken => return taken.unwrap(),
        }
    }
}

/// With a descriptor more each time, until it works: an error that says what was wanted, never a
/// panic, and nothing that stays.
#[test]
fn missing_descriptors_refuse_then_recover() {
    if !is_child() {
        passes(start("faults::limits::missing_descriptors_refuse_then_recover", &[], "child"));
        return;
    }
    let file = Scratch::new("descriptors", BYTES);
    let limit = getrlimit(Resource::Nofile);
    let allow = |current| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum })
            .unwrap()
    };
    let open = || Device::open_with(&file.uri(), &options(3).mode(Mode::THREADED));
    // The housekeeping thread has its own, which stay.
    drop(open().unwrap());
    let (mut refusals, mut descriptors) = (0, 3);
    let device = loop {
        allow(descriptors);
        match open() {
            Ok(device) => break device,
            Err(why) => {
                println!("{descriptors}: {why}");
                assert!(
                    matches!(why, OpenError::Kernel { .. } | OpenError::System { .. }),
                    "{why:?}"
                );
                refusals += 1;
            }
        }
        descriptors += 1;
        assert!(descriptors < 1000, "never opened");
    };
    assert!(refusals > 0);
    let mut rings = 0;
    let queue = loop {
        allow(descriptors);
        match device.queue() {
            Ok(queue) => break queue,
            Err(why) => {
                println!("{descriptors}: {why}");
                assert!(matches!(why, QueueError::Ring(_) | QueueError::System { .. }), "{why:?}");
                rings += u32::from(matches!(why, QueueError::Ring(_)));
            }
        }
        descriptors += 1;
        assert!(descriptors < 1000, "no queue was ever had");
    };
    assert!(rings > 0, "the ring is never what is refused");
    // With none to spare it works; another queue is refused, and had later.
    Job::of(1).run(&queue);
    assert!(device.queue().is_err());
    allow(limit.current.unwrap_or(1024));
    let others = [device.queue().unwrap(), device.queue().unwrap()];
    others.iter().zip(2..).for_each(|(queue, owner)| Job::of(owner).run(queue));
}

/// As a container's filter does, or a kernel without it.
#[test]
fn filtered_io_uring_is_reported() {
    if !is_child() {
        for errno in ["EPERM", "ENOSYS"] {
            passes(start("faults::limits::filtered_io_uring_is_reported", &[], errno));
        }
        return;
    }
    let file = Scratch::new("filtered", BYTES);
    // A device that was opened before goes on; a queue is a new ring.
    let device = Device::open_with(&file.uri(), &options(2)).unwrap();
    let queue = device.queue().unwrap();
    let (errno, words) = match &*told() {
        "EPERM" => (Errno::PERM, "seccomp"),
        _ => (Errno::NOSYS, "older than 5.1"),
    };
    forbid_rings(errno);
    Job::of(1).run(&queue);
    assert!(matches!(device.queue(), Err(QueueError::Ring(_))));
    drop((queue, device));
    let why = fault(&file.uri());
    assert!(matches!(&why, TargetFault::Kernel(why) if why.contains(words)), "{why}");
}

/// From now on io_uring_setup(2) is answered with `errno` in this thread.
fn forbid_rings(errno: Errno) {
    const IO_URING_SETUP: i64 = 425;
    let answer = SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(
        [(IO_URING_SETUP, Vec::new())].into(),
        SeccompAction::Allow,
        answer,
        arch,
    )
    .unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}
