//! Files and block devices that go wrong: a typed error, nothing lost that was acknowledged, no
//! hang.

mod again;
mod between;
mod devices;
mod files;
mod guest;
mod hostile;
mod limits;
mod paths;
mod pcie;
mod peer;
mod processes;
mod zeroes;

use std::collections::BTreeMap;
use std::env;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use reap::{Device, IoError, OpenError, Queue, Request, TargetFault};

use super::place::options;
use super::table::watched;
use super::work::{differs, drain, fill, submit};

/// Set in a process that a test has started: its limits, its user and its death are its own.
const CHILD: &str = "REAP_TEST_CHILD";

/// Whether this is the process that the test has started, and runs the other half of it.
fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// What the test tells the process that it starts.
fn told() -> String {
    env::var(CHILD).unwrap()
}

/// Runs the test named `test` once more, in a process of its own below `wrapper`, and tells it
/// `word`.
fn start(test: &str, wrapper: &[&str], word: &str) -> Child {
    start_as(&env::current_exe().unwrap().display().to_string(), test, wrapper, word)
}

fn start_as(program: &str, test: &str, wrapper: &[&str], word: &str) -> Child {
    let said: Vec<&str> = wrapper
        .iter()
        .copied()
        .chain([program, "--exact", test, "--nocapture", "--include-ignored"])
        .collect();
    let mut command = Command::new(said[0]);
    command.args(&said[1..]).env(CHILD, word).env_remove("REAP_TEST_DEVICE").stdin(Stdio::null());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", said[0]))
}

/// Waits for it: the test must have passed there.
fn passes(child: Child) -> String {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    assert!(status.success() && said.contains("1 passed"), "{status}: {said}");
    said
}

/// Why a file is not opened.
fn fault(uri: &str) -> TargetFault {
    match Device::open_with(uri, &options(1)) {
        Err(OpenError::Kernel { fault, .. }) => {
            println!("{uri}: {fault}");
            fault
        }
        Err(why) => panic!("{uri}: {why}"),
        Ok(_) => panic!("{uri} was opened"),
    }
}

/// Writes of 4 KiB, of which it is known which were acknowledged.
#[derive(Default)]
struct Written {
    /// Generation by first block, of those that a Flush has covered.
    durable: BTreeMap<u64, u64>,
    acknowledged: BTreeMap<u64, u64>,
    /// Written since and not acknowledged: what stands there nobody knows.
    unknown: Vec<u64>,
    errors: Vec<IoError>,
}

impl Written {
    /// Writes until that fails, which it does some time after `goes` was called on another thread:
    /// what is written to is taken away.
    fn write_until(&mut self, queue: &Queue, what: &str, goes: impl FnOnce() + Send + 'static) {
        let (tell, told) = mpsc::channel();
        let taker = thread::spawn(move || {
            told.recv().unwrap();
            goes();
        });
        watched(what, || {
            for generation in 1.. {
                self.write(queue, (0..40).map(|n| 8 * n), generation);
                if generation == 5 {
                    tell.send(()).unwrap();
                }
                if !self.errors.is_empty() {
                    break;
                }
            }
        });
        taker.join().unwrap();
    }

    /// Writes all these blocks at once, and then a Flush.
    fn write(&mut self, queue: &Queue, lbas: impl Iterator<Item = u64>, generation: u64) {
        let ns = queue.namespaces()[0];
        let block = ns.block_bytes() as usize;
        submit(
            queue,
            lbas.map(|lba| {
                let mut buf = queue.buffer(4096).unwrap();
                fill(&mut buf, lba, block, generation);
                Request::write(&ns, lba, buf).tag(lba)
            }),
        );
        for done in drain(queue) {
            match done.result {
                Ok(()) => _ = self.acknowledged.insert(done.tag, generation),
                Err(why) => {
                    self.unknown.push(done.tag);
                    self.errors.push(why);
                }
            }
        }
        match queue.block_on(queue.flush(&ns)).unwrap() {
            Ok(()) => self.durable.append(&mut self.acknowledged),
            Err(why) => {
                // It may have reached the medium, or not.
                self.unknown.extend(self.acknowledged.keys());
                self.errors.push(why);
            }
        }
        self.durable.retain(|lba, _| !self.unknown.contains(lba));
    }

    /// What was acknowledged, and covered by a Flush, is there.
    fn is_there(&self, queue: &Queue) {
        let ns = queue.namespaces()[0];
        for (&lba, &generation) in &self.durable {
            let (result, buf) =
                queue.block_on(queue.read(&ns, lba, queue.buffer(4096).unwrap())).unwrap();
            result.unwrap_or_else(|e| panic!("{e}: block {lba}"));
            assert_eq!(
                differs(&buf, lba, ns.block_bytes() as usize, generation),
                None,
                "block {lba} was acknowledged"
            );
        }
    }
}

/// What has to happen, and has not by then, does not happen.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
