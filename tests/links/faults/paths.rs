//! Sockets of one served subsystem as paths of one device: one goes, and the requests go another
//! way.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use reap::serve::ask;
use reap::{Device, IoError, Mode, OpenOptions, PathLink, Queue};

use super::eventually;
use super::peer::Process;
use crate::place::{Served, options};
use crate::table::{skipped, watched};
use crate::work::{Job, begin, drain};

pub(super) fn paths_of(uris: impl Iterator<Item = String>, more: &str) -> String {
    format!(
        "multipath:?{}{more}",
        uris.map(|uri| format!("path={}", uri.replace('&', "%26"))).collect::<Vec<_>>().join("&")
    )
}

fn open(served: &Served, more: &str, options: OpenOptions) -> Device {
    let uri = paths_of(served.uris(), more);
    Device::open_with(&uri, &options).unwrap_or_else(|e| panic!("{uri}: {e}"))
}

/// Something happens at a socket.
fn fault(served: &Served, path: usize, what: &str) {
    let uri = served.uris().nth(path).unwrap();
    ask(uri.trim_start_matches("vfio-user:").as_ref(), &format!("fault {what}")).unwrap();
}

pub(super) fn wait_for(device: &Device, path: usize, link: PathLink) {
    eventually(&format!("path {path} is not {link:?}"), || {
        device.paths()[path].status.link == link
    });
}

/// One of two paths is lost, and requests go on by the other.
pub(super) fn is_left(device: &Device, path: usize) {
    wait_for(device, path, PathLink::Lost);
    is_used(device, 1 - path);
}

/// Many requests go that way.
pub(super) fn is_used(device: &Device, path: usize) {
    let before = device.paths()[path].ios;
    eventually(&format!("path {path} is not used"), || device.paths()[path].ios > before + 500);
}

/// Two threads write and read what they have written, for as long as something happens.
pub(super) fn under_load(device: &Device, what: &str, happens: impl FnOnce()) {
    let over = AtomicBool::new(false);
    watched(what, || {
        thread::scope(|scope| {
            for owner in 0..2 {
                let (queue, over): (Queue, _) = (device.queue().unwrap(), &over);
                scope.spawn(move || {
                    for generation in 0.. {
                        Job { generation, ..Job::of(owner) }.run(&queue);
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            happens();
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn two_sockets_are_two_paths() {
    for more in ["", "&sgl=yes&doorbells=mapped"] {
        let served = Served::several(&format!("mem:16M?profile=optane{more}"), 2);
        for mode in [Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE, Mode::POSTED] {
            let device = open(&served, "&policy=round-robin", options(2).mode(mode));
            watched(&format!("{mode} {more}"), || {
                thread::scope(|scope| {
                    for owner in 0..2 {
                        let queue = device.queue().unwrap();
                        scope.spawn(move || {
                            Job::of(owner).run(&queue);
                            Job {
                                requests: 20,
                                bytes: 64 << 10,
                                depth: 8,
                                generation: 2,
                                ..Job::of(owner)
                            }
                            .run(&queue);
                        });
                    }
                });
            });
            let (paths, health) = (device.paths(), device.health());
            assert!(
                paths.iter().all(|path| path.ios > 0
                    && path.failed == 0
                    && path.status.link == PathLink::Live),
                "{mode}: {paths:?}"
            );
            assert_eq!(
                (health.resets, device.counters().leaked_bytes),
                (0, 0),
                "{mode}: {health:?}"
            );
        }
    }
}

/// What was inside is carried out on the other path, by its own buffer where the lost one may still
/// write to the first.
#[test]
fn closed_socket_loses_nothing() {
    let served = Served::several("mem:16M?profile=optane", 2);
    let device = open(&served, "&policy=round-robin&keep_alive=2s", options(2));
    under_load(&device, "a socket that goes", || {
        for path in [1, 0, 1] {
            fault(&served, path, "lost");
            is_left(&device, path);
            fault(&served, path, "back");
            wait_for(&device, path, PathLink::Live);
        }
    });
    let paths = device.paths();
    assert!(
        paths.iter().all(|path| path.status.link == PathLink::Live && path.in_flight == 0),
        "{paths:?}"
    );
    assert!(
        paths.iter().any(|path| path.failed > 0),
        "no request was inside when its path went: {paths:?}"
    );
}

/// A controller that takes commands and answers none: they are given back once they are overdue.
#[test]
fn silent_socket_is_left() {
    let served = Served::several("mem:16M?profile=optane", 2);
    let device =
        open(&served, "&policy=round-robin", options(1).timeout(Duration::from_millis(300)));
    let queue = device.queue().unwrap();
    fault(&served, 0, "hold");
    watched("a socket that is silent", || Job::of(0).run(&queue));
    fault(&served, 0, "release");
    wait_for(&device, 0, PathLink::Live);
    watched("both again", || Job { generation: 2, ..Job::of(0) }.run(&queue));
}

/// With the process all paths are gone: requests fail when nobody waits for a path any longer, and
/// none hangs.
#[test]
fn killed_server_fails_all_paths() {
    let process = Process::several(2);
    let device = Device::open_with(
        &paths_of(process.uris(), "&no_path_timeout=300ms&held_timeout=1s"),
        &options(1),
    )
    .unwrap();
    let queue = device.queue().unwrap();
    Job::of(0).run(&queue);
    begin(&queue, 12);
    drop(process);
    let since = Instant::now();
    let ended = watched("paths that are gone", || drain(&queue));
    assert_eq!(ended.len(), 12);
    for done in ended {
        assert!(
            matches!(done.result, Ok(()) | Err(IoError::OutcomeUnknown { .. } | IoError::Path(_))),
            "{:?}",
            done.result
        );
    }
    println!("ended after {:?}", since.elapsed());
    wait_for(&device, 0, PathLink::Lost);
    wait_for(&device, 1, PathLink::Lost);
}

#[test]
fn different_namespaces_are_refused() {
    let [one, other] = [2, 2].map(|sockets| Served::several("mem:16M?profile=null", sockets));
    let error = Device::open_with(
        &paths_of(one.uris().take(1).chain(other.uris().take(1)), ""),
        &options(1),
    )
    .err()
    .unwrap()
    .to_string();
    assert!(error.contains("NQN"), "{error}");
    let single = Served::new("mem:16M?profile=null");
    let error =
        Device::open_with(&paths_of(single.uris().chain(one.uris().take(1)), ""), &options(1))
            .err()
            .unwrap()
            .to_string();
    assert!(error.contains("private to its controller"), "{error}");
    // A socket twice is a client too many.
    let error =
        Device::open_with(&paths_of(one.uris().take(1).chain(one.uris().take(1)), ""), &options(1))
            .err()
            .unwrap()
            .to_string();
    assert!(error.contains("another client"), "{error}");
}

/// Servers in containers of their own have one process identifier, and their subsystems two names:
/// a path to each would be two media.
#[test]
fn containers_do_not_share_namespaces() {
    const ALONE: [&str; 5] = ["unshare", "--user", "--map-root-user", "--kill-child", "-pf"];
    if !Command::new(ALONE[0])
        .args(&ALONE[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|ended| ended.success())
    {
        return skipped("unshare gives no process identifiers of their own");
    }
    let [one, other] = [2, 2].map(|sockets| Process::several_within(&ALONE, sockets));
    // The controllers have two identifiers, as those of one subsystem have.
    let uris = one.uris().take(1).chain(other.uris().skip(1));
    let error = Device::open_with(&paths_of(uris, ""), &options(1)).err().unwrap().to_string();
    assert!(error.contains("NQN"), "{error}");
}
