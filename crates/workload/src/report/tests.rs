//! Layouts as snapshots, the JSON schema against the keys that fio 3.33 writes.

use super::normal::{scale, short};
use super::*;
use crate::fio::{Input, Nothing, parse};
use crate::generator::{Next, TargetSize};
use crate::plan::plan;
use crate::stats::Moments;
use std::collections::BTreeSet;

/// Runs job files on a device whose latencies follow from a counter, and reports them.
fn report(text: &str) -> (Report, String) {
    let parsed = parse(&[Input { name: "t", text: text.as_bytes() }], &Nothing).unwrap();
    let plan = plan(&parsed.jobs, &[0, 1]);
    let mut entries: Vec<JobResult> = Vec::new();
    for thread in &plan.threads {
        let job = &parsed.jobs[thread.job];
        if thread.report == entries.len() {
            entries.push(JobResult {
                pid: 4242,
                elapsed: Nanos::from_secs(3),
                ..JobResult::new(job, thread)
            });
        }
        let mut generator = Generator::new(
            job,
            thread.id(1),
            &[TargetSize { bytes: 64 << 20, block: 512, size_at_setup: None }],
        )
        .unwrap();
        drive(&mut generator);
        let usage = ResourceUsage {
            user: Nanos::from_millis(120),
            system: Nanos::from_millis(40),
            context_switches: 321,
            major_faults: 0,
            minor_faults: 17,
        };
        let entry = &mut entries[thread.report];
        entry.add(&generator, usage);
        entry.reap = CompletionStats {
            decisions: Default::default(),
            mode: "interrupt+submit-check".into(),
            cpu_ns_per_io: 812.4,
            notify_ns_per_io: Some(95.5),
            messages: Some(1000),
            wakeups: 900,
            completions_per_wakeup: 7.25,
            empty_polls: 12,
            sq_doorbells: 5000,
            cq_doorbells: 4000,
            system_calls_per_io: None,
            oversubscribed: thread.cpus.len() > 1,
        };
    }
    let report = Report {
        program: "reap-0.1.0".into(),
        unix_ms: 1_696_260_159_123,
        global_options: parsed.globals,
        entries,
        ..Report::default()
    };
    let opening = opening(&parsed.jobs, &plan, &report.program, "mem");
    (report, opening)
}

fn drive(generator: &mut Generator) {
    let (mut now, mut flying, mut count) = (Nanos(0), std::collections::VecDeque::new(), 0u64);
    let memory = vec![0; 1 << 20];
    loop {
        match generator.next(now) {
            Next::Issue(io) => {
                flying.push_back(io);
            }
            Next::Commit => {
                now += Nanos(700 + count % 7 * 100);
                generator.committed(now);
            }
            Next::Reap { min } => {
                for _ in 0..min {
                    count += 1;
                    // Mostly some microseconds, seldom a millisecond.
                    now += Nanos(
                        8_000
                            + count.wrapping_mul(2_654_435_761) % 9_000
                            + if count % 997 == 0 { 1_500_000 } else { 0 },
                    );
                    let io: crate::Io = flying.pop_front().unwrap();
                    generator.completed(io.slot, now, Ok(()), &memory[..io.len as usize]);
                }
            }
            Next::Wait { until } => now = until,
            Next::Done => return,
        }
    }
}

const MIXED: &str = "[global]\nioengine=libaio\nbs=4k\nsize=64m\n[mixed]\ndescription=what it is for\nrw=randrw\niodepth=8\nruntime=3\n\
                     time_based\nrwmixread=70\nlat_percentiles=1\nslat_percentiles=1\n";

#[test]
fn mixed_job_matches_fio_output() {
    let (report, opening) = report(MIXED);
    insta::assert_snapshot!(opening + &normal(&report));
}

#[test]
fn groups_match_fio_output() {
    let text = "[global]\nrw=randread\ngroup_reporting\nruntime=2\ntime_based\n[first]\nnumjobs=2\niodepth=32\niodepth_batch=16\n\
                iodepth_batch_complete_min=16\n[reduced]\nstonewall\ngtod_reduce=1\niodepth=4\n[paced]\nnew_group\nrate_iops=10k\n";
    let (report, opening) = report(text);
    insta::assert_snapshot!(opening + &normal(&report));
}

#[test]
fn headline_contains_errors() {
    let (report, _) = report("[check]\nrw=read\nverify=crc32c\nsize=64k\n");
    let text = normal(&report);
    let headline = text.lines().nth(1).unwrap();
    assert_eq!(
        headline,
        "check: (groupid=0, jobs=1): err=84 (verify: at offset 0, length 4096: no verify header (bad magic 0x0000, wanted 0xacca), and 15 more): \
         pid=4242: Mon Oct  2 15:22:39 2023"
    );
}

#[test]
fn errors_are_shown_where_tolerated() {
    let shown = |text: &str| json(&report(text).0, false)["jobs"][0]["total_err"].clone();
    assert_eq!(shown("[a]\nrw=read\nsize=64k\ncontinue_on_error=all\n"), 0);
    assert!(shown("[a]\nrw=read\nsize=64k\n").is_null());
}

#[test]
fn json_has_fio_keys() {
    let (report, _) = report(MIXED);
    let mut keys = Vec::new();
    collect(&json(&report, false), "", &mut keys);
    let wanted: BTreeSet<&str> = include_str!("fio-keys.txt").lines().collect();
    let found: BTreeSet<&str> =
        keys.iter().map(String::as_str).filter(|key| !key.starts_with("jobs/*/reap")).collect();
    assert_eq!(found.symmetric_difference(&wanted).collect::<Vec<_>>(), Vec::<&&str>::new());
    // In fio's order, too.
    let order: Vec<&str> =
        keys.iter().map(String::as_str).filter(|key| wanted.contains(key)).collect();
    assert_eq!(order, include_str!("fio-keys.txt").lines().collect::<Vec<_>>());
    let extra: Vec<&String> = keys.iter().filter(|key| key.starts_with("jobs/*/reap")).collect();
    assert_eq!(extra.len(), 10);
}

fn collect(value: &serde_json::Value, path: &str, keys: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}/{key}") };
                keys.push(path.clone());
                if !key.ends_with(" options") {
                    collect(value, &path, keys);
                }
            }
        }
        serde_json::Value::Array(list) => {
            list.iter().take(1).for_each(|value| collect(value, &format!("{path}/*"), keys))
        }
        _ => {}
    }
}

#[test]
fn json_has_what_was_measured() {
    let (report, _) = report(MIXED);
    let root = json(&report, false);
    let job = &root["jobs"][0];
    assert_eq!(root["timestamp"], 1_696_260_159);
    assert_eq!(root["global options"]["bs"], "4k");
    assert_eq!(job["job options"]["iodepth"], "8");
    let (read, stats) = (&job["read"], &report.entries[0].stats.read);
    assert_eq!(read["total_ios"], stats.ios);
    assert_eq!(read["io_bytes"], stats.bytes);
    assert_eq!(read["runtime"], 3001);
    assert_eq!(read["clat_ns"]["N"], stats.ios);
    assert_eq!(read["clat_ns"]["percentile"].as_object().unwrap().len(), 17);
    assert!(read["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap() > 50_000);
    assert_eq!(job["reap"]["mode"], "interrupt+submit-check");
    assert_eq!(job["trim"]["total_ios"], 0);
    let shares: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|unit| job[*unit].as_object().unwrap().values())
        .map(|share| share.as_f64().unwrap())
        .sum();
    assert!((shares - 100.0).abs() < 0.2, "{shares}");
    let (reduced, _) = self::report("[a]\nrw=randread\ngtod_reduce=1\nsize=1m\n");
    let reduced = json(&reduced, false);
    assert_eq!(reduced["jobs"][0]["read"]["lat_ns"]["N"], 0);
    assert!(reduced["jobs"][0]["read"]["clat_ns"].get("percentile").is_none());
    assert!(reduced.get("global options").is_none());
}

#[test]
fn rate_adds_intended_latency() {
    let (report, _) = report("[a]\nrw=randread\nrate_iops=200k\nruntime=1\ntime_based\n");
    let intended = &json(&report, false)["jobs"][0]["reap"]["read_lat_from_intended_start_ns"];
    assert!(intended["max"].as_u64().unwrap() > 100_000_000);
    assert!(normal(&report).contains("    lat from the intended start (usec): min="));
}

#[test]
fn flushes_have_lines_of_their_own() {
    let (report, _) = report("[a]\nrw=write\nsize=64k\nfsync=4\nend_fsync=1\n");
    let sync = &json(&report, false)["jobs"][0]["sync"];
    assert_eq!((&sync["total_ios"], &sync["lat_ns"]["N"]), (&4.into(), &4.into()));
    assert_eq!(sync["lat_ns"]["percentile"].as_object().unwrap().len(), 17);
    let text = normal(&report);
    for line in [
        "  fsync/fdatasync/sync_file_range:\n    sync (nsec): min=",
        "    sync percentiles (",
        "total=0,16,0,4 short",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn numbers_match_fio_digits() {
    // As seen in fio's results.
    let cases = [
        (4096, true, "4096"),
        (16384, true, "16.0Ki"),
        (1 << 20, true, "1024Ki"),
        (4000, true, "4000"),
        (179 << 20, true, "179Mi"),
        (62_179_000, false, "62.2M"),
        (187_000_000, false, "187M"),
        (45_700, false, "45.7k"),
        (1_048_576_000, false, "1049M"),
        (1_048_576_000, true, "1000Mi"),
        (999, false, "999"),
        (0, true, "0"),
        (u64::MAX, true, "16.0Ei"),
    ];
    for (n, binary, expected) in cases {
        assert_eq!(short(n, 4, binary, ""), expected, "{n}");
    }
    assert_eq!(short(1_318_800, 6, false, ""), "1318.8k");
    assert_eq!(short(6_137_900, 6, false, "s"), "6137.9ks");
    assert_eq!(short(666_230, 6, false, ""), "666230");
}

#[test]
fn latency_units_match_fio() {
    assert_eq!(scale(1_450, 666_230, 7446.0).0, "nsec");
    assert_eq!(scale(19_000, 5_438_000, 79_990.0).0, "usec");
    assert_eq!(scale(19_000, 5_438_000, 900.0).0, "nsec");
    assert_eq!(scale(2_000_001, 100_000_000, 1_000_001.0).0, "msec");
    assert_eq!(scale(73_216, 2_801_664, f64::INFINITY).0, "usec");
}

#[test]
fn dates_are_those_of_the_calendar() {
    let cases = [
        (0, "Thu Jan  1 00:00:00 1970"),
        (951_782_400, "Tue Feb 29 00:00:00 2000"),
        (1_696_260_159, "Mon Oct  2 15:22:39 2023"),
        (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
        (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(ctime(seconds), expected);
    }
}

#[test]
fn an_empty_report_is_no_panic() {
    assert_eq!(normal(&Report::default()), "");
    let nothing = Report { entries: vec![JobResult::default()], ..Report::default() };
    assert!(normal(&nothing).contains("jobs=0"));
    assert_eq!(json(&nothing, false)["jobs"][0]["read"]["iops_min"], Moments::default().min());
}

#[test]
fn trims_have_rows_of_their_own() {
    let (report, opening) = report("[a]\nrw=trimwrite\nbs=4k,4k,8k\nsize=1m\n");
    assert!(
        opening.contains("rw=trimwrite, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 8192B-8192B"),
        "{opening}"
    );
    let text = normal(&report);
    for row in
        ["\n  trim: IOPS=", "\n  write: IOPS=", "\n   TRIM: bw=", "issued rwts: total=0,255,128,0"]
    {
        assert!(text.contains(row), "{row}: {text}");
    }
    let trim = &json(&report, false)["jobs"][0]["trim"];
    assert_eq!((trim["total_ios"].as_u64(), trim["io_bytes"].as_u64()), (Some(128), Some(1 << 20)));
}

#[test]
fn json_plus_has_the_histograms() {
    let (report, _) = report("[a]\nrw=randread\nsize=1m\n");
    let (plain, plus) = (json(&report, false), json(&report, true));
    assert!(plain["jobs"][0]["read"]["clat_ns"]["bins"].is_null());
    let bins = plus["jobs"][0]["read"]["clat_ns"]["bins"].as_object().unwrap();
    assert_eq!(bins.values().filter_map(serde_json::Value::as_u64).sum::<u64>(), 256);
    assert!(plus["jobs"][0]["write"]["clat_ns"]["bins"].is_null());
}

#[test]
fn unified_reporting_merges_operations() {
    let shown = |unified: &str| {
        let (report, _) =
            report(&format!("[a]\nrw=randrw\nsize=1m\nunified_rw_reporting={unified}\n"));
        let (json, text) = (json(&report, false)["jobs"][0].clone(), normal(&report));
        let names = ["mixed", "read", "write", "trim"].map(|name| !json[name].is_null());
        let rows = ["  mixed: IOPS=", "  MIXED: bw=", "  read: IOPS=", "   READ: bw="]
            .map(|row| text.contains(row));
        (names, rows, json["mixed"]["total_ios"].as_u64())
    };
    assert_eq!(shown("none"), ([false, true, true, true], [false, false, true, true], None));
    assert_eq!(
        shown("mixed"),
        ([true, false, false, false], [true, true, false, false], Some(256))
    );
    assert_eq!(shown("both"), ([true; 4], [true; 4], Some(256)));
}
