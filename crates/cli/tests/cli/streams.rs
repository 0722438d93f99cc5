//! Output other than results: files that cannot be written, a terminal, a closed stream.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::support::{Ended, Place};

/// The program colours nothing, and has nothing to say of that.
#[test]
fn terminal_output_matches_pipe() {
    let place = Place::new();
    let said = place.reap("run nowhere.fio").fails_with(&["nowhere.fio"]).stderr;
    let mut command = Command::new("script");
    command
        .current_dir(place.path(""))
        .args(["--quiet", "--return", "--command"])
        .env_remove("REAP_LOG");
    command
        .arg(format!("{} run nowhere.fio", assert_cmd::cargo::cargo_bin!("reap").display()))
        .arg("/dev/null");
    let ended: Ended =
        command.stdin(Stdio::null()).output().expect("`script`, of util-linux").into();
    assert_eq!((ended.code, ended.stdout.replace("\r\n", "\n")), (Some(1), said));
}

/// As `reap ... 2>&1 | head` leaves it.
#[test]
fn closed_stderr_changes_nothing() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nnumber_ios=10\ncpus_allowed=900\nprio=3\n");
    for (arguments, code) in [("run job.fio --device mem:1M", 0), ("run nowhere.fio", 1)] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let ended = place
            .command(arguments)
            .env("REAP_LOG", "trace")
            .stderr(writer)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.code(), Some(code), "{arguments}: {ended}");
    }
}

const SCENARIO: &str = "modes = [\"poll\"]\nduration = \"2ms\"\n[[device]]\nprofile = \"optane\"\n[[job]]\noptions = { rw = \"randread\" }\n";

/// Minutes of measuring are not lost with a disk that is full.
#[test]
fn unwritable_file_spares_other_results() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    for (arguments, word) in [
        ("compare --device mem:16M --modes interrupt --repeat 1", "A/A: interrupt against itself"),
        ("sim s.toml", "One seed"),
    ] {
        let ended = place.reap(&format!("{arguments} --json /dev/full --html page.html"));
        let ended =
            ended.fails_with(&["cannot write the results to /dev/full: No space left on device"]);
        assert!(ended.stdout.contains(word), "{word:?} is not in\n{}", ended.stdout);
        assert!(place.read("page.html").ends_with("</html>\n"), "{arguments}");
        std::fs::remove_file(place.path("page.html")).unwrap();
    }
}

#[test]
fn a_full_file_system_is_named() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=write\nbs=64k\nsize=8m\n");
    std::fs::create_dir(place.path("small")).unwrap();
    let reap = assert_cmd::cargo::cargo_bin!("reap").display();
    let script = format!(
        "mount -t tmpfs -o size=2m tmpfs small || exit 77; exec {reap} run job.fio --device 'file:small/disk.img?size=8M'"
    );
    let mut command = Command::new("unshare");
    command.current_dir(place.path("")).args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
    ]);
    let ended: Ended = command.output().expect("`unshare`, of util-linux").into();
    if ended.stderr.starts_with("unshare: ") || ended.code == Some(77) {
        return println!("skipped: no file system can be mounted here: {}", ended.stderr);
    }
    let ended = ended.fails_with(&[
        "small/disk.img: No space left on device",
        "free some",
        "error: job 'a'",
    ]);
    assert_eq!(ended.stderr.matches("disk.img: ").count(), 1, "{}", ended.stderr);
}

#[test]
fn output_file_survives_early_errors() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nnumber_ios=10\n").write("results", "earlier results");
    place.reap("run job.fio --output results --device mem:1M?profile=nope").fails_with(&["nope"]);
    assert_eq!(place.read("results"), "earlier results");
    place.reap("run job.fio --output new --device mem:1M?profile=nope").fails_with(&["nope"]);
    assert!(!place.path("new").exists());
    place.reap("run job.fio --output results --device mem:1M").ok();
    assert!(place.read("results").contains("total=10,0,0,0"));
}

#[test]
fn output_never_overwrites_input() {
    let place = Place::new();
    place
        .write("job.fio", "[a]\nrw=randread\nnumber_ios=10\n")
        .write("s.toml", SCENARIO)
        .write("own.toml", "read = {}\n");
    place.write("prices.toml", "base = \"vm\"\n");
    let disk = "run job.fio --device file:disk.img?size=1M --output disk.img";
    for (arguments, words) in [
        ("run job.fio --output ./job.fio", "--output ./job.fio would overwrite"),
        (disk, "--output disk.img would overwrite"),
        ("sim s.toml --replay own.toml --json own.toml", "--json own.toml would overwrite"),
        (
            "compare --device mem:1M?profile=own.toml --json own.toml",
            "--json own.toml would overwrite",
        ),
        ("compare --json x --html x", "--json and --html name the same file, x"),
        ("sim s.toml --json s.toml", "--json s.toml would overwrite"),
        ("sim --json x --html x", "--json and --html name the same file, x"),
        ("sim --costs prices.toml --html prices.toml", "--html prices.toml would overwrite"),
    ] {
        place.reap(arguments).fails_with(&[words]);
    }
    assert!(
        place.read("job.fio").starts_with("[a]")
            && place.read("s.toml") == SCENARIO
            && !place.path("x").exists()
    );
    // The name of a price list is no file's.
    place.reap("sim s.toml --costs vm --json vm").ok();
}

#[test]
fn page_name_may_be_non_utf8() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let name = OsStr::from_bytes(b"x\xff.html");
    let ended: Ended = place.command("sim s.toml --html").arg(name).output().unwrap().into();
    ended.ok();
    assert!(place.path("").join(name).exists());
}

/// `-` is the standard output for every file that is written, and what is for people goes to
/// stderr.
#[test]
fn a_dash_is_the_standard_output() {
    let place = Place::new();
    place.write("s.toml", SCENARIO).write("job.fio", "[a]\nrw=randread\nnumber_ios=10\n");
    let sim = place.reap("sim s.toml --json -").ok();
    assert_eq!(sim.json()["schema"], 1);
    assert!(sim.stderr.contains("One seed"), "{}", sim.stderr);
    let page = place.reap("sim s.toml --html -").ok();
    assert!(page.stdout.starts_with("<!doctype html>") && page.stdout.ends_with("</html>\n"));
    let compare = place.reap("compare --device mem:16M --modes interrupt --repeat 1 --json -").ok();
    assert_eq!(compare.json()["schema"], 1);
    assert!(compare.stderr.contains("A/A: interrupt against itself"), "{}", compare.stderr);
    let run = place.reap("run job.fio --device mem:1M --output-format json --output -").ok();
    assert_eq!(run.json()["jobs"][0]["read"]["total_ios"], 10);
    // The standard input is no file that is written over.
    let ended = place
        .command("run - --device mem:1M --output -")
        .stdin(std::fs::File::open(place.path("job.fio")).unwrap())
        .output();
    assert!(Ended::from(ended.unwrap()).ok().stdout.contains("total=10,0,0,0"));
    place
        .reap("sim s.toml --json - --html -")
        .fails_with(&["--json and --html name the same file, -"]);
    assert!(!place.path("-").exists());
}

/// What stands in the file that stdout is appended to is kept.
#[test]
fn dash_appends_to_stdout() {
    let place = Place::new();
    place.write("s.toml", SCENARIO).write("out", "before\n");
    let out = std::fs::File::options().append(true).open(place.path("out")).unwrap();
    let status =
        place.command("sim s.toml --json -").stdout(out).stderr(Stdio::null()).status().unwrap();
    assert!(
        status.success() && place.read("out").starts_with("before\n{"),
        "{}",
        place.read("out")
    );
}
