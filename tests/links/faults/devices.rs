//! Block devices that go away, or are not there.

use std::thread;
use std::time::{Duration, Instant};

use reap::{Device, IoError, Mode, OpenError, Request, TargetFault};

use super::Written;
use crate::place::{BYTES, Loop, Scratch, options, run};
use crate::table::{skipped, watched};
use crate::work::{begin, drain, submit};

/// What `open` opens, once nothing holds it any more.
fn once_let_go(open: impl Fn() -> Result<Device, OpenError>) -> Device {
    let since = Instant::now();
    loop {
        match open() {
            Err(OpenError::Kernel { fault: TargetFault::InUse(_), .. })
                if since.elapsed() < Duration::from_secs(60) =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// The kernel keeps a loop device that is open, and lets it go with its last user: requests go on,
/// and then nothing is there.
#[test]
fn detached_loop_device_stays_open() {
    for mode in [Mode::INTERRUPT, Mode::THREADED, Mode::ADAPTIVE] {
        let file = Scratch::new("detached", BYTES);
        let looped = match Loop::over(file.path()) {
            Ok(looped) => looped,
            Err(why) => return skipped(why),
        };
        let uri = format!("kernel:{}", looped.node.display());
        let device = Device::open_with(&uri, &options(1).mode(mode)).unwrap();
        let (queue, mut written) = (device.queue().unwrap(), Written::default());
        watched("a detached loop device", || {
            for round in 1..6 {
                begin(&queue, 30);
                if round == 3 {
                    run("losetup", &["--detach", &looped.node.display().to_string()]).unwrap();
                }
                drain(&queue).into_iter().for_each(|done| done.result.unwrap());
                written.write(&queue, (0..30).map(|n| 512 + 8 * n), round);
            }
            assert_eq!(written.errors, []);
            written.is_there(&queue);
        });
        drop((queue, device));
        // What was acknowledged is in the file behind it, which the kernel lets go of some time
        // after the last close.
        let device =
            once_let_go(|| Device::open_with(&format!("{}?lba=512", file.uri()), &options(1)));
        written.is_there(&device.local_queue().unwrap());
        // From here on the node may be that of another test: it is neither detached again nor
        // opened for writing.
        let node = looped.node.clone();
        std::mem::forget(looped);
        let is_others = || run("losetup", &[&node.display().to_string()]).is_ok();
        let before = is_others();
        match Device::open_with(&format!("{uri}?readonly=yes"), &options(1)).err() {
            Some(OpenError::Kernel { fault: TargetFault::NotFound(_), .. }) => {}
            other => {
                assert!(before || is_others(), "{uri}, to which nothing is attached: {other:?}")
            }
        }
    }
}

/// Without its medium, as far as a loop device can be: the file behind it is empty.
#[test]
fn missing_medium_fails_requests() {
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE] {
        let file = Scratch::new("emptied", BYTES);
        let looped = match Loop::over(file.path()) {
            Ok(looped) => looped,
            Err(why) => return skipped(why),
        };
        let uri = format!("kernel:{}", looped.node.display());
        let device = Device::open_with(&uri, &options(1).mode(mode)).unwrap();
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        begin(&queue, 30);
        file.resize(0);
        drain(&queue);
        watched("an emptied loop device", || {
            submit(
                &queue,
                (0..30).map(|n| Request::read(&ns, 4096 + 8 * n, device.buffer(4096).unwrap())),
            );
            // Beyond its file's end a loop device reads zeros, or says so.
            for done in drain(&queue) {
                assert!(
                    matches!(done.result, Ok(()) | Err(IoError::System(_))),
                    "{:?}",
                    done.result
                );
            }
        });
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0));
    }
}
