//! What is beside the results: a terminal, or nobody.

use std::io;
use std::process::{Command, Stdio};

use crate::support::{Ended, Place};

/// The program colours nothing, and has nothing to say of that.
#[test]
fn on_a_terminal_nothing_is_said_that_is_not_said_elsewhere() {
    let place = Place::new();
    let said = place.reap("run nowhere.fio").fails_with(&["nowhere.fio"]).stderr;
    let mut command = Command::new("script");
    command.current_dir(place.path("")).args(["--quiet", "--return", "--command"]).env_remove("REAP_LOG");
    command.arg(format!("{} run nowhere.fio", assert_cmd::cargo::cargo_bin!("reap").display())).arg("/dev/null");
    let ended: Ended = command.stdin(Stdio::null()).output().expect("`script`, of util-linux").into();
    assert_eq!((ended.code, ended.stdout.replace("\r\n", "\n")), (Some(1), said));
}

/// As `reap ... 2>&1 | head` leaves it.
#[test]
fn a_reader_of_stderr_that_has_gone_away_changes_nothing() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nnumber_ios=10\ncpus_allowed=900\nzonemode=none\n");
    for (arguments, code) in [("run job.fio --device mem:1M", 0), ("run nowhere.fio", 1)] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let ended = place.command(arguments).env("REAP_LOG", "trace").stderr(writer).stdout(Stdio::null()).status().unwrap();
        assert_eq!(ended.code(), Some(code), "{arguments}: {ended}");
    }
}
