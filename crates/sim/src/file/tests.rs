use completion::Mode;
use emu::Profile;
use proptest::prelude::*;
use units::Nanos;
use workload::fio::Nothing;

use super::*;
use crate::{Affinity, Engine, HostStack, Multipath, Phase, Scenario};

mod shared;

const WHOLE: &str = r#"
title = "everything"
modes = ["interrupt", "poll"]
seed = 7
seeds = 3
duration = "20ms"
ramp = "1.5ms"
limit = "10s"
host = "kernel"
[machine]
cpus = 4
nodes = 2
posted = true
hogs = [3, 3]
costs.base = "vm"
costs.interrupt = { entry = 321 }
scheduler.slice = "2ms"
softirq = { restarts = 5 }
[[device]]
name = "fast"
count = 2
profile = "optane"
queues = 4
tags = 128
affinity = "0-1,3"
[[device]]
bytes = "2G"
[device.profile]
channels = 3
read.base_ns = 5000
write.base_ns = 6000
[[job]]
cpus = "1-2"
devices = ["fast1"]
engine = "libaio"
think = "2us"
work = "300ns"
phase = [{ from = "0ms", iops = 1000 }, { from = "5ms", iops = 2000 }]
options = { rw = "randread", bs = 512, norandommap = true }
[[job]]
fio = """
[global]
numjobs=2
[a]
filename=nvme1
[b]
filename=fast0
"""
[[switch]]
at = "10ms"
mode = "poll"
"#;

/// A device whose vectors cannot be masked, from the file to its outcome.
#[test]
fn maskless_device_gets_poll_queues() {
    let text = "ios = 500\n[[device]]\nprofile = \"optane\"\nqueues = 2\nmasks = false\n[[job]]\nqueues = 2\noptions = { iodepth = 8, rw = \"randread\" }\n\
                [[switch]]\nat = \"200us\"\nmode = \"interrupt\"\n";
    let scenario = read("s.toml", text, &Nothing).unwrap().scenario;
    let device = &scenario.devices[0];
    assert_eq!(
        (device.masks, device.queues, device.config.queue_pairs, device.config.vectors),
        (false, 2, 4, 3)
    );
    let outcome = Scenario { mode: Mode::POLL, ..scenario }.run().unwrap();
    assert_eq!(
        (outcome.counts.completed, outcome.messages + outcome.silent, outcome.suppressed),
        (500, 500, 0)
    );
    assert!(
        outcome.messages > 100 && outcome.silent > 50,
        "{} {}",
        outcome.messages,
        outcome.silent
    );
}

#[test]
fn every_key_arrives() {
    let file = read("whole.toml", WHOLE, &Nothing).unwrap();
    let scenario = &file.scenario;
    assert_eq!((file.title.as_str(), file.seeds, scenario.seed), ("everything", 3, 7));
    assert_eq!(file.modes, [Mode::INTERRUPT, Mode::POLL]);
    assert_eq!((scenario.host, scenario.limit), (HostStack::Kernel, Nanos::from_secs(10)));
    let machine = &scenario.machine;
    assert_eq!(
        (machine.cpus, machine.nodes, machine.posted, &machine.hogs[..]),
        (4, 2, true, &[3, 3][..])
    );
    assert_eq!(
        (machine.costs.interrupt.entry, machine.costs.thread),
        (Nanos(321), Costs::VIRTUAL.thread)
    );
    assert_eq!((machine.scheduler.slice, machine.softirq.restarts), (Nanos::from_millis(2), 5));
    let names: Vec<&str> = scenario.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["fast0", "fast1", "nvme1"]);
    let (fast, own) = (&scenario.devices[1], &scenario.devices[2]);
    assert_eq!((fast.queues, fast.tags, &fast.affinity), (4, 128, &Affinity::Cpus(vec![0, 1, 3])));
    assert_eq!(
        (own.bytes, own.config.profile.channels, own.config.profile.read.base),
        (2 << 30, 3, Nanos(5_000))
    );
    let [first, a, b] = &scenario.jobs[..] else { panic!("{:?}", scenario.jobs.len()) };
    assert_eq!((first.engine, first.think, first.work), (Engine::Libaio, Nanos(2_000), Nanos(300)));
    assert_eq!(
        (first.job.cpus_allowed.as_deref(), &first.job.filenames[..]),
        (Some(&[1, 2][..]), &["fast1".to_owned()][..])
    );
    assert_eq!((first.job.block.read.max, first.job.random_map), (512, false));
    assert_eq!(first.phases[1], Phase { from: Nanos::from_millis(5), iops: 2000 });
    assert_eq!(
        (a.job.name.as_str(), a.job.numjobs, b.job.filenames[0].as_str()),
        ("a", 2, "fast0")
    );
    for spec in &scenario.jobs {
        let job = &spec.job;
        assert_eq!(
            (job.runtime, job.time_based, job.ramp_time),
            (Some(Nanos::from_millis(20)), true, Nanos(1_500_000))
        );
    }
    assert_eq!(scenario.switches, [(Nanos::from_millis(10), Mode::POLL)]);
}

#[test]
fn minimal_scenario_is_read() {
    let file =
        read("small.toml", "[[device]]\nprofile = \"tlc\"\n[[job]]\noptions = {}\n", &Nothing)
            .unwrap();
    assert_eq!((file.title.as_str(), file.seeds, file.modes.len()), ("small.toml", 1, 0));
    assert_eq!(file.scenario.devices[0].config.profile, Profile::tlc());
    assert_eq!(file.scenario.machine.costs, Costs::BARE_METAL);
    assert_eq!(file.scenario.jobs[0].job.runtime, Some(Nanos::from_millis(50)));
}

/// Text that follows a correct line, and what the message must contain.
const MISTAKES: [(&str, &[&str]); 67] = [
    (
        "ramp = \"9000000s\"",
        &["s.toml:6:1", "job 'job'", "at least 9000000.1 s", "given up after 3600.0 s (`limit`)"],
    ),
    ("limit = \"1s\"\nduration = \"1001ms\"", &["s.toml:7:1", "at least 1001.0 ms", "`limit`"]),
    ("[[job]]\noptions = { startdelay = \"2h\" }", &["s.toml:2:1", "at least 7200.1 s", "`limit`"]),
    ("cpsu = 3", &["s.toml:2:1", "cpsu"]),
    ("[machine]\ncpsu = 3", &["s.toml:3:1", "did you mean 'cpus'?"]),
    ("[machine]\ncpus = 300", &["s.toml:2:1", "300 CPUs", "1 to 256"]),
    ("[machine]\ncpus = \"two\"", &["s.toml:3:8", "invalid type"]),
    ("[machine]\ncpus = 2\nnodes = 3", &["s.toml:2:1", "3 NUMA nodes"]),
    ("[machine]\ncosts = \"bare-metl\"", &["s.toml:3:9", "did you mean 'bare-metal'?"]),
    ("[machine.costs]\nbase = \"vm\"\ninterupt = {}", &["s.toml:4:1", "did you mean 'interrupt'?"]),
    (
        "[machine.costs.interrupt]\nentri = 5",
        &["s.toml:3:1", "interrupt.entri", "did you mean 'entry'?"],
    ),
    ("[machine.costs.interrupt]\nentry = -5", &["s.toml:3:9", "-5"]),
    ("[machine.costs.interrupt]\nentry = 5000000000", &["s.toml:3:9", "at most"]),
    ("[machine]\nhogs = 1", &["s.toml:2:1", "CPU 1", "CPUs 0 to 0"]),
    ("modes = [\"interupt\"]", &["s.toml:2:9", "did you mean 'interrupt'?"]),
    ("modes = [\"poll\", \"poll\"]", &["s.toml:2:18", "poll twice"]),
    ("modes = \"poll\"", &["s.toml:2:9", "expected a list"]),
    ("ios = 0", &["s.toml:2:7", "expected a whole number from 1 on"]),
    ("duration = \"0s\"", &["s.toml:2:12", "must be more than 0"]),
    ("duration = \"-5ms\"", &["s.toml:2:12", "`-5ms` is not a duration"]),
    ("seeds = 100000000000", &["s.toml:2:9", "a whole number up to 4294967295"]),
    ("[machine.scheduler]\nslice = \"0ms\"", &["s.toml:3:9", "must be more than 0"]),
    (
        "[machine.scheduler]\nslice = \"6999ns\"",
        &[
            "s.toml:2:2",
            "slice of 6.999 µs",
            "switch of 0.7 µs",
            "at least ten times as long, 7 µs",
        ],
    ),
    ("[machine]\ncosts = \"vm\"\nscheduler.slice = \"50us\"", &["s.toml:2:1", "switch of 6 µs"]),
    (
        "[machine.scheduler]\nrt_runtime = \"4us\"",
        &[
            "s.toml:2:2",
            "share of real-time threads (rt_runtime) of 4 µs",
            "at least ten times as long, 7 µs",
        ],
    ),
    (
        "[machine.softirq]\nweight = 32",
        &["s.toml:3:10", "a parameter of the mode", "modes = [\"irq-poll?weight=32\"]"],
    ),
    (
        "latency_price = \"0.5\"",
        &["s.toml:2:17", "a parameter of the mode", "modes = [\"adaptive?delay-exponent=3\"]"],
    ),
    ("[machine]\ncosts = \"none.toml\"", &["s.toml:3:9", "none.toml", "there are no files here"]),
    (
        "host = \"kernel\"\n[[device]]\nname = \"a\"\nprofile = \"tlc\"\nin_process = true",
        &["s.toml:3:1", "device 'a'", "`in_process`", "leave out host"],
    ),
    (
        "host = \"kernel\"\n[[device]]\nname = \"a\"\nprofile = \"tlc\"\nmasks = false",
        &["s.toml:3:1", "`masks = false`", "for the user host", "leave out host"],
    ),
    (
        "[[device]]\nname = \"a\"\nprofile = \"tlc\"\nmasks = false\nqueues = 65",
        &["s.toml:2:1", "65 hardware queues", "offers 128"],
    ),
    ("[[job]]\ndevices = []\noptions = {}", &["s.toml:2:1", "`devices` is empty"]),
    (
        "[[job]]\noptions = { rw = \"randread\", iodpth = 4 }",
        &["s.toml:3:30", "unknown option 'iodpth'", "did you mean 'iodepth'?"],
    ),
    ("[[job]]\n[job.options]\nrw = \"randread\"\nbs = \"4kk\"", &["s.toml:5:6", "bs:"]),
    ("[[job]]\nqueues = 0\noptions = {}", &["s.toml:2:1", "0 software queues", "1 to 256"]),
    (
        "[[job]]\noptions = { bs = \"8m\" }",
        &["s.toml:2:1", "requests of 8388608 bytes", "a buffer has 1048576"],
    ),
    (
        "[[job]]\noptions = { bs = \"1000\" }",
        &["s.toml:2:1", "not a multiple of the device's block of 512"],
    ),
    (
        "[[job]]\noptions = {}\nphase = [{ from = \"5ms\", iops = 5 }, { from = \"5ms\", iops = 2 }]",
        &["s.toml:2:1", "later than the one before"],
    ),
    (
        "[[job]]\noptions = { runtime = \"1\" }\nphase = [{ from = \"5ms\", iops = 0 }]",
        &["s.toml:2:1", "all its phases are off"],
    ),
    ("[[job]]\noptions = { offset = \"64m\" }", &["s.toml:2:1", "less than one block"]),
    ("host = \"kernal\"", &["s.toml:2:8", "did you mean 'kernel'?"]),
    ("duration = 5", &["s.toml:2:12", "string"]),
    ("duration = \"5\"", &["s.toml:2:12", "`5` is not a duration", "its unit"]),
    ("duration = \"5min\"", &["s.toml:2:12", "`5min` is not a duration"]),
    ("seeds = 0", &["s.toml:2:9", "0 seeds"]),
    ("[[device]]\nprofile = \"opane\"", &["s.toml:3:11", "did you mean 'optane'?"]),
    ("[[device]]\nprofile = \"tlc\"\nqueues = 0", &["s.toml:2:1", "0 hardware queues"]),
    (
        "[[device]]\nname = \"nvme0\"\nprofile = \"tlc\"",
        &["s.toml:2:1", "two devices are called 'nvme0'"],
    ),
    (
        "[[device]]\n[device.profile]\nread = {}\nwrite = {}\nchannels = 65537",
        &["s.toml:6:12", "65537 channels: there are at most 65536"],
    ),
    ("[[device]]\nprofile = \"tlc\"\naffinity = \"all\"", &["s.toml:4:12", "managed"]),
    ("[[job]]\nfio = \"\"\"\n[a]\nrw=randred\n\"\"\"", &["s.toml:5:4", "randred"]),
    ("[[job]]\nfile = \"none.fio\"", &["s.toml:3:8", "none.fio", "there are no files here"]),
    ("[[job]]\nfile = \"none.fio\"\noptions = {}", &["s.toml:2:1", "exactly one of"]),
    (
        "[[job]]\ndevices = [\"nvme9\"]\noptions = {}",
        &["s.toml:3:12", "no device `nvme9`", "did you mean 'nvme0'?"],
    ),
    (
        "[[job]]\noptions = {}\npaths = { policy = \"latency\" }",
        &["s.toml:2:1", "0 devices as paths", "2 to 64"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\", \"far\"]\noptions = {}\npaths = { policy = \"numa\" }",
        &["s.toml:5:1", "`far` is listed twice among the devices"],
    ),
    (
        "[[job]]\noptions = {}\npaths = { policy = \"latensy\" }",
        &["s.toml:4:20", "did you mean `latency`?"],
    ),
    (
        "[[device]]\nname = \"big\"\nprofile = \"tlc\"\nbytes = \"9G\"\n[[job]]\ndevices = [\"big\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }",
        &["s.toml:6:1", "`big` and `nvme0` differ in size"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5ms\"\ndevice = \"fra\"\nchange = \"lost\"",
        &["s.toml:11:10", "no device `fra`", "did you mean 'far'?"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5\"\ndevice = \"far\"\nchange = \"lost\"",
        &["s.toml:10:6", "`5` is not a duration", "its unit"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5ms\"\ndevice = \"far\"\nchange = \"lots\"",
        &["s.toml:12:10", "`lots` is not a change", "lost [frozen], back"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5ms\"\ndevice = \"far\"\nchange = \"ana  inacessible\"",
        &["s.toml:12:10", "`inacessible` is not an ANA state"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5ms\"\ndevice = \"far\"\nchange = \"lost now\"",
        &["s.toml:12:10", "`lost now` is not a change"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5ms\"\ndevice = \"far\"\nchange = \"power-lost\"",
        &["s.toml:12:10", "does not follow `power-lost`", "ana, lost, back"],
    ),
    (
        "[[device]]\nname = \"far\"\nprofile = \"tlc\"\n[[job]]\ndevices = [\"far\", \"nvme0\"]\noptions = {}\npaths = { policy = \"numa\" }\n[[event]]\nat = \"5ms\"\ndevice = \"far\"\nchange = \"resize 1000\"",
        &["s.toml:12:10", "does not follow `resize 1000`", "ana, lost, back"],
    ),
    (
        "[[event]]\nat = \"1ms\"\ndevice = \"nvme0\"\nchange = \"lost\"",
        &["s.toml:4:10", "`nvme0` is not a path of any job", "paths"],
    ),
    ("[[job]]\ncpus = \"1-0\"\noptions = {}", &["s.toml:3:8", "ends before it begins"]),
];

#[test]
fn mistakes_name_place_and_remedy() {
    for (text, words) in MISTAKES {
        let text = format!(
            "seed = 1\n{text}\n[[device]]\nname = \"nvme0\"\nprofile = \"optane\"\n[[job]]\noptions = {{}}\n"
        );
        let error = read("s.toml", &text, &Nothing).map(|_| ()).expect_err(&text).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{text}\n{error}\n{words:?}");
    }
}

#[test]
fn unsupported_transport_is_named() {
    let of = |host: &str, engine: &str| {
        let text = format!(
            "{host}\n[[device]]\nprofile = \"tlc\"\n[[job]]\n{engine}\noptions = {{ ioengine = \"psync\" }}\n"
        );
        read("s.toml", &text, &Nothing).unwrap().warnings.join("\n")
    };
    let warning = of("host = \"kernel\"", "");
    assert!(
        ["s.toml:4:1", "ioengine=psync", "io_uring"].iter().all(|word| warning.contains(word)),
        "{warning}"
    );
    // Set by another key, or without effect.
    assert_eq!(
        (of("host = \"kernel\"", "engine = \"libaio\""), of("", "")),
        (String::new(), String::new())
    );
}

#[test]
fn invalid_toml_names_its_place() {
    let error = read("s.toml", "seed = 1\nduration = = 3", &Nothing).unwrap_err().to_string();
    assert!(error.starts_with("s.toml:2:"), "{error}");
    let error = read("s.toml", "seed = 1", &Nothing).unwrap_err().to_string();
    assert!(error.contains("no device") && error.contains("[[device]]"), "{error}");
}

/// Fragments of scenarios, in any order and cut anywhere.
fn garbage() -> impl Strategy<Value = String> {
    let lines: Vec<&'static str> =
        WHOLE.lines().chain(MISTAKES.iter().flat_map(|(text, _)| text.lines())).collect();
    let line = prop_oneof![
        8 => prop::sample::select(lines),
        1 => Just("= \"\u{7f}µ\u{10ffff}"),
        1 => Just("costs = { interrupt = { entry = 18446744073709551615 } }"),
        1 => Just("queues = -9223372036854775808"),
        1 => Just("duration = \"1e400s\""),
    ];
    (prop::collection::vec(line, 0..40), any::<prop::sample::Index>()).prop_map(|(lines, cut)| {
        let text = lines.join("\n");
        let end = cut.index(text.len() + 1);
        let end = (0..=end).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        // Mostly whole, sometimes cut.
        if end % 3 == 0 { text[..end].to_owned() } else { text }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any file yields a scenario or an error, and never a panic.
    #[test]
    fn garbage_never_panics(text in prop_oneof![garbage(), "\\PC*", any::<String>()]) {
        if let Err(error) = read("g.toml", &text, &Nothing) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// A scenario with one byte changed.
    #[test]
    fn typos_never_panic(at in any::<prop::sample::Index>(), to in any::<char>()) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        let at = at.index(text.len());
        text[at] = to;
        let text: String = text.into_iter().collect();
        if let Err(error) = read("g.toml", &text, &Nothing) {
            prop_assert!(error.to_string().starts_with("g.toml"), "{}", error);
        }
    }
}

/// Events of paths, in the syntax of fault scripts, and what their job reports.
#[test]
fn events_are_a_script() {
    let text = r#"
        [[device]]
        name = "near"
        profile = "tlc"
        [[device]]
        name = "far"
        profile = "tlc"
        [[job]]
        devices = ["near", "far"]
        options = {}
        paths = { policy = "latency", keep_alive = "300ms", no_path_limit = 3, unsafe_fast_failover = true }
        [[event]]
        at = "20ms"
        device = "far"
        change = "ana non-optimized"
        [[event]]
        at = "1ms"
        device = "near"
        change = "lost frozen"
    "#;
    let scenario = read("s.toml", text, &Nothing).unwrap().scenario;
    assert_eq!(
        scenario.script,
        "at 20ms path 1 ana non-optimized; at 1ms path 0 lost frozen".parse().unwrap()
    );
    let paths = scenario.jobs[0].paths.unwrap();
    assert_eq!((paths.failover.no_path_limit, paths.failover.unsafe_fast_failover), (3, true));
    assert_eq!(scenario.recovery, Some(Multipath::recovery(Nanos::from_millis(300))));
}
