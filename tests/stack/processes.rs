//! What can only be told in a process of its own: which CPUs the library's threads may run on, and
//! what a forked child is told. Each test runs itself once more.

use std::fs;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::forked::in_fork;
use reap::serve;
use reap::{Device, IoError, OpenError, Refused, Request};

/// Set in the process that a test has started.
const CHILD: &str = "REAP_TEST_ALONE";

/// Runs `work` as the only test of a process.
fn alone(test: &str, work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", &format!("processes::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

/// Where each of this process's threads may run, by name.
fn threads() -> Vec<(String, String)> {
    let tasks =
        fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok).map(|task| task.path());
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    let told = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    told.map(|status| (field(&status, "Name"), field(&status, "Cpus_allowed_list"))).collect()
}

/// Waits until the thread of this name may run on these CPUs. A thread names itself when it begins,
/// and is moved then.
fn until_it_runs_on(name: &str, cpus: &str) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !threads().iter().any(|(other, allowed)| other == name && allowed == cpus) {
        assert!(Instant::now() < limit, "{name} does not come to run on {cpus}: {:?}", threads());
        thread::sleep(Duration::from_millis(1));
    }
}

/// A worker that is pinned to its CPU opens a device: what looks after all devices of the process
/// is not to wait for that CPU.
#[test]
fn threads_do_not_inherit_pinning() {
    alone("threads_do_not_inherit_pinning", || {
        let cpus = hw::allowed_cpus().unwrap();
        if cpus.len() < 2 {
            println!("skipped: there is one CPU");
            return;
        }
        let device = thread::spawn(move || {
            hw::pin(cpus[0]).unwrap();
            Device::open("mem:1M?profile=null").unwrap()
        });
        let device = device.join().unwrap();
        let anywhere =
            threads().into_iter().find(|(name, _)| !name.starts_with("reap-")).unwrap().1;
        for name in ["reap-housekeep", "reap-device"] {
            until_it_runs_on(name, &anywhere);
        }
        drop(device);
    });
}

/// The threads that look after devices are the parent's. A child is told so, at once, by whatever
/// it does; the parent goes on.
#[test]
fn forked_child_cannot_open() {
    alone("forked_child_cannot_open", || {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let uris = ["mem:1M?profile=null".to_owned(), format!("kernel:{}", file.path().display())];
        let device = Device::open(&uris[0]).unwrap();
        for uri in &uris {
            let refused = || matches!(Device::open(uri), Err(OpenError::Forked));
            assert!(in_fork(refused), "{uri}");
        }
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let (buf, forked) = (queue.buffer(4096).unwrap(), Err(IoError::Refused(Refused::Forked)));
        let uses = || {
            let batch = queue.submit([Request::read(&ns, 0, buf)]);
            let Err((Refused::Forked, _)) = batch else { return false };
            queue.wait(1, None).is_ok()
                && queue.block_on(queue.flush(&ns)).is_ok_and(|result| result == forked)
        };
        assert!(in_fork(uses), "the parent's device");
        queue.block_on(queue.flush(&ns)).unwrap().unwrap();
    });
}

/// Counts what is unpinned.
#[derive(Debug)]
struct Pinned;

static UNPINNED: AtomicU32 = AtomicU32::new(0);

impl hw::Pinner for Pinned {
    fn pin(&self, _: hw::Chunk, _: Option<(BorrowedFd<'_>, u64)>) -> std::io::Result<()> {
        Ok(())
    }

    fn unpin(&self, _: hw::Chunk) {
        UNPINNED.fetch_add(1, Relaxed);
    }
}

/// What a child has at the addresses of its parent's buffers is its own.
#[test]
fn forked_child_gets_no_buffers() {
    alone("forked_child_gets_no_buffers", || {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for uri in ["mem:1M?profile=null".to_owned(), format!("kernel:{}", file.path().display())] {
            let device = Device::open(&uri).unwrap();
            let queue = device.queue().unwrap();
            let region = device
                .register(reap::Pages::new(1 << 20).unwrap())
                .map_err(|(why, _)| why)
                .unwrap();
            // One that no thread of the library keeps, pinned.
            let options =
                hw::PoolOptions { pinner: Some(Arc::new(Pinned)), ..hw::PoolOptions::default() };
            let pool = options.open(64 << 20).unwrap();
            let of_pool = pool.alloc(4096).unwrap();
            let (mut held, of_region) =
                (device.buffer(1 << 20).unwrap(), region.buffer(0..4096).unwrap());
            held.fill(7);
            let inherited = |held: &mut reap::DmaBuf| {
                let read = catch_unwind(AssertUnwindSafe(|| {
                    held.iter().map(|&byte| u64::from(byte)).sum::<u64>()
                }))
                .is_err();
                let written = catch_unwind(AssertUnwindSafe(|| held.fill(1))).is_err();
                read && written && catch_unwind(AssertUnwindSafe(|| of_region[0])).is_err()
            };
            let harmless = || {
                // As large as the pool's mapping: where the parent has that, the child has these.
                let own: Vec<Vec<u8>> = (0..64).map(|_| vec![3; 8 << 20]).collect();
                let refused = matches!(device.buffer(4096), Err(reap::AllocError::Forked))
                    && matches!(queue.buffer(4096), Err(reap::AllocError::Forked))
                    && matches!(region.buffer(8192..12288), Err(reap::RangeError::Forked))
                    && matches!(
                        device.register(reap::Pages::new(4096).unwrap()),
                        Err((reap::RegisterError::Forked, _))
                    );
                let (mut held, device, queue) = (held, device, queue);
                let refused = inherited(&mut held) && refused;
                drop(held);
                drop(of_pool);
                drop(pool);
                drop(queue);
                drop(device);
                refused
                    && UNPINNED.load(Relaxed) == 0
                    && own.iter().flatten().all(|&byte| byte == 3)
            };
            UNPINNED.store(0, Relaxed);
            assert!(in_fork(harmless), "{uri}");
        }
    });
}

/// What guards the files that are written to is of one process, and a child is another.
#[test]
fn forked_child_cannot_serve_locked_file() {
    alone("forked_child_cannot_serve_locked_file", || {
        let dir = tempfile::tempdir().unwrap();
        let uri = format!("file:{}?size=1M", dir.path().join("image").display()).parse().unwrap();
        let serve = |socket| serve::open(&uri, &dir.path().join(socket), None);
        let server = serve("socket").unwrap();
        assert!(in_fork(
            || serve("other").is_err_and(|why| why.to_string().contains("has locked it"))
        ));
        drop(server);
        serve("socket").unwrap();
    });
}
