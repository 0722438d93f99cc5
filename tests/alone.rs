//! What can only be told in a process of its own: which CPUs the library's threads may run on. Each test runs itself once more.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use reap::Device;

/// Set in the process that a test has started.
const CHILD: &str = "REAP_TEST_ALONE";

/// Runs `work` as the only test of a process.
fn alone(test: &str, work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

/// Where each of this process's threads may run, by name.
fn threads() -> Vec<(String, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok).map(|task| task.path());
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    let told = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    told.map(|status| (field(&status, "Name"), field(&status, "Cpus_allowed_list"))).collect()
}

fn where_is(name: &str) -> String {
    let threads = threads();
    threads.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no {name} in {threads:?}")).1.clone()
}

/// A worker that is pinned to its CPU opens a device: what looks after all devices of the process is not to wait for that CPU.
#[test]
fn the_librarys_threads_are_not_pinned_where_their_opener_is() {
    alone("the_librarys_threads_are_not_pinned_where_their_opener_is", || {
        let cpus = hw::allowed_cpus().unwrap();
        if cpus.len() < 2 {
            println!("skipped: there is one CPU");
            return;
        }
        let device = thread::spawn(move || {
            hw::pin(cpus[0]).unwrap();
            Device::open("mem:1M?profile=null&wire=stream").unwrap()
        });
        let device = device.join().unwrap();
        let anywhere = threads().into_iter().find(|(name, _)| !name.starts_with("reap-")).unwrap().1;
        for name in ["reap-housekeep", "reap-device", "reap-relay"] {
            assert_eq!(where_is(name), anywhere, "{name}");
        }
        drop(device);
    });
}
