//! A directory for each test, and the command started in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than any command takes, on a machine as busy as may be, so that a hang is a failure.
const LIMIT: Duration = Duration::from_secs(300);

/// A directory of its own, with job files in it.
pub struct Place(tempfile::TempDir);

/// Tries with more and more time, until that was enough: how soon a command is at work is the
/// machine's business.
pub fn patiently<T>(attempt: impl Fn(Duration) -> Option<T>) -> T {
    let times = std::iter::successors(Some(Duration::from_millis(200)), |time| Some(*time * 2))
        .take_while(|time| *time < LIMIT);
    times.into_iter().find_map(attempt).expect("it is not at work yet")
}

/// Sends a signal, to one that may have ended, but was not waited for. (A command for it is not on
/// every machine.)
pub fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Ctrl-C.
pub fn interrupt(child: &Child) {
    send(child, Signal::INT);
}

/// How the command ended, as text.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> &Place {
        fs::write(self.path(name), text).unwrap();
        self
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `reap` with these arguments, words apart by blanks.
    pub fn reap(&self, arguments: &str) -> Ended {
        let mut command = assert_cmd::Command::cargo_bin("reap").unwrap();
        command
            .current_dir(self.0.path())
            .timeout(LIMIT)
            .env_remove("COLUMNS")
            .args(arguments.split_whitespace());
        command.output().unwrap().into()
    }

    /// The same, left running.
    pub fn start(&self, arguments: &str) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A command, ended by Ctrl-C. It makes `file` once it listens to signals, and is given time
    /// from then on until it has done a part of its work.
    pub fn interrupted(&self, command: impl Fn() -> Command, file: &str) -> Ended {
        patiently(|time| {
            let mut child =
                command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            while !self.path(file).exists() && child.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(time);
            interrupt(&child);
            let ended: Ended = child.wait_with_output().unwrap().into();
            let early = ended.stderr.contains("stopped before anything");
            assert!(!early || !self.path(file).exists(), "there is nothing to be written");
            (!early).then_some(ended)
        })
    }

    /// `reap` with these arguments, not yet started.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("reap"));
        command.current_dir(self.0.path()).args(arguments.split_whitespace());
        command
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Ended {
    /// It went well.
    pub fn ok(self) -> Ended {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Ctrl-C ended it: the status that a shell reports of a program which SIGINT ends.
    pub fn stopped(self) -> Ended {
        assert_eq!(self.code, Some(130), "{self:#?}");
        self
    }

    /// It failed as it should: status 1, and these words on stderr.
    pub fn fails_with(self, words: &[&str]) -> Ended {
        assert_eq!(self.code, Some(1), "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in\n{}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}
