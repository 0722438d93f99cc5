//! Servers that are killed and started again: a path of several comes back if it leads where it
//! led, and is left alone if not.

use std::os::unix::net::UnixListener;

use reap::{Device, IoError, PathLink};

use super::eventually;
use super::paths::{is_left, is_used, paths_of, under_load, wait_for};
use super::peer::Process;
use crate::happened::is_told;
use crate::place::{BYTES, Scratch, options};
use crate::table::watched;
use crate::work::{Job, begin, drain};

/// One server's share of a subsystem over this file.
fn share(file: &Scratch, controller: u16, more: &str) -> String {
    format!(
        "multipath:?path=file:{}?profile=optane%26share=yes%26cntlid={controller}{more}",
        file.path().display()
    )
}

fn open(servers: &[Process], more: &str, queues: usize) -> Device {
    let uri = paths_of(servers.iter().flat_map(Process::uris), more);
    Device::open_with(&uri, &options(queues)).unwrap_or_else(|error| panic!("{uri}: {error}"))
}

/// Two servers of one file take turns in dying under verified load. Each is used again once it is
/// started again.
#[test]
fn restarted_server_is_used_again() {
    for more in ["", "%26doorbells=mapped%26sgl=yes"] {
        let file = Scratch::new("again", BYTES);
        let serves = |path: usize| share(&file, path as u16 + 1, more);
        let mut servers = [0, 1].map(|path| Process::serving(&serves(path), 1));
        let device = open(&servers, "&policy=round-robin&keep_alive=2s", 2);
        under_load(&device, "servers that die in turns", || {
            for path in [1, 0, 1] {
                servers[path].kill();
                is_left(&device, path);
                servers[path].start(&serves(path));
                wait_for(&device, path, PathLink::Live);
                is_used(&device, path);
            }
        });
        let (paths, health) = (device.paths(), device.health());
        assert!(
            paths.iter().all(|path| path.status.link == PathLink::Live && path.in_flight == 0),
            "{more}: {paths:?}"
        );
        assert!(
            paths.iter().any(|path| path.failed > 0),
            "no request was inside when its server died: {paths:?}"
        );
        assert!(
            health.dead.is_none()
                && is_told(
                    &device,
                    "the server has closed the connection; a server that serves the same"
                ),
            "{health:?}"
        );
        assert!(is_told(&device, "the connection is back"), "{health:?}");
    }
}

/// Without another path requests wait: none fails, and none is carried out twice.
#[test]
fn requests_wait_for_the_only_server() {
    let file = Scratch::new("only", BYTES);
    let serves = format!("file:{}?profile=optane", file.path().display());
    let mut server = Process::serving(&serves, 1);
    let device = open(std::slice::from_ref(&server), "", 1);
    let queue = device.queue().unwrap();
    for generation in 1..4 {
        Job { generation, ..Job::of(0) }.run(&queue);
        begin(&queue, 12);
        server.kill();
        wait_for(&device, 0, PathLink::Lost);
        server.start(&serves);
        watched("a server that is started again", || drain(&queue))
            .into_iter()
            .for_each(|done| done.result.unwrap());
        Job { generation: generation + 10, ..Job::of(0) }.run(&queue);
    }
    assert_eq!(device.paths()[0].status.link, PathLink::Live);
}

/// What is served at the socket then is not what was served before: the other path does it all,
/// until the right one is there.
#[test]
fn another_medium_is_refused_and_said() {
    let (file, other) = (Scratch::new("medium", BYTES), Scratch::new("other", BYTES));
    let serves = [share(&file, 1, ""), share(&file, 2, "")];
    let mut servers = serves.each_ref().map(|serves| Process::serving(serves, 1));
    let device = open(&servers, "&policy=round-robin&keep_alive=500ms", 1);
    let queue = device.queue().unwrap();
    let mut generation = 1;
    let mut goes_on = |by: fn(&Device) -> bool| {
        Job { generation, ..Job::of(0) }.run(&queue);
        generation += 1;
        assert!(by(&device), "{:?}", device.paths());
    };
    goes_on(|device| device.paths()[0].ios > 0);
    let refused = [
        (share(&other, 1, ""), "its subsystem is nqn.2026-11.reap:file:"),
        (
            "multipath:?path=mem:16M?profile=optane".into(),
            "its subsystem is nqn.2026-11.reap:embedded:",
        ),
        (share(&file, 3, ""), "it is controller 0x0003 of its subsystem, and was 0x0001"),
        (
            share(&file, 1, "%26lba=4096"),
            "namespace 1 has other identifiers, or another block size",
        ),
        (share(&file, 1, "%26vectors=1"), "it has 1 MSI-X vectors, and 2 are in use"),
    ];
    for (serves_now, why) in refused {
        servers[0].kill();
        servers[0].start(&serves_now);
        eventually(why, || is_told(&device, why));
        let before = device.paths()[0].ios;
        goes_on(|device| device.paths()[0].status.link == PathLink::Lost);
        assert_eq!(device.paths()[0].ios, before, "{why}");
    }
    servers[0].kill();
    servers[0].start(&serves[0]);
    wait_for(&device, 0, PathLink::Live);
    let before = device.paths()[0].ios;
    Job { generation, ..Job::of(0) }.run(&queue);
    assert!(device.paths()[0].ios > before, "{:?}", device.paths());
}

/// The file has grown while its server was away: that the others do not know, so that the path is
/// left until they do.
#[test]
fn another_size_is_not_believed() {
    let file = Scratch::new("size", BYTES);
    let mut servers = [1, 2].map(|controller| Process::serving(&share(&file, controller, ""), 1));
    let device = open(&servers, "&policy=round-robin", 1);
    let (queue, blocks) = (device.queue().unwrap(), device.namespaces()[0].blocks());
    servers[0].kill();
    wait_for(&device, 0, PathLink::Lost);
    servers[0].start(&share(&file, 1, "%26size=32M"));
    wait_for(&device, 0, PathLink::Live);
    assert!(
        is_told(&device, "namespace 1 has 65536 logical blocks now, and had 32768"),
        "{:?}",
        device.health()
    );
    let (before, path) = (device.paths()[0].ios, device.paths()[0].status);
    Job::of(0).run(&queue);
    assert_eq!((device.paths()[0].ios, path.to_string().as_str()), (before, "other size"));
    assert_eq!(device.current(&device.namespaces()[0]).blocks(), blocks);
}

/// A controller that does not come up again is no path any more, whoever serves it then.
#[test]
fn fewer_queues_end_the_path() {
    let file = Scratch::new("fewer", BYTES);
    let mut servers = [1, 2].map(|controller| Process::serving(&share(&file, controller, ""), 1));
    let device = open(&servers, "", 1);
    servers[0].kill();
    servers[0].start(&share(&file, 1, "%26queues=1"));
    eventually("it is not said", || {
        is_told(&device, "the controller is given up: the controller does not come up again")
    });
    wait_for(&device, 0, PathLink::Lost);
    Job::of(0).run(&device.local_queue().unwrap());
}

/// Nobody answers, and nobody is waited for: a device that is closed meanwhile lets go of the
/// connection.
#[test]
fn closing_while_connecting() {
    let file = Scratch::new("closed", BYTES);
    let mut servers = [1, 2].map(|controller| Process::serving(&share(&file, controller, ""), 1));
    let device = open(&servers, "&no_path_timeout=300ms&held_timeout=1s&keep_alive=500ms", 1);
    let queue = device.queue().unwrap();
    begin(&queue, 12);
    servers.iter_mut().for_each(Process::kill);
    let socket = servers[0].uris().next().unwrap().trim_start_matches("vfio-user:").to_owned();
    std::fs::remove_file(&socket).unwrap();
    let silent = UnixListener::bind(&socket).unwrap();
    watched("a device that is closed", || {
        for done in drain(&queue) {
            assert!(
                matches!(
                    done.result,
                    Ok(()) | Err(IoError::OutcomeUnknown { .. } | IoError::Path(_))
                ),
                "{:?}",
                done.result
            );
        }
        let (mut stream, _) = silent.accept().unwrap();
        drop((queue, device));
        // Whatever it has said, there is an end to it.
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    });
}
