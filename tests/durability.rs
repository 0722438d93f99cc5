//! Whole-stack: a Flush on `file:` is an `fdatasync` between its command and its completion, and so
//! is a write with FUA; once one failed, that Flush and all later ones fail. Seen with strace from
//! outside: `tests/durability.sh` runs this.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use reap::{Device, Request};

/// Tells the child where its directory is.
const DIR: &str = "REAP_DURABILITY";

/// What is traced: writes and fsyncs of the media, and the marks of the child.
fn traced(inject: Option<&str>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=pwrite64,fdatasync,write", "-o"]).arg(&trace);
    strace.args(inject.map(|fault| format!("--inject=fdatasync:{fault}")));
    strace.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "child",
        "--ignored",
        "--test-threads=1",
    ]);
    let output = strace
        .env(DIR, dir.path())
        .output()
        .expect("strace runs; it is in Debian's package `strace`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut events: Vec<_> =
        std::fs::read_to_string(trace).unwrap().lines().filter_map(event).collect();
    // The shutdown that follows may flush once more.
    let last = events
        .iter()
        .rposition(|event| event.starts_with("read"))
        .expect("the child came to its end");
    events.truncate(last + 1);
    events
}

/// One line of the trace, if it tells that something is over: `write`, `sync`, `sync failed`, or
/// what the child marked.
fn event(line: &str) -> Option<String> {
    if let Some((_, mark)) = line.split_once("\"mark: ") {
        return Some(mark.split('"').next()?.to_owned());
    }
    let (call, result) = line.rsplit_once(" = ")?;
    let failed = result.starts_with('-');
    match () {
        () if call.contains("pwrite64") && !failed => Some("write".into()),
        () if call.contains("fdatasync") => {
            Some(if failed { "sync failed" } else { "sync" }.into())
        }
        () => None,
    }
}

#[test]
#[ignore = "needs strace: tests/durability.sh"]
fn fdatasync_stands_between_write_and_completion() {
    let sound = ["write", "written", "sync", "flush good"].repeat(3);
    let expected =
        [&sound[..], &["write", "sync", "fua good", "write", "written", "sync", "read good"]]
            .concat();
    assert_eq!(traced(None), expected);
}

#[test]
#[ignore = "needs strace: tests/durability.sh"]
fn failed_fdatasync_fails_later_flushes() {
    let expected = [
        ["write", "written", "sync", "flush good"].as_slice(),
        &["write", "written", "sync failed", "flush failed"],
        // Another fdatasync would succeed, and mean nothing.
        &["write", "written", "flush failed"],
        &["write", "fua failed"],
        &["write", "written", "read failed"],
    ]
    .concat();
    assert_eq!(traced(Some("error=EIO:when=2")), expected);
}

/// What is traced: three times a write and a flush, then a write with FUA, then a write and a read
/// with FUA; after each a mark.
#[test]
#[ignore = "run by the tests above"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let mut marks = OpenOptions::new().create(true).append(true).open(dir.join("marks")).unwrap();
    let mut mark = |what: String| marks.write_all(format!("mark: {what}").as_bytes()).unwrap();
    let device =
        Device::open(&format!("file:{}?size=1M&profile=optane", dir.join("media").display()))
            .unwrap();
    let queue = device.queue().unwrap();
    let ns = queue.namespaces()[0];
    let outcome = |done: bool| if done { "good" } else { "failed" };
    for lba in 0..3 {
        let (result, _) =
            queue.block_on(queue.write(&ns, lba, queue.buffer(512).unwrap())).unwrap();
        result.unwrap();
        mark("written".into());
        let flushed = queue.block_on(queue.flush(&ns)).unwrap();
        mark(format!("flush {}", outcome(flushed.is_ok())));
    }
    let durable = Request::write(&ns, 3, queue.buffer(512).unwrap()).fua();
    let done = queue.block_on(queue.start(durable)).unwrap();
    mark(format!("fua {}", outcome(done.result.is_ok())));
    let (written, buf) = queue.block_on(queue.write(&ns, 4, queue.buffer(512).unwrap())).unwrap();
    written.unwrap();
    mark("written".into());
    let done = queue.block_on(queue.start(Request::read(&ns, 4, buf).fua())).unwrap();
    mark(format!("read {}", outcome(done.result.is_ok())));
}
