//! Files that others use: nothing writes to them, by whatever way they are opened.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use reap::Device;
use reap::serve::{self, Server};
use tempfile::TempDir;

/// Set in the process that a test has started: the device that it is to open.
const CHILD: &str = "REAP_TEST_IN_USE";

/// A directory with a file of 1 MiB.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    (dir, path)
}

/// Each way to open a file for writing.
fn ways(path: &Path) -> [String; 3] {
    let path = path.display();
    [format!("file:{path}"), format!("kernel:{path}"), format!("multipath:?path=file:{path}")]
}

/// Why it is not opened.
fn refusal(uri: &str) -> String {
    Device::open(uri).map(drop).expect_err(uri).to_string()
}

/// A server of the file.
fn serve(path: &Path, socket: &str) -> Result<Server, String> {
    let uri = format!("file:{}", path.display()).parse().unwrap();
    serve::open(&uri, &path.with_file_name(socket), None).map_err(|error| error.to_string())
}

#[test]
fn foreign_locks_are_respected() {
    let (_dir, path) = place();
    for exclusive in [true, false] {
        let user = File::open(&path).unwrap();
        if exclusive {
            user.lock().unwrap();
        } else {
            user.lock_shared().unwrap();
        }
        for why in ways(&path)
            .map(|uri| refusal(&uri))
            .into_iter()
            .chain(serve(&path, "socket").map(drop).err())
        {
            assert!(why.contains("this process has locked it"), "{why}");
        }
        drop(user);
        ways(&path).iter().for_each(|uri| drop(Device::open(uri).unwrap()));
    }
}

#[test]
fn kernel_and_file_exclude_each_other() {
    let (_dir, path) = place();
    let [file, kernel, several] = ways(&path);
    for (one, others) in [(&kernel, [&file, &several]), (&file, [&kernel, &kernel])] {
        let device = Device::open(one).unwrap();
        others
            .iter()
            .for_each(|other| assert!(refusal(other).contains("locked"), "{one}, {other}"));
        drop(device);
    }
}

#[test]
fn one_process_shares_a_lock() {
    let (_dir, path) = place();
    let [file, _, several] = ways(&path);
    let devices = [
        Device::open(&file).unwrap(),
        Device::open(&file).unwrap(),
        Device::open(&several).unwrap(),
    ];
    let server = serve(&path, "socket").unwrap();
    let other = File::open(&path).unwrap();
    for device in devices {
        drop(device);
        assert!(other.try_lock().is_err());
    }
    drop(server);
    // The device thread lets go of it a little later.
    let limit = Instant::now() + Duration::from_secs(60);
    while other.try_lock().is_err() {
        assert!(Instant::now() < limit, "it stays locked");
        thread::yield_now();
    }
}

#[test]
fn a_second_process_is_refused() {
    if let Ok(uri) = std::env::var(CHILD) {
        return println!("answer: {}", refusal(&uri));
    }
    let (_dir, path) = place();
    let [file, kernel, several] = ways(&path);
    let device = Device::open(&file).unwrap();
    let own = format!("process {} (", std::process::id());
    for uri in [file, kernel, several] {
        let mut other = Command::new(std::env::current_exe().unwrap());
        let output = other
            .args(["--exact", "file_locks::a_second_process_is_refused", "--nocapture"])
            .env(CHILD, &uri)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("locked") && said.contains(&own),
            "{uri}: {said}"
        );
    }
    drop(device);
}

/// By device and inode: the file's name has changed since it was attached.
#[test]
fn loop_device_file_is_refused() {
    let (_dir, path) = place();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&path).output();
    let Some(attached) = attached.ok().filter(|output| output.status.success()) else {
        return println!("skipped: no loop device can be made here");
    };
    let node = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    let renamed = path.with_file_name("link");
    fs::hard_link(&path, &renamed).unwrap();
    fs::remove_file(&path).unwrap();
    let refusals: Vec<String> = ways(&renamed)
        .into_iter()
        .filter_map(|uri| Device::open(&uri).err())
        .map(|why| why.to_string())
        .collect();
    let served = serve(&renamed, "socket").err();
    assert!(Command::new("losetup").args(["--detach", &node]).status().unwrap().success());
    assert!(
        refusals
            .iter()
            .chain(&served)
            .filter(|why| why.contains(&format!("attached to {node}")))
            .count()
            == 4,
        "{refusals:?}"
    );
}
