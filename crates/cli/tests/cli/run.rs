use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ended, Place, interrupt, patiently};

const SHORT: &str = "[short]\nrw=randread\nbs=4k\niodepth=8\nruntime=100ms\ntime_based\n";
const SMALL: &str = "--device mem:16M?profile=optane";

fn place(job: &str) -> Place {
    let place = Place::new();
    place.write("job.fio", job);
    place
}

#[test]
fn results_have_fios_layout() {
    let ended = place(SHORT).reap(&format!("run job.fio {SMALL}")).ok();
    for part in [
        "short: (g=0): rw=randread, bs=(R) 4096B-4096B",
        "Starting 1 thread",
        "short: (groupid=0, jobs=1): err= 0",
        "  read: IOPS=",
        "clat percentiles",
        "  cpu          : usr=",
        "  reap         : mode=adaptive, cpu=",
        "Run status group 0 (all jobs):",
    ] {
        assert!(ended.stdout.contains(part), "{part:?} is not in\n{}", ended.stdout);
    }
    assert_eq!(ended.stderr, "");
}

#[test]
fn histograms_show_what_wake_ups_brought() {
    let drawn = |mode: &str| {
        place(SHORT)
            .reap(&format!("run job.fio {SMALL} --histograms --completion {mode}"))
            .ok()
            .stdout
    };
    let interrupt = drawn("interrupt");
    for part in [
        "short: completions per wake-up by a notification",
        "     completions   : count     distribution",
        "     usecs    ",
    ] {
        assert!(interrupt.contains(part), "{part:?} is not in\n{interrupt}");
    }
    let poll = drawn("poll");
    assert!(poll.contains("short: no notification woke the thread"), "{poll}");
}

#[test]
fn json_extends_fios_schema() {
    for mode in [
        "interrupt",
        "interrupt+submit-check",
        "irq-poll",
        "irq-poll+submit-check",
        "hybrid-mean",
        "poll",
    ] {
        let results = place(SHORT)
            .reap(&format!("run job.fio {SMALL} --output-format json --completion {mode}"))
            .ok()
            .json();
        let job = &results["jobs"][0];
        assert_eq!(job["jobname"], "short");
        assert_eq!(job["error"], 0);
        let ios = job["read"]["total_ios"].as_u64().unwrap();
        assert!(ios > 0);
        let reap = job["reap"].as_object().unwrap();
        let keys: Vec<&str> = reap.keys().map(String::as_str).collect();
        let wanted = [
            "mode",
            "cpu_ns_per_io",
            "notify_ns_per_io",
            "messages",
            "wakeups",
            "completions_per_wakeup",
            "empty_polls",
            "sq_doorbells",
            "cq_doorbells",
        ];
        assert_eq!(keys[..wanted.len()], wanted);
        assert_eq!(reap["mode"], mode);
        assert!(reap["cpu_ns_per_io"].as_f64().unwrap() > 0.0, "{reap:?}");
        let count = |name: &str| reap[name].as_u64().unwrap();
        assert!(count("sq_doorbells") > 0 && count("sq_doorbells") <= ios + 8, "{ios} {reap:?}");
        assert!(count("cq_doorbells") > 0 && count("cq_doorbells") <= ios + 8, "{ios} {reap:?}");
        match mode {
            "poll" | "hybrid-mean" => assert_eq!(count("messages"), 0, "{reap:?}"),
            "interrupt" => {
                assert!(count("messages") + 8 >= ios, "a message for each entry: {ios} {reap:?}")
            }
            _ => assert!(count("messages") > 0, "{reap:?}"),
        }
    }
}

#[test]
fn a_file_can_hold_the_results() {
    let place = place(SHORT);
    let ended =
        place.reap(&format!("run job.fio {SMALL} --output-format json --output results.json")).ok();
    assert_eq!(ended.stdout, "");
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    assert_eq!(results["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn threads_can_share_hardware_queues() {
    let job = SHORT.replace("iodepth=8", "iodepth=4\nnumjobs=4\ngroup_reporting");
    for queues in [1, 2] {
        let options = format!(
            "run job.fio {SMALL} --queues {queues} --completion interrupt+submit-check --output-format json"
        );
        let ended = place(&job).reap(&options).ok();
        let job = &ended.json()["jobs"][0];
        assert!(job["read"]["total_ios"].as_u64().unwrap() > 0);
        // This machine has fewer than five CPUs, or it has more: what is said follows from that.
        let cpus = thread::available_parallelism().unwrap().get();
        assert_eq!(job["reap"].get("oversubscribed").is_some(), cpus < 5, "{job:#}");
    }
}

#[test]
fn oversubscription_is_reported() {
    let job = SHORT.replace("iodepth=8", "numjobs=3\ncpus_allowed=0\ngroup_reporting");
    for mode in ["interrupt", "poll"] {
        let ended = place(&job).reap(&format!("run job.fio {SMALL} --completion {mode}")).ok();
        assert!(
            ended.stdout.contains("oversubscribed: 3 job threads on 1 CPU"),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn missing_cpus_warn_once() {
    let job = format!(
        "[global]\ncpus_allowed=900-907\ncpus_allowed_policy=split\n{SHORT}numjobs=2\n[more]\nruntime=50ms\n"
    );
    let ended = place(&job).reap(&format!("run job.fio {SMALL}")).ok();
    assert_eq!(ended.stderr.matches("warning:").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("mapped round-robin"), "{}", ended.stderr);
}

#[test]
fn each_filename_is_a_device() {
    let place = Place::new();
    place.write(
        "job.fio",
        "[both]\nrw=write\nbs=4k\nsize=64k\niodepth=4\nverify=crc32c\nfilename=/dev/one:two\n",
    );
    place.reap("run job.fio --device file:{filename}.img?size=1M").ok();
    let written = |name: &str| {
        std::fs::read(place.path(name)).unwrap().iter().filter(|&&byte| byte != 0).count()
    };
    // Half of it went to each.
    for image in ["dev_one.img", "two.img"] {
        assert!((30_000..=32_768).contains(&written(image)), "{image}: {} bytes", written(image));
    }
}

#[test]
fn later_job_reads_earlier_writes() {
    let verify = "[global]\nbs=4k\nsize=1m\niodepth=8\nverify=crc32c\n[write]\nrw=randwrite\n[read]\nstonewall\nrw=randread\nrandseed=3\n";
    let ended = place(verify).reap("run job.fio --device mem:4M --output-format json").ok();
    let results = ended.json();
    assert_eq!(results["jobs"][1]["read"]["io_bytes"], 1 << 20);
    assert_eq!(results["jobs"][1]["error"], 0);
}

fn flip_a_bit(place: &Place, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(place.path("disk.img")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn verify_needs_a_data_device() {
    let ended = place("[w]\nrw=write\nsize=64k\nverify=crc32c\n")
        .reap("run job.fio --device mem:4M?profile=null");
    ended.fails_with(&["job 'w' has verify=", "`null` does not store data"]);
}

#[test]
fn verify_finds_a_flipped_bit() {
    let place = Place::new();
    place.write(
        "write.fio",
        "[write]\nrw=write\nbs=4k\nsize=256k\niodepth=4\nverify=crc32c\ndo_verify=0\n",
    );
    place.write("read.fio", "[read]\nrw=read\nbs=4k\nsize=256k\niodepth=4\nverify=crc32c\n");
    let device = "--device file:disk.img?size=256K";
    place.reap(&format!("run write.fio {device}")).ok();
    place.reap(&format!("run read.fio {device}")).ok();
    flip_a_bit(&place, 17 * 4096 + 1234);
    let ended = place.reap(&format!("run read.fio {device}")).fails_with(&[
        "on file:disk.img",
        "verify: at offset 69632, length 4096",
        "crc32c is",
        "byte 1234 is",
    ]);
    assert!(ended.stdout.contains("err=84"), "{}", ended.stdout);
    // The results are complete all the same, as verify_fatal is not set.
    assert!(ended.stdout.contains("total=64,0,0,0"), "{}", ended.stdout);
}

#[test]
fn full_medium_fails_the_job() {
    let ended =
        place("[fill]\nrw=write\nbs=64k\nsize=64m\n").reap("run job.fio --device mem:64M?alloc=4M");
    ended.fails_with(&["job 'fill'", "No space left on device"]);
}

#[test]
fn first_ctrl_c_prints_results() {
    let place = place(
        "[long]\nrw=randread\nbs=4k\niodepth=8\nruntime=60\ntime_based\n[slow]\nrate_iops=1\nruntime=60\n",
    );
    let (ended, results) = patiently(|time| {
        let child = place.start(&format!("run job.fio {SMALL} --output-format json"));
        thread::sleep(time);
        interrupt(&child);
        let ended: Ended = child.wait_with_output().unwrap().into();
        // None while it does not listen to signals.
        let results = ended.code.map(|_| ended.json())?;
        (results["jobs"][0]["read"]["total_ios"].as_u64().unwrap() > 0).then_some((ended, results))
    });
    assert_eq!(results["jobs"].as_array().unwrap().len(), 2);
    assert!(ended.stopped().stderr.contains("stopped by a signal"));
}

#[test]
fn second_ctrl_c_ends_program() {
    // The thread waits for its I/O, which the device holds back for a minute.
    let place = place("[stuck]\nrw=randread\nbs=4k\nruntime=60\ntime_based\n");
    place.write("slow.toml", "read = { base_ns = 60_000_000_000 }\nwrite = { base_ns = 0 }\n");
    let (mut child, said) = patiently(|time| {
        let mut child =
            place.start("run job.fio --device mem:1M?profile=slow.toml --completion poll");
        thread::sleep(time);
        interrupt(&child);
        let mut said = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        said.contains("in flight: 1;").then_some((child, said))
    });
    assert!(
        said.contains("waiting for I/Os in flight") && said.contains("another Ctrl-C"),
        "{said}"
    );
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!text.contains("err="), "{text}");
}

#[test]
fn stdin_can_be_job_file() {
    let mut command = assert_cmd::Command::cargo_bin("reap").unwrap();
    let output = command
        .args(["run", "-", "--device", "mem:16M"])
        .write_stdin(SHORT)
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    let ended = Ended::from(output).ok();
    assert!(ended.stdout.contains("short: (groupid=0"), "{}", ended.stdout);
}

#[test]
fn missing_options_are_named_once() {
    let ended = place(&format!("{SHORT}prio=3\n[b]\nprio=4\nruntime=10ms\n"))
        .reap(&format!("run job.fio {SMALL}"))
        .ok();
    assert_eq!(ended.stderr.matches("'prio'").count(), 1, "{}", ended.stderr);
}

/// Flushes at depth, to two devices, with verified data; and buffers are not lost over it.
#[test]
fn fsync_interval_is_kept() {
    let job = "[a]\nrw=randwrite\nbs=4k\niodepth=8\nfilename=one:two\nsize=1M\nfsync=16\nend_fsync=1\nverify=crc32c\n";
    for mode in ["adaptive", "interrupt", "poll"] {
        let results = place(job)
            .reap(&format!("run job.fio --device file:{{filename}}.img?size=2M --output-format json --completion {mode}"))
            .ok()
            .json();
        let job = &results["jobs"][0];
        assert_eq!(
            (&job["error"], &job["write"]["total_ios"], &job["read"]["total_ios"]),
            (&0.into(), &256.into(), &256.into())
        );
        assert_eq!(
            (&job["sync"]["total_ios"], &job["sync"]["lat_ns"]["N"]),
            (&(15 + 2).into(), &(15 + 2).into())
        );
    }
}

/// Two paths, one of which is lost for a while: the job does not notice, and the table says what
/// each path did.
#[test]
fn paths_have_lines_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("paths.fio");
    let script = "script=at%20200ms%20path%200%20lost;at%20400ms%20path%200%20back";
    let device = format!(
        "multipath:?path=mem:8M?profile=null&path=mem:8M?profile=null%26delay=100us&keep_alive=2s&{script}"
    );
    let run = |format: &str, time: Duration| {
        let time = time.as_millis();
        std::fs::write(
            &job,
            format!("[a]\nrw=randrw\nbs=4k\niodepth=8\nsize=8M\nruntime={time}ms\ntime_based\n"),
        )
        .unwrap();
        let mut command = assert_cmd::Command::cargo_bin("reap").unwrap();
        let output = command
            .arg("run")
            .arg(&job)
            .args(["--device", &device, "--output-format", format])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let normal = run("normal", Duration::from_secs(1));
    assert!(
        normal.contains("Paths:") && normal.contains("mem:8M?profile=null&delay=100us"),
        "{normal}"
    );
    // How soon the path is used again is the machine's business.
    patiently(|time| {
        let json: serde_json::Value = serde_json::from_str(&run("json", time * 5)).unwrap();
        let paths = json["paths"].as_array().unwrap();
        assert_eq!((paths.len(), &json["jobs"][0]["error"]), (2, &0.into()));
        assert!(paths.iter().all(|path| path["ios"].as_u64().unwrap() > 0), "{paths:?}");
        paths.iter().all(|path| path["state"] == "optimized").then_some(())
    });
}

/// As fio has them; with a word or an equals sign between option and value.
#[test]
fn command_line_jobs_run() {
    let place = Place::new();
    let line = "run --bs=8k --name=a --rw randwrite --size=64k --name=b --rw=read --size=32k";
    let json = place.reap(&format!("{line} {SMALL} --output-format json")).ok().json();
    let jobs = json["jobs"].as_array().unwrap();
    let counts: Vec<_> = jobs
        .iter()
        .map(|job| {
            (
                job["jobname"].as_str().unwrap(),
                job["read"]["total_ios"].as_u64(),
                job["write"]["total_ios"].as_u64(),
            )
        })
        .collect();
    assert_eq!(counts, [("a", Some(0), Some(8)), ("b", Some(4), Some(0))]);
    let parsed = place.reap(&format!("{line} --parse-only")).ok();
    assert_eq!(
        (parsed.stdout.as_str(), parsed.stderr.as_str()),
        ("", "2 jobs with 2 threads; nothing was run\n")
    );
}

/// As fio has it: of the first file alone, and its lines keep their numbers.
#[test]
fn options_are_the_first_files_defaults() {
    let place = Place::new();
    place.write("a.fio", "[global]\nbs=8k\n[a]\n[b]\nsize=16k\n").write("c.fio", "[c]\nsize=4k\n");
    let jobs = place
        .reap("run a.fio -size=64k c.fio --rw=write --device=mem:1M -output-format=json")
        .ok()
        .json();
    let shown: Vec<_> = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["jobname"].clone(), job["write"]["io_bytes"].clone()))
        .collect();
    assert_eq!(
        shown,
        [("a".into(), 65_536.into()), ("b".into(), 16_384.into()), ("c".into(), 0.into())]
    );
    let jobs = place
        .reap("run a.fio --size=64k --section=b --name=l --device=mem:1M -output-format=json")
        .ok()
        .json();
    assert_eq!(
        (jobs["jobs"].as_array().unwrap().len(), &jobs["jobs"][0]["jobname"]),
        (1, &"b".into())
    );
    place
        .write("bad.fio", "[a]\nbs=4kk\n")
        .reap("run bad.fio --size=64k --direct=1")
        .fails_with(&["error: bad.fio:2:4:"]);
}

#[test]
fn command_line_mistakes_are_reported() {
    let place = Place::new();
    place.reap("run").fails_with(&["there is no job; give a job file", "--name=mine"]);
    let ended = place.reap("run --bs=4kk --name=a --rw=randred").fails_with(&[
        "--rw=randred: 'randred'",
        "'randread'",
        "--bs=4kk: '4kk'",
    ]);
    assert!(!ended.stderr.contains("command line"), "{}", ended.stderr);
    place.reap("run --name=a --iodepht=4").fails_with(&["--iodepht", "--iodepth"]);
    place
        .reap("run --name=a --file_append=1")
        .fails_with(&["--file_append=1: `reap run` does not support `file_append=1`"]);
    place.reap("run --runtime").fails_with(&["--runtime needs a value"]);
    place.reap("run --bs=4k").fails_with(&["there is no job; give a job file", "--name=mine"]);
}

/// As fio has it: where a job names no CPUs, the scheduler places its threads, whatever the device.
#[test]
fn cpus_allowed_pins_threads() {
    let allowed = |text: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
        line.map(str::to_owned)
    };
    let own = allowed(&std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap();
    let first = own.split([',', '-']).next().unwrap();
    for device in ["mem:16M", "kernel:disk?size=1M"] {
        for (option, wanted) in
            [(String::new(), own.as_str()), (format!("cpus_allowed={first}\n"), first)]
        {
            let place = place(&format!("[a]\nrw=randread\nruntime=60\ntime_based\n{option}"));
            let mut child = place.start(&format!("run job.fio --device {device}"));
            let tasks = format!("/proc/{}/task", child.id());
            let job = |task: std::io::Result<std::fs::DirEntry>| {
                let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
                status.starts_with("Name:\treap-job-").then(|| allowed(&status))?
            };
            // It pins itself as it starts; where that never comes, this does not end.
            let found = patiently(|time| {
                thread::sleep(time);
                std::fs::read_dir(&tasks).ok()?.find_map(job).filter(|found| found == wanted)
            });
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found, wanted, "{device} {option}");
        }
    }
}
