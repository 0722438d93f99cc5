//! Every message says what was wrong, where, and what to do; nothing is run.

use std::process::Command;

use crate::support::{Ended, Place};

fn place() -> Place {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nbs=4k\nruntime=20ms\ntime_based\n");
    place
}

fn fails(arguments: &str, words: &[&str]) {
    let ended = place().reap(arguments).fails_with(words);
    assert_eq!(ended.stdout, "", "nothing was run");
}

#[test]
fn a_typo_in_each_argument() {
    fails("rnu job.fio", &["unrecognized subcommand 'rnu'", "the commands are run, compare, sim"]);
    fails("run", &["there is no job; give a job file", "JOBFILE"]);
    fails("run job.fio --rw=writ", &["--rw=writ: 'writ'"]);
    fails(
        "run job.fio --status-interval=1",
        &["`reap run` does not support fio's --status-interval", "docs/fio-jobs.md"],
    );
    fails("run job.fio --section=b", &["--section b: no job has that name"]);
    fails(
        "run job.fio --readonly --name=w --rw=trim",
        &["job 'w' writes or trims, which --readonly forbids"],
    );
    fails("run nowhere.fio", &["job file nowhere.fio", "No such file"]);
    fails("run job.fio --devise mem:1M", &["--devise", "--device"]);
    fails("run job.fio --device mem:1X", &["--device", "column 5", "K, M, G, T or P"]);
    fails(
        "run job.fio --device mme:1M",
        &["no scheme `mme:`", "`vfio-user:`, `tcp://` and `multipath:`"],
    );
    fails("run job.fio --device mem:1M?profil=tlc", &["column 8", "did you mean `profile`?"]);
    fails(
        "run job.fio --device mem:1M?profile=optan",
        &["did you mean `optane`?", "null, optane, tlc"],
    );
    fails(
        "run job.fio --device vfio-user:/nowhere/nvme.sock",
        &["vfio-user:/nowhere/nvme.sock: there is no such socket", "start its server"],
    );
    fails("run job.fio --device vfio-user:/s?trusted=yes", &["column 14", "did you mean `trust`?"]);
    fails("id vfio-user:", &["column 11", "a path must follow the colon"]);
    fails("run job.fio --device /dev/nvme0n1", &["`kernel:/dev/nvme0n1`"]);
    fails(
        "run job.fio --completion adaptive?delay-exponent=10%",
        &["column 25: '10%' is not a delay exponent", "a number like 3"],
    );
    fails("run job.fio --device mem:1M?lba=1000", &["lba=1000", "`512` or `4096`"]);
    fails("run job.fio --completion pol", &["did you mean 'poll'?"]);
    fails("run job.fio --completion poll+submit-check", &["ask for 'poll' alone"]);
    fails("run job.fio --queues 0", &["--queues", "from 1 to 64"]);
    fails("run job.fio --queues many", &["--queues", "many"]);
    fails("run job.fio --output-format jsn", &["similar value exists: 'json'"]);
    fails(
        "run job.fio --output no/such/directory",
        &["cannot write the results to no/such/directory"],
    );
    fails("compare nowhere.fio", &["job file nowhere.fio"]);
    fails("compare --modes interrupt,pull", &["did you mean 'poll'?"]);
    fails("compare --modes poll,poll", &["--modes has poll twice"]);
    fails("compare --repeat 0", &["--repeat", "from 1 to 10000"]);
    fails("compare --host-work much", &["--host-work", "much"]);
    fails("compare --device mem:", &["--device", "not a size"]);
    fails(
        "compare --json no/such/directory",
        &["cannot write the results to no/such/directory", "No such file"],
    );
    fails("compare --html .", &["cannot write the results to .: Is a directory"]);
    fails("compare --modes kernel-iopol", &["did you mean 'kernel-iopoll'?"]);
}

#[test]
fn unwritable_logs_fail_early() {
    let place = place();
    for option in ["write_bw_log", "write_iolog"] {
        place.write(
            "log.fio",
            &format!("[a]\nrw=randread\nbs=4k\nruntime=20ms\ntime_based\n{option}=missing/x\n"),
        );
        let ended = place.reap("run log.fio").fails_with(&[
            "cannot write the log missing/x",
            "of job 'a'",
            "No such file",
        ]);
        assert_eq!(ended.stdout, "", "nothing was run");
    }
    // One that can be written, of a run that is refused for another reason, is not left behind.
    place.write("log.fio", "[a]\nrw=randread\nbs=4k\nwrite_bw_log=x\nwrite_iolog=missing/x\n");
    place.reap("run log.fio").fails_with(&["missing/x"]);
    assert!(!place.path("x_bw.1.log").exists());
}

#[test]
fn job_errors_have_a_location() {
    let place = place();
    place.write("bad.fio", "# comment\n[a]\nbs=4kk\nrw=randrea\n  iodpth=4\n");
    let ended = place.reap("run job.fio bad.fio").fails_with(&[
        "bad.fio:3:4:",
        "bad.fio:4:4:",
        "bad.fio:5:3:",
        "did you mean 'iodepth'?",
    ]);
    assert_eq!(
        ended.stderr.lines().filter(|line| line.starts_with("error: ")).count(),
        3,
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "");
    place
        .write("empty.fio", "[global]\nbs=4k\n")
        .reap("run empty.fio")
        .fails_with(&["no job: add a section"]);
    place.write("none.fio", "").reap("run none.fio").fails_with(&["no job: add a section"]);
    place
        .write("loop.fio", "[a]\ninclude ./loop.fio\n")
        .reap("run loop.fio")
        .fails_with(&["loop.fio:2", "includes itself"]);
}

#[test]
fn oversized_jobs_are_refused() {
    let place = place();
    let job = |text: &str| {
        place.write("misfit.fio", &format!("[a]\n{text}\n[b]\nstonewall\nruntime=50ms\n"))
    };
    job("bs=2m")
        .reap("run misfit.fio --device mem:1M")
        .fails_with(&["job 'a'", "less than one block"]);
    job("bs=1000").reap("run misfit.fio --device mem:1M").fails_with(&[
        "job 'a'",
        "not a multiple",
        "512",
    ]);
    job("offset=4m").reap("run misfit.fio --device mem:1M").fails_with(&["job 'a'"]);
    job("numjobs=300")
        .reap("run misfit.fio --device mem:1M")
        .fails_with(&["300 job threads", "lower numjobs"]);
    let ended = job("iodepth=60000\nbs=256m\nrw=write")
        .reap("run misfit.fio --device mem:1G")
        .fails_with(&["iodepth × block size"]);
    assert_eq!(ended.stdout, "");
    job("filename=x:y").reap("run misfit.fio --device file:z?size=1M").fails_with(&["{filename}"]);
}

#[test]
fn files_that_are_no_media() {
    let place = place();
    place
        .reap("run job.fio --device file:nowhere.img")
        .fails_with(&["nowhere.img", "`size=` creates it"]);
    place.reap("run job.fio --device file:.").fails_with(&["media file"]);
    place
        .write("tiny.img", "less than a block")
        .reap("run job.fio --device file:tiny.img")
        .fails_with(&["tiny.img", "hold no block"]);
    place
        .write("profile.toml", "read = 5\n")
        .reap("run job.fio --device mem:1M?profile=profile.toml")
        .fails_with(&["profile.toml"]);
}

#[test]
fn files_that_are_no_job_files() {
    let place = place();
    place.reap("run .").fails_with(&["cannot read it: it is a directory"]);
    std::fs::write(place.path("noise.fio"), [0xff, 0xfe, 0, 1, 2, b'[', 0xc3]).unwrap();
    place.reap("run noise.fio").fails_with(&["noise.fio:1"]);
}

/// Every file that a user names has an end.
#[test]
fn files_without_an_end_are_refused() {
    let place = place();
    std::os::unix::fs::symlink("/dev/zero", place.path("endless.toml")).unwrap();
    place.write("include.fio", "[a]\ninclude /dev/zero\n");
    for words in [
        "run /dev/zero",
        "run include.fio",
        "run job.fio --device mem:1M?profile=endless.toml",
        "serve mem:1M --vfio-user socket --script /dev/zero",
        "sim endless.toml",
        "sim --costs endless.toml",
        "sim --replay /dev/zero",
    ] {
        place.reap(words).fails_with(&["it is a device; name a regular file"]);
    }
    assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
    place.reap("run fifo").fails_with(&["it is a FIFO"]);
    std::fs::File::create(place.path("long.fio")).unwrap().set_len(1 << 40).unwrap();
    place.reap("run long.fio").fails_with(&["it is longer than 16 MiB"]);
}

/// Not by a signal in the middle of the run.
#[test]
fn files_above_the_limit_are_refused() {
    let place = place();
    place.write("job.fio", "[a]\nrw=write\nbs=4k\nnumber_ios=10\n");
    std::fs::File::create(place.path("there")).unwrap().set_len(4 << 20).unwrap();
    let reap = assert_cmd::cargo::cargo_bin!("reap").display();
    for device in ["file:new?size=4M", "file:there", "kernel:new?size=4M", "kernel:there"] {
        let script = format!("ulimit -f 2048; exec {reap} run job.fio --device '{device}'");
        let ended: Ended = Command::new("bash")
            .current_dir(place.path(""))
            .args(["-c", &script])
            .output()
            .unwrap()
            .into();
        ended.fails_with(&["4194304 bytes", "files of 2097152 bytes (`ulimit -f`)"]);
        assert!(!place.path("new").exists(), "{device}");
    }
}

/// Numbers that would take all memory: a sentence, and no abort.
#[test]
fn profiles_beyond_all_measure() {
    let place = place();
    place
        .write("wide.toml", "[read]\n[write]\n")
        .reap("run job.fio --device mem:1M?profile=wide.toml")
        .ok();
    let wide = "channels = 4294967295\n[read]\n[write]\n";
    let words = ["wide.toml", "line 1", "4294967295 channels: there are at most 65536"];
    place
        .write("wide.toml", wide)
        .reap("run job.fio --device mem:1M?profile=wide.toml")
        .fails_with(&words);
}

#[test]
fn colliding_devices_are_refused() {
    let place = place();
    place.write("two.fio", "[a]\nrw=write\nfilename=a_b\n[b]\nrw=write\nfilename=/a/b\n");
    place
        .reap("run two.fio --device file:{filename}?size=1M")
        .fails_with(&["'a_b' and '/a/b' would both be file:a_b"]);
    assert!(!place.path("a_b").exists());
}

#[test]
fn bad_log_filter_is_reported() {
    let place = place();
    let run = |filter: &str| {
        Ended::from(place.command("sim --modes poll").env("REAP_LOG", filter).output().unwrap())
            .ok()
            .stderr
    };
    let said = run("warn,=x=");
    assert!(
        said.contains("warning: REAP_LOG=warn,=x= is invalid: ")
            && said.contains("using warn,device=error"),
        "{said}"
    );
    assert_eq!(run("warn,reap=debug"), "");
}

/// To fio a size that there is not is a mistake.
#[test]
fn shortened_jobs_are_noted() {
    let place = place();
    let told = |job: &str, device: &str| {
        place.write("job.fio", &format!("[a]\nrw=randread\nnumber_ios=9\n{job}\n"));
        place.reap(&format!("run job.fio --device {device}")).ok().stderr
    };
    let large = told("size=3m\nnumjobs=2", "mem:2M");
    assert_eq!(
        large,
        "note: job 'a' has size=3 MiB, but the device has only 2 MiB; the job uses those\n"
    );
    for (job, device) in [
        ("size=1m", "mem:1M"),
        ("filename=one:two\nsize=2m", "mem:1M"),
        ("filename=/a/b", "file:{filename}?size=1M"),
    ] {
        assert_eq!(told(job, device), "", "{job}");
    }
}

#[test]
fn help_is_no_error() {
    let help = place().reap("run --help").ok();
    assert!(
        help.stdout.contains("Examples:") && help.stdout.contains("--completion"),
        "{}",
        help.stdout
    );
    assert!(place().reap("compare --help").ok().stdout.contains("--host-work"));
    assert!(place().reap("--version").ok().stdout.starts_with("reap 0."));
}

#[test]
fn an_error_names_the_device_once() {
    let place = Place::new();
    for (device, named) in [
        ("pcie:ff:1f.7", "ff:1f.7"),
        ("vfio-user:no.sock", "no.sock"),
        ("file:no/disk?size=1M", "no/disk"),
        ("mem:1M?profile=no.toml", "no.toml"),
        ("multipath:?path=vfio-user:no.sock", "no.sock"),
    ] {
        let ended = place
            .reap(&format!("run --name=a --number_ios=1 --device {device}"))
            .fails_with(&[named]);
        let line = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert_eq!(line.matches(named).count(), 1, "{line}");
    }
}

#[test]
fn addresses_of_a_server_are_checked() {
    fails("serve mem:1M", &["<--vfio-user <SOCKET>|--tcp <ADDR:PORT>>"]);
    for address in ["127.0.0.1", "4420", "localhost:4420", "127.0.0.1:99999"] {
        fails(&format!("serve mem:1M --tcp {address}"), &["127.0.0.1:4420", "not looked up"]);
    }
    fails("serve mem:1M --tcp 127.0.0.1:0 --allow host", &["--allow host", "starts with `nqn.`"]);
    fails("serve mem:1M --vfio-user s --advertise ::1", &["--advertise needs --tcp"]);
    for parameter in ["doorbells=mapped", "shadow=no", "trust=yes", "cntlid=7"] {
        fails(
            &format!("serve mem:1M?{parameter} --tcp 127.0.0.1:0"),
            &[parameter.split('=').next().unwrap_or_default(), "no effect over NVMe/TCP"],
        );
    }
    fails("serve tcp://127.0.0.1/nqn.a --tcp 127.0.0.1:0", &["`tcp:` cannot be served"]);
    fails("serve mem:1M --tcp 127.0.0.1:0 --vfio-user s", &["cannot be used with"]);
    fails("serve mem:1M --vfio-user s --allow nqn.a", &["--allow needs --tcp"]);
    fails(
        "serve mem:1M --tcp 0.0.0.0:0",
        &["0.0.0.0:0 can be reached from other machines", "--allow HOSTNQN"],
    );
    fails("serve kernel:/dev/null --tcp 127.0.0.1:0", &["`kernel:` cannot be served"]);
    fails("ctl 127.0.0.1:1 status", &["no server listens at"]);
}
