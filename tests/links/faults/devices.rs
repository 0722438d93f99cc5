//! Block devices that go away, or are not there.

use reap::{Device, IoError, Mode, OpenError, Request, TargetError, TargetFault};

use super::Written;
use crate::place::{BYTES, Loop, Scratch, options, run};
use crate::table::{skipped, watched};
use crate::work::{begin, drain, submit};

/// The kernel keeps a loop device that is open, and lets it go with its last user: requests go on, and then nothing is there.
#[test]
fn a_loop_device_that_is_detached_under_requests_stays_until_it_is_closed() {
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
        // What was acknowledged is in the file behind it.
        let device = Device::open_with(&format!("{}?lba=512", file.uri()), &options(1)).unwrap();
        written.is_there(&device.local_queue().unwrap());
        // From here on the node may be that of another test: it is neither detached again nor opened for writing.
        let node = looped.node.clone();
        std::mem::forget(looped);
        match Device::open_with(&format!("{uri}?readonly=yes"), &options(1)) {
            Ok(_) => assert!(run("losetup", &[&node.display().to_string()]).is_ok(), "nothing is attached to {uri}, which was opened"),
            Err(OpenError::Target(TargetError { fault, .. })) => {
                assert!(matches!(fault, TargetFault::Empty { device: true } | TargetFault::NoDevice(_)), "{fault}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Without its medium, as far as a loop device can be: the file behind it is empty.
#[test]
fn a_device_without_a_medium_fails_requests_and_hangs_none() {
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
            submit(&queue, (0..30).map(|n| Request::read(&ns, 4096 + 8 * n, device.buffer(4096).unwrap())));
            // Beyond its file's end a loop device reads zeros, or says so.
            for done in drain(&queue) {
                assert!(matches!(done.result, Ok(()) | Err(IoError::System(_))), "{:?}", done.result);
            }
        });
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0));
    }
}
