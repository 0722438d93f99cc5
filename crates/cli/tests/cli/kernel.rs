//! Jobs on files of one's own, through the kernel: what a name means, what may be written, whole
//! runs.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use serde_json::Value;

use crate::support::{Ended, Place};

const MIB: u64 = 1 << 20;

/// A place with the file `disk` of 8 MiB.
fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("disk"), vec![7; 8 * MIB as usize]).unwrap();
    place.write("read.fio", "[a]\nrw=randread\nbs=4k\niodepth=8\nnumber_ios=200\nfilename=disk\n");
    place.write("plain.fio", "[a]\nrw=randread\nbs=4k\niodepth=8\nnumber_ios=200\n");
    place
}

/// This kernel, or this file system, may have no io_uring for the test; then it says so, and that
/// is no failure of the command's.
fn runs(ended: Ended) -> Option<Ended> {
    if ended.code == Some(1) && ended.stderr.contains("through this kernel") {
        eprintln!("skipped: {}", ended.stderr);
        return None;
    }
    Some(ended.ok())
}

#[test]
fn output_distinguishes_paths_and_names() {
    let place = place();
    let Some(path) = runs(place.reap("run read.fio")) else { return };
    assert!(path.stdout.contains("\nDevice: kernel:disk (a file, read-only)"), "{}", path.stdout);
    let name = place.reap("run read.fio --device mem:8M").ok();
    assert!(
        name.stdout.contains("\nDevice: mem:8M (embedded; filename=disk is a name, not a path)\n"),
        "{}",
        name.stdout
    );
    for (device, link) in [
        ("", "kernel"),
        ("--device kernel:", "kernel"),
        ("--device kernel:disk", "kernel"),
        ("--device mem:8M", "embedded"),
    ] {
        let json = place.reap(&format!("run read.fio {device} --output-format json")).ok().json();
        assert_eq!(
            (&json["devices"][0]["link"], &json["devices"][0]["filename"]),
            (&link.into(), &"disk".into()),
            "{device}"
        );
        let calls = &json["jobs"][0]["reap"]["system_calls_per_io"];
        assert_eq!(
            calls.as_f64().is_some_and(|calls| calls > 0.0),
            link == "kernel",
            "{device}: {calls}"
        );
    }
}

#[test]
fn file_is_written_and_verified() {
    let place = place();
    place.write(
        "job.fio",
        "[a]\nrw=write\nbs=64k\niodepth=4\nsize=1m\noffset=2m\nfilename=disk\nverify=crc32c\n",
    );
    let Some(_) = runs(place.reap("run job.fio --completion interrupt")) else { return };
    let disk = fs::File::open(place.path("disk")).unwrap();
    let byte = |at: u64| {
        let mut page = [0; 4096];
        disk.read_exact_at(&mut page, at).unwrap();
        page.iter().all(|byte| *byte == 7)
    };
    assert_eq!(
        [0, 2 * MIB - 4096, 2 * MIB, 3 * MIB - 4096, 3 * MIB].map(byte),
        [true, true, false, false, true]
    );
    assert_eq!(disk.metadata().unwrap().len(), 8 * MIB);
}

#[test]
fn new_file_has_job_size() {
    let place = place();
    place.write("job.fio", "[a]\nrw=randrw\nbs=4k\nsize=1m\noffset=64k\nnumjobs=2\noffset_increment=1m\nfilename=new/f\n");
    let Some(ended) = runs(place.reap("run job.fio")) else { return };
    assert!(ended.stdout.contains("kernel:new/f (a new file, read-write)"), "{}", ended.stdout);
    assert_eq!(fs::metadata(place.path("new/f")).unwrap().len(), 2 * MIB + 64 * 1024);
    // Without a size it cannot be created.
    place.write("job.fio", "[a]\nrw=randread\nfilename=none\n");
    place.reap("run job.fio").fails_with(&["none", "no such file", "`size=`"]);
}

/// As a command of fio's does that is copied; the embedded device has to be asked for.
#[test]
fn a_copied_command_measures_its_path() {
    let place = place();
    let job = "run --name=a --rw=randwrite --bs=4k --size=1m --number_ios=16";
    let Some(ended) = runs(place.reap(&format!("{job} --directory=. --numjobs=2"))) else { return };
    assert!(ended.stdout.contains("kernel:./a.0.0 (a new file, read-write)"), "{}", ended.stdout);
    assert_eq!(
        ["a.0.0", "a.1.0"].map(|name| fs::metadata(place.path(name)).unwrap().len()),
        [MIB; 2]
    );
    place.reap(&format!("{job} --directory=none")).fails_with(&["there is no directory none"]);
    // Nothing is made where devices are.
    let device = "/dev/reap-no-such-device";
    place.reap(&format!("{job} --filename={device}")).fails_with(&[device, "no such device"]);
    assert!(!std::path::Path::new(device).exists());
    place.reap(&format!("{job} --filename=new --device mem:8M")).ok();
    assert!(!place.path("new").exists());
}

#[test]
fn forbidden_writes_open_nothing() {
    let place = place();
    place.write("both.fio", "[a]\nrw=randread\nfilename=disk\n[b]\nrw=randread\n");
    place.reap("run both.fio").fails_with(&["job 'b' has no filename=", "--device mem:SIZE"]);
    place
        .reap("run plain.fio --device kernel:")
        .fails_with(&["job 'a' has no filename=", "kernel:PATH"]);
    place.reap("compare --device kernel:").fails_with(&["job 'randread' has no filename="]);
    place
        .reap("run plain.fio --device kernel:?siz=1M")
        .fails_with(&["column 9", "did you mean `size`?"]);
    place.write("write.fio", "[a]\nrw=write\nfilename=disk\n");
    place
        .reap("run write.fio --device kernel:?readonly=yes")
        .fails_with(&["job 'a' writes to disk", "remove one of them"]);
    place
        .reap("run read.fio --output disk")
        .fails_with(&["--output disk would overwrite an input file"]);
    // Only root can make it somebody else's.
    if std::os::unix::fs::chown(place.path("disk"), Some(12_345), None).is_ok() {
        let words =
            ["job 'a'", "would write to disk, a regular file of user 12345", "--allow-writes"];
        assert_eq!(place.reap("run write.fio").fails_with(&words).stdout, "");
        assert_eq!(fs::read(place.path("disk")).unwrap(), vec![7; 8 * MIB as usize]);
        let Some(_) = runs(place.reap("run read.fio")) else { return };
        runs(place.reap("run write.fio --allow-writes"));
    }
}

#[test]
fn modes_are_compared_on_a_file() {
    let place = place();
    let line = "compare --device kernel:disk --modes interrupt,posted,poll --repeat 2 --wide --json results.json --html page.html";
    let Some(ended) = runs(place.reap(line)) else { return };
    for words in ["on kernel:disk", "Device: kernel:disk (a file, read-only)", "posted: ", "sys"] {
        assert!(ended.stdout.contains(words), "{words:?} is not in {}", ended.stdout);
    }
    for words in ["notify", "msgs", "device's thread", "device thread"] {
        assert!(!ended.stdout.contains(words), "{words:?} is in {}", ended.stdout);
    }
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(
        (&results["devices"][0]["link"], &results["complete"]),
        (&"kernel".into(), &true.into())
    );
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|row| row["mode"].as_str().unwrap()).collect::<Vec<_>>(),
        ["interrupt", "posted", "poll"]
    );
    for row in rows {
        assert!(
            row["iops"].as_f64().unwrap() > 0.0 && row["cpu_ns_per_io"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        assert!(row["system_calls_per_io"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["messages_per_s"].is_null() && row["notify_ns_per_io"].is_null(), "{row}");
        assert_eq!(row["profile"], "kernel");
    }
    assert!(place.read("page.html").contains("system_calls_per_io"));
}

/// Two threads, two files, a rate, and loads: what a sweep does, on files.
#[test]
fn a_sweep_runs_on_several_files() {
    let place = place();
    fs::copy(place.path("disk"), place.path("other")).unwrap();
    place.write("two.fio", "[a]\nrw=randrw\nbs=4k\niodepth=4\nfilename=disk:other\n[b]\nrw=randread\nbs=4k\nfilename=other\n");
    let line = "compare two.fio --modes interrupt --repeat 1 --loads 30,100 --background 20 --json results.json";
    let Some(ended) = runs(place.reap(line)) else { return };
    assert!(ended.stdout.contains("on kernel:disk and kernel:other"), "{}", ended.stdout);
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(
        (results["rows"].as_array().unwrap().len(), results["devices"].as_array().unwrap().len()),
        (4, 2)
    );
}

/// What submits also waits: counted by Reap, and, where there is strace, by the kernel.
#[test]
fn one_system_call_per_io() {
    let place = place();
    place.write("one.fio", "[a]\nrw=randread\nbs=4k\niodepth=1\nnumber_ios=400\nnorandommap\nfilename=disk\ngtod_reduce=1\n");
    let Some(ended) = runs(place.reap("run one.fio --completion interrupt --output-format json"))
    else {
        return;
    };
    let calls = ended.json()["jobs"][0]["reap"]["system_calls_per_io"].as_f64().unwrap();
    assert!(calls > 0.0 && calls <= 1.0, "{calls} system calls for each I/O");
    let Some(few) = traced(&place, "one.fio", 400) else { return };
    place.write("more.fio", "[a]\nrw=randread\nbs=4k\niodepth=1\nnumber_ios=2400\nnorandommap\nfilename=disk\ngtod_reduce=1\n");
    let Some(many) = traced(&place, "more.fio", 2400) else { return };
    // The job thread's alone, whatever they are; a snapshot of its progress now and then is not the
    // library's.
    let (enters, others) = (many.0 - few.0, many.1.saturating_sub(few.1));
    assert!(
        enters <= 2000 && others <= 100,
        "2000 more I/Os took {enters} enters and {others} other system calls"
    );
}

/// Calls to io_uring_enter, and all others, of the job thread of a run. `None`: there is no strace.
fn traced(place: &Place, job: &str, ios: u64) -> Option<(u64, u64)> {
    let (out, traces) = (place.path("out.json"), place.path("trace"));
    let mut command = std::process::Command::new("strace");
    command
        .args(["-ff", "-o"])
        .arg(&traces)
        .args([env!("CARGO_BIN_EXE_reap"), "run"])
        .arg(place.path(job));
    command
        .args(["--completion", "interrupt", "--output-format", "json", "--output"])
        .arg(&out)
        .current_dir(place.path("."));
    let Ok(output) = command.output() else {
        eprintln!("skipped in part: there is no strace");
        return None;
    };
    if !output.status.success() {
        eprintln!("skipped in part: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let files = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().path());
    let traces: Vec<_> = files
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("trace."))
        .collect();
    let counts = traces.iter().map(|path| {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        let calls = text
            .lines()
            .filter(|line| !line.starts_with("---") && !line.starts_with("+++"))
            .count() as u64;
        let enters = text.lines().filter(|line| line.starts_with("io_uring_enter")).count() as u64;
        (enters, calls - enters)
    });
    let busiest = counts.max().unwrap();
    traces.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert!(busiest.0 >= ios / 2, "strace has seen the job thread: {busiest:?}");
    Some(busiest)
}

#[test]
fn kernel_modes_need_kernel_devices() {
    let place = place();
    place
        .reap("run plain.fio --completion kernel-sqpoll")
        .fails_with(&["kernel-sqpoll", "only `kernel:` devices"]);
    place
        .reap("compare --modes interrupt,kernel-iopoll")
        .fails_with(&["kernel-iopoll", "only `kernel:` devices"]);
    place
        .reap("sim --modes kernel-sqpoll")
        .fails_with(&["kernel-sqpoll", "only `kernel:` devices"]);
    // No poll queues behind a file on this test's file system: unless there are, that is said.
    let line = "compare --device kernel:disk --modes interrupt,kernel-sqpoll,kernel-iopoll,kernel-hybrid-iopoll --repeat 2 --json results.json";
    let Some(ended) = runs(place.reap(line)) else { return };
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    let rows: Vec<_> = results["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["mode"].as_str().unwrap())
        .collect();
    for mode in ["kernel-sqpoll", "kernel-iopoll", "kernel-hybrid-iopoll"] {
        let why = ended.stdout.replace('\n', " ").contains(&format!("Left out: `{mode}`: "));
        assert_ne!(
            rows.contains(&mode),
            why,
            "{mode} is a row, or it is said why not: {}",
            ended.stdout
        );
    }
    assert_eq!(rows[0], "interrupt");
}

#[test]
fn io_uring_options_apply_or_note() {
    let place = place();
    let job =
        "[a]\nioengine=io_uring\nrw=randread\nbs=4k\niodepth=8\nnumber_ios=200\nfilename=disk\n";
    for (option, mode, otherwise) in
        [("hipri", "kernel-iopoll", "poll"), ("sqthread_poll", "kernel-sqpoll", "adaptive")]
    {
        place.write("job.fio", &format!("{job}{option}\nregisterfiles\nfixedbufs\n"));
        let Some(ended) = runs(place.reap("run job.fio --output-format json")) else { return };
        let ran = ended.json()["jobs"][0]["reap"]["mode"].as_str().unwrap().to_owned();
        let told = ended.stderr.contains(&format!("note: `{mode}`: "))
            && ended.stderr.contains(&format!("the jobs run in {otherwise}"));
        assert!(
            if told { ran == otherwise } else { ran == mode },
            "{option}: {ran}: {}",
            ended.stderr
        );
        if told {
            place.reap(&format!("run job.fio --completion {mode}")).fails_with(&[mode]);
        }
    }
}

/// fio names the disk under a file, and leaves `disk_util` out where it knows of none.
#[test]
fn disk_util_is_of_the_disk() {
    let place = place();
    let Some(run) = runs(place.reap("run read.fio --output-format json")) else { return };
    let number = fs::metadata(place.path("disk")).unwrap().dev();
    let known = fs::exists(format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    ))
    .unwrap();
    let disks = run.json()["disk_util"].as_array().cloned().unwrap_or_default();
    assert_eq!(disks.len(), usize::from(known));
    for disk in &disks {
        assert!(
            disk["name"].as_str().is_some_and(|name| !name.is_empty())
                && disk["util"].as_f64().is_some(),
            "{disk}"
        );
    }
    let embedded = place.reap("run read.fio --device mem:8M --output-format json").ok().json();
    assert!(embedded.get("disk_util").is_none());
}
