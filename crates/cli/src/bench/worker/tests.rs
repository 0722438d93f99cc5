use workload::fio::{self, Input};
use workload::{TargetSize, ThreadId};

use std::sync::atomic::AtomicBool;

use super::*;

fn job(text: &str) -> Job {
    let text = format!("[job]\n{text}\n");
    fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing)
        .unwrap()
        .jobs
        .remove(0)
}

/// Runs `job` on new devices, twice with the same worker.
fn run(job: &Job, uri: &str, devices: usize, mode: Mode) -> [(Generator, Ran); 2] {
    let options = reap::OpenOptions::new().mode(mode);
    let devices: Vec<Device> =
        (0..devices).map(|_| Device::open_with(uri, &options).unwrap()).collect();
    let targets: Vec<TargetSize> = devices
        .iter()
        .map(|device| first_namespace(device).unwrap())
        .map(|namespace| TargetSize {
            bytes: namespace.bytes(),
            block: namespace.block_bytes(),
            size_at_setup: None,
        })
        .collect();
    let mut worker = Worker::new(job, devices, mode, Nanos(100)).unwrap();
    let (never, progress) = (AtomicBool::new(false), JobProgress::default());
    [1, 2].map(|entropy| {
        let mut generator =
            Generator::new(job, ThreadId { entropy, ..ThreadId::default() }, &targets).unwrap();
        let ran = worker
            .run(&mut generator, &ThreadControl { stop: [&never, &never], progress: &progress })
            .unwrap();
        assert_eq!(progress.millionths.load(Relaxed), 1_000_000);
        (generator, ran)
    })
}

#[test]
fn every_mode_counts_every_io() {
    for mode in Mode::ALL {
        for batch in ["", "fsync=2\n", "iodepth_batch=8\niodepth_batch_complete_min=4\n"] {
            let job = job(&format!(
                "rw=randrw\nbs=4k\niodepth=16\nnumber_ios=500\nverify=crc32c\nsize=4m\n{batch}"
            ));
            for (generator, ran) in run(&job, "mem:4M", 1, mode) {
                assert_eq!((generator.error(), generator.in_flight()), (0, 0));
                let stats = generator.stats();
                // Half of them write, and what is written is read back.
                assert_eq!(stats.read.ios, 500);
                assert_eq!(ran.counted.ios, stats.read.ios + stats.write.ios);
                assert!(
                    ran.counted.cpu > Nanos::ZERO && ran.counted.sq_doorbells > 0.0,
                    "{mode}: {ran:?}"
                );
            }
        }
    }
}

/// Where submitting and waiting are one call, the same I/Os are done, and none is waited for that
/// was not submitted.
#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
fn file_io_completes_in_batches() {
    let place = tempfile::tempdir().unwrap();
    let uri = format!("kernel:{}?size=4M", place.path().join("disk").display());
    if let Err(error) = Device::open(&uri) {
        eprintln!("skipped: {error}");
        return;
    }
    for mode in
        [Mode::INTERRUPT, Mode::INTERRUPT_CHECKED, Mode::THREADED, Mode::POLL, Mode::ADAPTIVE]
    {
        for batch in [
            "",
            "fsync=2\n",
            "iodepth_batch=8\niodepth_batch_complete_min=4\n",
            "rate_iops=20k\n",
            "iodepth=1\ngtod_reduce=1\n",
        ] {
            let job = job(&format!(
                "rw=randrw\nbs=4k\niodepth=16\nnumber_ios=300\nverify=crc32c\nsize=4m\n{batch}"
            ));
            for (generator, ran) in run(&job, &uri, 1, mode) {
                assert_eq!((generator.error(), generator.in_flight()), (0, 0), "{mode} {batch}");
                let stats = generator.stats();
                assert_eq!(
                    (stats.read.ios, ran.counted.ios),
                    (300, stats.read.ios + stats.write.ios),
                    "{mode} {batch}"
                );
                let calls = ran.counted.system_calls.unwrap();
                // Where a thread spins, as `adaptive` does in its first stretches, each poll may be
                // a call.
                let spins = [Mode::POLL, Mode::ADAPTIVE].contains(&mode);
                assert!(
                    calls > 0.0 && (spins || calls < 10.0 * ran.counted.ios as f64),
                    "{mode} {batch}: {calls}"
                );
            }
        }
    }
}

/// However many have completed, a job that names a batch takes no more at once, and issues before
/// it takes the next.
#[test]
fn completions_respect_batch_limits() {
    let job = job(
        "rw=randread\nbs=4k\niodepth=16\niodepth_batch=4\niodepth_batch_complete_min=4\nsize=4m",
    );
    for (generator, _) in run(&job, "mem:4M", 1, Mode::INTERRUPT) {
        let complete = generator.stats().complete.0;
        assert_eq!((complete[1], complete[2..].iter().sum::<u64>()), (256, 0), "{complete:?}");
    }
}

#[test]
fn verify_checks_own_bytes_only() {
    let job = job("rw=write\nbsrange=4k-1200k\niodepth=4\nsize=12m\nverify=crc32c");
    for (generator, _) in run(&job, "mem:16M", 1, Mode::POLL) {
        assert_eq!((generator.error(), generator.bad_blocks().first()), (0, None));
        assert_eq!(generator.stats().read.bytes, 12 << 20);
    }
}

#[test]
fn several_devices_take_turns() {
    let job = job("rw=write\nbs=4k\niodepth=8\nfilename=a:b:c\nsize=3m\nverify=crc32c");
    for (generator, ran) in run(&job, "mem:1M", 3, Mode::INTERRUPT) {
        assert_eq!((generator.error(), generator.stats().write.bytes), (0, 3 << 20));
        assert_eq!(ran.counted.ios, 2 * 3 * 256);
    }
}

#[test]
fn failed_io_ends_the_job() {
    let job = job("rw=write\nbs=64k\niodepth=4");
    let [(generator, ran), _] = run(&job, "mem:16M?alloc=1M", 1, Mode::INTERRUPT);
    assert_eq!(generator.failure().map(|failure| failure.code), Some(ErrorCode::ENOSPC));
    assert!(
        ran.first_error.is_some_and(|error| error.to_string().contains("apacity")),
        "{:?}",
        ran.first_error
    );
}

#[test]
fn ramp_is_not_counted() {
    let job = job("rw=randread\nbs=4k\niodepth=4\nramp_time=20ms\nruntime=30ms\ntime_based");
    for (generator, ran) in run(&job, "mem:4M", 1, Mode::POLL) {
        let ios = generator.stats().read.ios;
        // What was in flight at the end of the ramp may count on one side only.
        assert!(ran.counted.ios.abs_diff(ios) <= 4, "{} {ios}", ran.counted.ios);
        assert!(ran.counted.wall < Nanos::from_secs(10));
    }
}

/// The policy knows as long as a wait lasts that its caller has no room, however often it looks
/// during it; with room, or without a rate, there is none.
#[test]
fn paced_job_reports_waiting_io() {
    let device = Device::open("mem:4M?profile=optane").unwrap();
    let namespace = first_namespace(&device).unwrap();
    let targets = [TargetSize {
        bytes: namespace.bytes(),
        block: namespace.block_bytes(),
        size_at_setup: None,
    }];
    let paced = job("rw=randread\nbs=4k\niodepth=1\nrate_iops=200\ntime_based=1\nruntime=1h");
    let mut worker = Worker::new(&paced, vec![device], Mode::INTERRUPT, Nanos::ZERO).unwrap();
    let mut generator = Generator::new(&paced, ThreadId::default(), &targets).unwrap();
    let (never, progress) = (AtomicBool::new(false), JobProgress::default());
    let control = ThreadControl { stop: [&never, &never], progress: &progress };
    let told = |worker: &Worker| worker.queues.all().next().unwrap().next_due();
    let mut run = worker.begin();
    for waits in [true, false, true] {
        // After a stall it has much to make up for.
        let mut turns = 0..1_000_000;
        while told(&worker).is_some() != waits {
            assert!(
                turns.next().is_some() && worker.turn(&mut run, &mut generator, &control).unwrap(),
                "waits: {waits}"
            );
        }
    }
    // The next run need not have a clock.
    worker.begin();
    assert_eq!(told(&worker), None);
}
