//! Whole job files. What fio does with each was observed with fio 3.33; where Reap is stricter, the
//! case says so.

use super::*;
use crate::job::*;
use proptest::prelude::*;
use std::collections::HashMap;
use units::Nanos;

mod synonyms;

/// Files and variables in memory.
#[derive(Default)]
struct World {
    files: HashMap<&'static str, String>,
    variables: HashMap<&'static str, &'static str>,
}

impl Environment for World {
    fn include(&self, _from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        self.files
            .get(path)
            .map(|text| (path.to_owned(), text.clone().into_bytes()))
            .ok_or_else(|| "no such file".into())
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| (*value).to_owned())
    }
}

fn read_in(world: &World, text: &str) -> Result<Parsed, ParseErrors> {
    parse(&[Input { name: "t.fio", text: text.as_bytes() }], world)
}

fn read(text: &str) -> Result<Parsed, ParseErrors> {
    read_in(&World::default(), text)
}

/// The job that a section of these options makes.
fn job(options: &str) -> Job {
    let parsed =
        read(&format!("[a]\n{options}\n")).unwrap_or_else(|errors| panic!("{options:?}: {errors}"));
    parsed.jobs.into_iter().next().unwrap()
}

/// The only error of a section of these options.
fn error(options: &str) -> String {
    let errors = read(&format!("[a]\n{options}\n")).expect_err(options).0;
    assert_eq!(errors.len(), 1, "{options:?}: {errors:?}");
    errors[0].to_string()
}

#[test]
fn block_sizes() {
    // Least and most of reads and of writes, as fio's opening line shows them.
    let cases: &[(&str, [u64; 4])] = &[
        ("", [4096; 4]),
        ("bs=8k", [8192; 4]),
        ("blocksize=8K", [8192; 4]),
        ("bs=4kb", [4096; 4]),
        ("bs=4kib", [4000; 4]),
        ("bs=1m", [1 << 20; 4]),
        ("bs=0x1000", [4096; 4]),
        ("bs=1536", [1536; 4]),
        ("bs=4k,8k", [4096, 4096, 8192, 8192]),
        ("bs=4k-8k", [4096, 4096, 8192, 8192]),
        ("bs=4k:8k", [4096, 4096, 8192, 8192]),
        ("bs=8k,4k,2k", [8192, 8192, 4096, 4096]),
        ("bs=,8k", [4096, 4096, 8192, 8192]),
        ("bs=4096,", [4096; 4]),
        ("bs=8k\nbs=,16k", [8192, 8192, 16384, 16384]),
        ("bs=16k\nbs=8k", [8192; 4]),
        ("bsrange=4k-16k", [4096, 16384, 4096, 16384]),
        ("bsrange=16k-4k", [4096, 16384, 4096, 16384]),
        ("bsrange=4k-8k,1k-2k", [4096, 8192, 1024, 2048]),
        ("bs=8k\nbsrange=1k-2k", [1024, 2048, 1024, 2048]),
        ("bsrange=1k-2k\nbs=8k", [1024, 2048, 1024, 2048]),
        ("bssplit=4k/60:16k/40", [4096, 16384, 4096, 16384]),
        ("bssplit=4k:8k:16k", [4096, 16384, 4096, 16384]),
        ("bssplit=4k/50:16k/50,8k/100", [4096, 16384, 8192, 8192]),
        ("bs=8k\nbssplit=4k/50:16k/50", [4096, 16384, 4096, 16384]),
        // fio reads 8 bytes here, because of the blank.
        ("bs = 8k ", [8192; 4]),
        ("\tbs=8k", [8192; 4]),
        ("bs=8k ; bs=16k", [8192; 4]),
        ("bs=8k # bs=16k", [8192; 4]),
    ];
    for (options, expected) in cases {
        let block = job(options).block;
        let found = [block.read.min, block.read.max, block.write.min, block.write.max];
        assert_eq!(&found, expected, "{options:?}");
    }
    assert_eq!(job("bssplit=4k:8k:16k").block.read.split, [(4096, 33), (8192, 33), (16384, 34)]);
    assert_eq!(job("bssplit=4k/50:8k/20").block.read.split, [(4096, 80), (8192, 20)]);
}

#[test]
fn patterns() {
    let of = |direction, random, step| Pattern { direction, random, step };
    let cases = [
        ("rw=read", of(Direction::Read, false, 0)),
        ("readwrite=write", of(Direction::Write, false, 0)),
        ("rw=rw", of(Direction::Mixed, false, 0)),
        ("rw=readwrite", of(Direction::Mixed, false, 0)),
        ("rw=randread", of(Direction::Read, true, 1)),
        ("rw=randwrite", of(Direction::Write, true, 1)),
        ("rw=randrw", of(Direction::Mixed, true, 1)),
        ("rw=randread:8", of(Direction::Read, true, 8)),
        ("rw=write:4k", of(Direction::Write, false, 4096)),
        ("rw=read:-8k", of(Direction::Read, false, -8192)),
    ];
    for (options, expected) in cases {
        assert_eq!(job(options).pattern, expected, "{options}");
    }
}

#[test]
fn synonyms_and_defaults() {
    let a = job(
        "iodepth=64\niodepth_batch_submit=16\niodepth_batch_complete=8\niodepth_batch_complete_max=32\niodepth_low=4",
    );
    assert_eq!(
        (a.iodepth, a.batch_submit, a.complete_min, a.complete_max, a.iodepth_low),
        (64, 16, 8, 32, 4)
    );
    let b = job("iodepth=64\niodepth_batch=16\niodepth_batch_complete_min=8");
    assert_eq!(
        (b.iodepth, b.batch_submit, b.complete_min, b.complete_max, b.iodepth_low),
        (64, 16, 8, 0, 0)
    );
    assert_eq!(job("io_limit=1g").io_size, job("io_size=1g").io_size);
    assert_eq!(job("timeout=5").runtime, Some(Nanos::from_secs(5)));
    assert_eq!(job("fileoffset=1m").offset, Amount::Bytes(1 << 20));
    assert!(job("wait_for_previous").stonewall);
    assert_eq!(job("rwmixwrite=30\nrw=rw").read_percent, 70);
    assert!(!job("randrepeat=0").repeatable);
    let plain = job("");
    assert_eq!(plain, Job { name: "a".into(), ..Job::default() });
}

#[test]
fn times_amounts_rates_and_lists() {
    let times = [
        ("5", 5_000_000_000),
        ("5s", 5_000_000_000),
        ("2m", 120_000_000_000),
        ("10ms", 10_000_000),
        ("7us", 7_000),
        ("1h", 3_600_000_000_000),
    ];
    for (text, nanos) in times {
        assert_eq!(job(&format!("runtime={text}")).runtime, Some(Nanos(nanos)), "{text}");
        assert_eq!(job(&format!("ramp_time={text}")).ramp_time, Nanos(nanos), "{text}");
    }
    assert_eq!(job("runtime=1d").runtime, Some(Nanos(86_400_000_000_000)));
    assert_eq!(job("runtime=0").runtime, None);
    assert_eq!(job("startdelay=2").start_delay, (Nanos::from_secs(2), Nanos::from_secs(2)));
    assert_eq!(job("startdelay=3-1").start_delay, (Nanos::from_secs(1), Nanos::from_secs(3)));
    assert_eq!(job("size=50%").size, Some(Amount::Percent(50)));
    assert_eq!(job("size=1g\noffset=10%").offset, Amount::Percent(10));
    assert_eq!(job("number_ios=1k").number_ios, Some(1024));
    assert_eq!(job("rate=1m").rate, PerOp::all(Some(Rate::Bytes(1 << 20))));
    assert_eq!(
        job("rate=1m,500k").rate,
        PerOp { read: Some(Rate::Bytes(1 << 20)), ..PerOp::all(Some(Rate::Bytes(500 << 10))) }
    );
    assert_eq!(
        job("rate_iops=,500").rate,
        PerOp { read: None, ..PerOp::all(Some(Rate::Iops(500))) }
    );
    assert_eq!(job("rate_process=poisson").rate_process, RateProcess::Poisson);
    assert_eq!(job("cpus_allowed=0-3,8,2").cpus_allowed, Some(vec![0, 1, 2, 3, 8]));
    assert!(job("cpus_allowed_policy=split").cpus_split);
    assert_eq!(job("filename=/dev/a:/dev/b").filenames, ["/dev/a", "/dev/b"]);
    assert_eq!(job(r"filename=/dev/a\:b").filenames, ["/dev/a:b"]);
    assert_eq!(job("percentile_list=99.9:50").percentiles, [50.0, 99.9]);
    assert_eq!(job("percentile_list=99.9:50").percentile_precision, 1);
    assert_eq!(job("random_distribution=zipf").distribution, Distribution::Zipf { theta: 1.2 });
    assert_eq!(job("random_distribution=zipf:0.8").distribution, Distribution::Zipf { theta: 0.8 });
    assert_eq!(job("random_generator=lfsr").random_generator, RandomGenerator::Lfsr);
    assert_eq!(job("randseed=0x10").seed, Some(16));
}

#[test]
fn flushes_between_writes() {
    let of = |text: &str| (job(text).sync_every, job(text).sync_at_end);
    assert_eq!(
        (of("fsync=32"), job("fdatasync=1").data_sync_every, of("bs=4k")),
        ((32, false), 1, (0, false))
    );
    assert_eq!(
        (of("end_fsync=1"), of("fsync_on_close=1\nfsync=2"), of("end_fsync=0")),
        ((0, true), (2, true), (0, false))
    );
}

#[test]
fn measurement_and_verification() {
    let all = Measure::default();
    assert_eq!(
        (job("reap_urgent=1").urgent, job("reap_urgent").urgent, job("bs=4k").urgent),
        (true, true, false)
    );
    assert_eq!(
        job("gtod_reduce=1").measure,
        Measure { slat: false, clat: false, lat: false, ..all }
    );
    assert_eq!(job("disable_slat=1").measure, Measure { slat: false, ..all });
    assert_eq!(
        job("lat_percentiles=1\nclat_percentiles=0").measure,
        Measure { lat_percentiles: true, clat_percentiles: false, ..all }
    );
}

#[test]
fn verification() {
    assert_eq!(job("verify=crc32c").verify, Some(Verify::default()));
    let strict = job("verify=crc32c-intel\nverify_fatal=1\ndo_verify=0\nverify_interval=512");
    assert_eq!(
        strict.verify,
        Some(Verify { interval: Some(512), fatal: true, after_write: false, ..Verify::default() })
    );
    for (name, kind) in VerifyKind::ALL {
        let verify = job(&format!("verify={name}\nverify_pattern=%o")).verify.unwrap();
        assert_eq!((verify.kind, verify.pattern.unwrap().offsets), (kind, vec![0]));
    }
    let later = job(
        "rw=write\nverify=md5\nverify_only\nverify_offset=64\nverify_header_seed=0\nverify_dump=0",
    );
    let wanted = Verify {
        kind: VerifyKind::Md5,
        only: true,
        offset: 64,
        header_seed: Some(false),
        ..Verify::default()
    };
    assert_eq!(later.verify, Some(wanted));
    // A pattern alone is a way to verify, unless verify says something else.
    assert_eq!(job("verify_pattern=0xff").verify.unwrap().kind, VerifyKind::PatternHeader);
    assert_eq!(job("verify=0\nverify_pattern=0xff").verify, None);
    assert_eq!(job("verify=crc32c\nverify=0").verify, None);
    // Reading jobs verify anyway; verify_only changes nothing.
    assert!(job("rw=read\nverify_only").verify.is_none());
}

#[test]
fn engines_are_noted_with_their_options() {
    assert_eq!(job("").engine, Engine::default());
    let ring = job("ioengine=io_uring\nhipri\nfixedbufs=1\nregisterfiles\nsqthread_poll=1").engine;
    assert_eq!(
        ring,
        Engine { name: Some("io_uring".to_owned()), hipri: true, sqthread_poll: true }
    );
    for name in ["libaio", "sync", "psync", "pvsync", "pvsync2", "posixaio"] {
        assert_eq!(job(&format!("ioengine={name}")).engine.name.as_deref(), Some(name));
    }
    let warnings = read("[a]\nioengine=libaio\nhipri\n").unwrap().warnings;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["t.fio:1:1: job 'a': hipri is an option of ioengine=io_uring in fio"]);
    for name in
        ["cpuio", "exec", "net", "rdma", "filecreate", "filestat", "filedelete", "ftruncate"]
    {
        let told = error(&format!("ioengine={name}"));
        assert!(
            told.starts_with(&format!("t.fio:2:10: ioengine: ioengine={name} does no block I/O")),
            "{told}"
        );
    }
}

#[test]
fn flags_need_no_value() {
    for (name, get) in [
        ("time_based\nruntime=1", (|j| j.time_based) as fn(&Job) -> bool),
        ("time_based=1\nruntime=1", |j| j.time_based),
        ("group_reporting", |j| j.group_reporting),
        ("exitall", |j| j.exitall),
        ("stonewall", |j| j.stonewall),
        ("new_group", |j| j.new_group),
        ("norandommap", |j| !j.random_map),
        ("norandommap=0", |j| j.random_map),
        ("group_reporting\ngroup_reporting=0", |j| !j.group_reporting),
    ] {
        assert!(get(&job(name)), "{name}");
    }
}

#[test]
fn globals_apply_to_later_sections() {
    let parsed = read("[global]\nbs=8k\n[a]\n[global]\nbs=16k\niodepth=4\n[b]\nbs=,4k\n[global-more]\nbs=2k\n[c]\n").unwrap();
    let blocks: Vec<_> = parsed
        .jobs
        .iter()
        .map(|job| (job.name.as_str(), job.block.read.min, job.block.write.min, job.iodepth))
        .collect();
    assert_eq!(blocks, [("a", 8192, 8192, 1), ("b", 16384, 4096, 4), ("c", 2048, 2048, 4)]);
    assert_eq!(parsed.globals.len(), 4);
    let two = [
        Input { name: "1", text: b"[global]\nbs=8k\n[a]\n" },
        Input { name: "2", text: b"[b]\n[c]\n" },
    ];
    let parsed = parse(&two, &Nothing).unwrap();
    let jobs: Vec<_> = parsed.jobs.iter().map(|job| (job.block.read.min, job.stonewall)).collect();
    assert_eq!(jobs, [(8192, false), (4096, true), (4096, false)]);
}

#[test]
fn sections() {
    let parsed = read(
        "; a comment\n\n  # another\n[same] ; z\nbs=1k\n[same]\nbs=2k\n[ a b ]\n[]\n[x]\nname=y\n",
    )
    .unwrap();
    let names: Vec<_> = parsed.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["same", "same", " a b ", "", "y"]);
    assert_eq!(parsed.jobs[0].options, [("bs".to_owned(), Some("1k".to_owned()))]);
    // A carriage return is a blank, a byte order mark is nothing.
    assert_eq!(read("\u{feff}[a]\r\nbs=8k\r\n").unwrap().jobs[0].block.read.min, 8192);
}

#[test]
fn variables() {
    let world = World {
        variables: HashMap::from([("BB", "16"), ("NAME", "bs"), ("LOOP", "${LOOP}")]),
        ..World::default()
    };
    let parsed =
        read_in(&world, "[a]\n${NAME}=${BB}k\nnumjobs=2\ndescription=${LOOP} ${ not closed\n")
            .unwrap();
    let job = &parsed.jobs[0];
    assert_eq!((job.block.read.min, job.numjobs), (16384, 2));
    assert_eq!(job.description.as_deref(), Some("${LOOP} ${ not closed"));
    assert_eq!(job.options[0], ("bs".to_owned(), Some("16k".to_owned())));
    assert_eq!(
        error("bs=${BB}k"),
        "t.fio:2:4: bs: 'k' is not a number (${BB} is not set, so it is empty)"
    );
}

#[test]
fn includes() {
    let mut world = World::default();
    world.files.insert("depth.fio", "iodepth=7\n; comment\ninclude size.fio\n".into());
    world.files.insert("size.fio", "size=1m\n".into());
    world.files.insert("section.fio", "bs=1k\n[x]\n".into());
    world.files.insert("a", "include b\n".into());
    world.files.insert("b", "include a\n".into());
    world.files.insert("bad.fio", "\nbs=x\n".into());
    let parsed = read_in(&world, "[global]\ninclude depth.fio\n[a]\n").unwrap();
    assert_eq!((parsed.jobs[0].iodepth, parsed.jobs[0].size), (7, Some(Amount::Bytes(1 << 20))));
    let fails = |text: &str| read_in(&world, text).unwrap_err().to_string();
    assert_eq!(
        fails("[a]\ninclude none.fio\n"),
        "t.fio:2:1: cannot include 'none.fio': no such file"
    );
    assert_eq!(
        fails("[a]\ninclude section.fio\n"),
        "section.fio:2:1: '[x]': an included file holds options only (move the section to the including file)"
    );
    assert_eq!(fails("[a]\ninclude a\n"), "b:1:1: 'a' includes itself: t.fio → a → b");
    assert_eq!(fails("[a]\ninclude bad.fio\n"), "bad.fio:2:4: bs: 'x' is not a number");
    assert!(fails("include depth.fio\n[a]\n").contains("before the first [section]"));
}

#[test]
fn includes_that_multiply_end() {
    // Each file includes the next one twice: 2^40 files without a limit.
    struct Doubling;
    impl Environment for Doubling {
        fn include(&self, _: &str, path: &str) -> Result<(String, Vec<u8>), String> {
            let n: u32 = path.parse().unwrap();
            Ok((path.to_owned(), format!("include {}\ninclude {}\n", n + 1, n + 1).into_bytes()))
        }
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }
    let errors = parse(&[Input { name: "t", text: b"[a]\ninclude 1\n" }], &Doubling).unwrap_err();
    assert!(errors.0[0].message.contains("nested includes"), "{errors}");
    assert_eq!(errors.0.len(), 101);
}

#[test]
fn errors_name_place_and_remedy() {
    let cases = [
        ("blcksize=4k", "t.fio:2:1: unknown option 'blcksize' (did you mean 'blocksize'?)"),
        ("start_delay=1", "t.fio:2:1: unknown option 'start_delay' (did you mean 'startdelay'?)"),
        ("  xyzzyplugh=1", "t.fio:2:3: unknown option 'xyzzyplugh'"),
        ("\"bs\"=4k", "t.fio:2:1: unknown option '\"bs\"' (did you mean 'bs'?)"),
        (
            "rw=rnadread",
            "t.fio:2:4: rw: 'rnadread' is not one of read, write, rw, readwrite, randread, randwrite, randrw, trim, randtrim, trimwrite, randtrimwrite; \
             did you mean 'randread'?",
        ),
        ("bs=\"8k\"", "t.fio:2:4: bs: '\"8k\"' is not a number"),
        ("bs=0", "t.fio:2:4: bs: 0 is too small; the minimum is 1"),
        ("bs", "t.fio:2:1: bs: this option needs a value"),
        ("bs=", "t.fio:2:4: bs: this option needs a value"),
        ("bs==4k", "t.fio:2:4: bs: '=4k' is not a number"),
        ("=4k", "t.fio:2:1: an option without a name"),
        ("iodepth=0", "t.fio:2:9: iodepth: 0 is too small; the minimum is 1"),
        ("iodepth = 1000000", "t.fio:2:11: iodepth: 1000000 is too large; the maximum is 65535"),
        ("direct=true", "t.fio:2:8: direct: 'true' is neither 0 nor 1"),
        ("direct=2", "t.fio:2:8: direct: '2' is neither 0 nor 1"),
        ("direct", "t.fio:2:1: direct: this option needs a value"),
        ("rwmixread=101", "t.fio:2:11: rwmixread: 101 is too large; the maximum is 100"),
        ("cpus_allowed=x", "t.fio:2:14: cpus_allowed: 'x' is not the number of a CPU"),
        (
            "cpus_allowed=3-1",
            "t.fio:2:14: cpus_allowed: '3-1' is not a range of CPUs: it ends before it starts",
        ),
        (
            "random_distribution=zipf:1.0",
            "t.fio:2:21: random_distribution: the exponent of zipf must not be 1",
        ),
        (
            "random_distribution=pareto:2",
            "t.fio:2:21: random_distribution: '2': pareto takes a number above 0 and at most 0.999",
        ),
        (
            "zonemode=strided",
            "t.fio:2:1: `reap run` does not support `zonemode=strided`; see docs/fio-jobs.md",
        ),
        (
            "random_distribution=zoned:60/10:50/20",
            "t.fio:2:21: random_distribution: `reap run` does not support `random_distribution=zoned`; see docs/fio-jobs.md",
        ),
        ("percentile_list=101", "t.fio:2:17: percentile_list: '101' is not between 0 and 100"),
        (
            "verify=sha512",
            "t.fio:2:8: verify: `reap run` does not support `verify=sha512`; see docs/fio-jobs.md",
        ),
        ("verify=pattern", "t.fio:1:1: job 'a': verify=pattern needs verify_pattern="),
        ("rw=write\nverify_only", "t.fio:1:1: job 'a': verify_only needs verify="),
        (
            "rw=write\nverify=md5\nverify_only\ndo_verify=0",
            "t.fio:1:1: job 'a': verify_only and do_verify=0 exclude each other",
        ),
        (
            "filesize=4k-8k",
            "t.fio:2:10: filesize: '4k-8k': a range of sizes, one at random for each file, is not supported; give one size",
        ),
        (
            "directory=/a:/b",
            "t.fio:2:11: directory: '/a:/b' names several directories; give one, or each job its own filename",
        ),
        ("ioengine=page_fault", "t.fio:2:10: ioengine: ioengine=page_fault does no block I/O"),
        ("read_iolog=x", "t.fio:1:1: read_iolog=x: no such file"),
        (
            "verify_pattern=abc",
            "t.fio:2:16: verify_pattern: 'abc' begins with no string (\"…\"), no number (0x…, or decimal, of 32 bits), and no %o",
        ),
        ("rate=1m\nrate_iops=5", "t.fio:1:1: job 'a': rate and rate_iops exclude each other"),
        ("size=1k\nbs=4k", "t.fio:1:1: job 'a': size 1024 is less than the smallest block, 4096"),
        (
            "ioengine=libiao",
            "t.fio:2:10: ioengine: 'libiao' is not an fio I/O engine; did you mean 'libaio'?",
        ),
        ("numjobs=5000", "t.fio:2:9: numjobs: 5000 is too large; the maximum is 4096"),
        // fio takes these, and reads something else than what was meant.
        ("bs=4kfoo", "t.fio:2:4: bs: '4kfoo': 'kfoo' is not a unit (k, m, g, t, p; kb, kib, …)"),
        ("bs=1.5k", "t.fio:2:4: bs: '1.5k': not a whole number; use a smaller unit"),
        ("bs=4 k", "t.fio:2:4: bs: '4 k': ' k' is not a unit (k, m, g, t, p; kb, kib, …)"),
        (
            "runtime=1min",
            "t.fio:2:9: runtime: '1min': 'min' is not a unit of time (us, ms, s, m, h, d)",
        ),
        ("offset=-1", "t.fio:2:8: offset: '-1' is negative"),
        (
            "bs=-8k",
            "t.fio:2:4: bs: '-8k': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "bs=--8k",
            "t.fio:2:4: bs: '--8k': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "bs=4k:-8k",
            "t.fio:2:4: bs: '4k:-8k': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        ("bs=4k,-8k", "t.fio:2:4: bs: '-8k' is negative"),
        (
            "bsrange=-4k-8k",
            "t.fio:2:9: bsrange: '-4k-8k': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "rate=-1",
            "t.fio:2:6: rate: '-1': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "rate_iops=-5",
            "t.fio:2:11: rate_iops: '-5': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "startdelay=-1",
            "t.fio:2:12: startdelay: '-1': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "startdelay=1--2",
            "t.fio:2:12: startdelay: '1--2': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "cpus_allowed=-1",
            "t.fio:2:14: cpus_allowed: '-1': there is no value before the dash; a dash separates two values, and neither may be negative",
        ),
        (
            "bssplit=4k/60:8k/60",
            "t.fio:2:9: bssplit: the percentages add up to 120, which is more than 100",
        ),
        ("size=99999999999t", "t.fio:2:6: size: '99999999999t' is too large"),
    ];
    for (options, expected) in cases {
        assert_eq!(error(options), expected);
    }
}

#[test]
fn one_pass_finds_all_errors() {
    let errors =
        read("orphan=1\nbs=4k\n[a\nbs=x\nfoo_bar_baz=1\n[b]\nrw=rx\niodepth=0\n").unwrap_err();
    let places: Vec<String> =
        errors.0.iter().map(|e| e.location.as_ref().unwrap().to_string()).collect();
    assert_eq!(
        places,
        ["t.fio:1:1", "t.fio:3:1", "t.fio:4:4", "t.fio:5:1", "t.fio:7:4", "t.fio:8:9"]
    );
}

#[test]
fn unsupported_options_warn_once() {
    let parsed = read(
        "[a]\nprio=5\nioengine=libaio\nuserspace_reap\n[b]\nprio=7\nioengine=io_uring\nhipri=1\n",
    )
    .unwrap();
    let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "t.fio:2:1: fio's option 'prio' is ignored, because it does not change the I/O",
            "t.fio:4:1: fio's option 'userspace_reap' is ignored, because it does not change the I/O",
        ]
    );
    let notes: Vec<String> = parsed.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["t.fio:3:1: ioengine=libaio has no effect: the device URI chooses the engine"]
    );
    assert!(
        read("[a]\nioengine=psync\n").unwrap().notes[0].to_string().contains("one I/O in flight")
    );
    assert_eq!(read("[a]\ntime_based\n").unwrap().warnings.len(), 1);
}

/// What is off is not missed, whether it would change the I/O or not.
#[test]
fn options_that_change_nothing_are_taken() {
    let parsed = read("[a]\nthinktime=0\nzonemode=none\nnrfiles=1\nverify_dump=0\nrw_sequencer=sequential\nsync=none\nprio=0\n").unwrap();
    assert_eq!(parsed.warnings, []);
    for (option, usual) in known::REFUSED {
        let refused =
            format!("t.fio:2:1: `reap run` does not support `{option}=7`; see docs/fio-jobs.md");
        assert_eq!(error(&format!("{option}=7")), refused);
        for value in ["0", "none", usual].into_iter().filter(|value| !value.is_empty()) {
            assert_eq!(
                read(&format!("[a]\n{option}={value}\n")).unwrap().warnings,
                [],
                "{option}={value}"
            );
        }
    }
}

#[test]
fn options_are_kept_verbatim() {
    let parsed = read("[global]\nbs=4k\n[a]\ntime_based\nruntime=5\n").unwrap();
    let given = |options: &[(&str, Option<&str>)]| -> Vec<(String, Option<String>)> {
        options.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect()
    };
    assert_eq!(parsed.globals, given(&[("bs", Some("4k"))]));
    assert_eq!(parsed.jobs[0].options, given(&[("time_based", None), ("runtime", Some("5"))]));
    assert_eq!(
        (option("time_based"), option("rw"), option("prio"), option("nonsense")),
        (Some(Argument::Optional), Some(Argument::Required), Some(Argument::Required), None)
    );
}

#[test]
fn files_without_a_job_are_errors() {
    for text in ["", "# nothing\n", "[global]\nbs=4k\n"] {
        assert!(read(text).unwrap_err().to_string().contains("no job: add a section"), "{text:?}");
    }
    assert!(read("[a]\nnumjobs=4096\n[b]\n").unwrap_err().to_string().contains("4097 job threads"));
    let errors =
        parse(&[Input { name: "t", text: b"[a]\nbs=\xff4k\n# \xff in a comment\n" }], &Nothing)
            .unwrap_err();
    assert_eq!(errors.to_string(), "t:2:4: this is not UTF-8 text");
}

#[test]
fn whatever_is_too_much_ends() {
    // A variable that fills memory, a line without an end, a million jobs, a million errors.
    struct Flood;
    impl Environment for Flood {
        fn include(&self, _: &str, _: &str) -> Result<(String, Vec<u8>), String> {
            Err("none".into())
        }
        fn variable(&self, _: &str) -> Option<String> {
            Some("x".repeat(100_000))
        }
    }
    let fails =
        |text: &str| parse(&[Input { name: "t", text: text.as_bytes() }], &Flood).unwrap_err();
    assert!(
        fails(&format!("[a]\nfilename={}\n", "${X}".repeat(1000)))
            .to_string()
            .contains("more than 8192 bytes")
    );
    assert!(
        fails(&format!("[a]\nfilename={}\n", "y".repeat(9000)))
            .to_string()
            .contains("the line has 9009 bytes")
    );
    let many = format!("[global]\ncpus_allowed=0-4095\n{}", "[a]\n".repeat(20_000));
    assert!(fails(&many).to_string().contains("4097 job threads"));
    let errors = fails(&format!("[a]\n{}", "blcksize=1\n".repeat(20_000))).0;
    assert_eq!((errors.len(), errors[100].message.as_str()), (101, "and 19900 more errors"));
}

#[test]
fn each_fio_option_is_known_once() {
    let mut names: Vec<&str> = options::names().collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(names.iter().all(|name| !name.is_empty() && !name.contains(['=', ' '])));
}

/// Something like a job file: names, separators and values in any order.
fn like_a_job_file() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = options::names().collect();
    let name = prop_oneof![4 => proptest::sample::select(names), 1 => Just("include"), 1 => Just("[a]"), 1 => Just("[global]"), 1 => Just("${X}")];
    let value = prop_oneof![
        "[0-9]{1,20}[kmgtpsKib%z]{0,3}",
        "[0-9a-z:,/.-]{0,12}",
        Just("randrw:-9999999999999999999".to_owned()),
        "\\PC{0,8}",
    ];
    let line = (name, "[ =\t]{0,3}", value, "[\n\r;#]{0,2}")
        .prop_map(|(n, e, v, end)| format!("{n}{e}{v}{end}\n"));
    proptest::collection::vec(line, 0..40).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn bytes_of_any_kind_never_panic(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = parse(&[Input { name: "t", text: &text }], &Nothing);
    }

    #[test]
    fn job_like_text_never_panics(text in like_a_job_file()) {
        let section = format!("[a]\n{text}");
        for text in [&text, &section] {
            if let Ok(parsed) = parse(&[Input { name: "t", text: text.as_bytes() }], &World::default()) {
                // What was accepted can be planned, and run or refused.
                let plan = crate::plan::plan(&parsed.jobs, &[0, 1]);
                prop_assert!(plan.threads.len() <= 4096);
                for thread in plan.threads.iter().take(2) {
                    let targets = vec![crate::TargetSize { bytes: 1 << 24, block: 512, size_at_setup: None }; thread.targets.len()];
                    let _ = crate::Generator::new(&parsed.jobs[thread.job], thread.id(1), &targets);
                }
            }
        }
    }

    #[test]
    fn numbers_round_trip(n in any::<u32>(), unit in 0usize..5) {
        let (name, factor) = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1u64 << 30), ("t", 1 << 40)][unit];
        let expected = u64::from(n).checked_mul(factor);
        prop_assert_eq!(values::number(&format!("{n}{name}")).ok(), expected);
    }
}

#[test]
fn repository_jobs_read_without_warnings() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../jobs");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read(&path).unwrap();
        let name = path.display().to_string();
        let parsed = parse(&[Input { name: &name, text: &text }], &Nothing)
            .unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(parsed.warnings, [], "{name}");
        // Each says how it is run.
        assert!(
            String::from_utf8(text)
                .unwrap()
                .contains(&format!("reap run jobs/{}", path.file_name().unwrap().display())),
            "{name}"
        );
        seen += 1;
    }
    assert!(seen >= 8);
}
