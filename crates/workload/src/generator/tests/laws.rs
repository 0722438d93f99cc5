//! What holds for every job.

use super::*;

/// What one run did.
#[derive(Default)]
struct Observed {
    in_flight: u32,
    queued: u32,
    most_in_flight: u32,
    commits: Vec<u32>,
    broken: Option<String>,
}

impl Observed {
    fn see(&mut self, next: Next, device: &Device, generator_depth: u32) {
        self.in_flight = device.flying.len() as u32;
        let mut law = |holds: bool, text: &str| {
            if !holds && self.broken.is_none() {
                self.broken = Some(format!(
                    "{text}: {next:?} with {} in flight, {} queued",
                    device.flying.len(),
                    self.queued
                ));
            }
        };
        match next {
            Next::Issue(io) => {
                law(
                    device.flying.iter().all(|other| other.slot != io.slot),
                    "a slot is used by one I/O at a time",
                );
                law(io.slot < generator_depth, "slots are below the depth");
                law(io.offset + u64::from(io.len) <= TARGET.bytes, "I/O stays on the device");
                law(
                    io.offset % 512 == 0
                        && io.len % 512 == 0
                        && (io.len > 0) == (io.op != Op::Flush),
                    "I/O is aligned",
                );
                self.queued += 1;
                self.most_in_flight = self.most_in_flight.max(self.in_flight + 1);
            }
            Next::Commit => {
                law(self.queued > 0, "a commit announces something");
                self.commits.push(self.queued);
                self.queued = 0;
            }
            Next::Reap { min } => {
                law(self.queued == 0, "nothing waits unannounced");
                law(min >= 1 && min <= self.in_flight, "what is waited for is in flight");
            }
            Next::Wait { until } => law(
                self.queued == 0 && until >= device.now,
                "waits are for later, with nothing unannounced",
            ),
            Next::Done => {
                law(self.in_flight == 0 && self.queued == 0, "nothing is in flight at the end")
            }
        }
    }
}

fn observe(job: &Job, device: &mut Device) -> (Generator, Observed) {
    let mut generator = generator(job);
    let mut observed = Observed::default();
    device.run(&mut generator, |next, device| observed.see(next, device, job.iodepth));
    (generator, observed)
}

fn any_job() -> impl Strategy<Value = Job> {
    let shape = (0..3u8, any::<bool>(), 0..5u8, any::<bool>());
    let depths = (1..70u32, 0..80u32, 0..80u32, 0..80u32, 0..80u32, any::<bool>());
    let limits =
        (proptest::option::of(1..600u64), proptest::option::of(1..400u64), 0..3u64, 1..3u64);
    let times = (
        proptest::option::of(1..2000u64),
        any::<bool>(),
        0..300u64,
        0..100u64,
        proptest::option::of(1_000..1_000_000u64),
    );
    let syncs = (prop_oneof![Just(0), 1..20u32], any::<bool>());
    (shape, depths, limits, times, any::<bool>(), syncs, any::<u64>()).prop_map(
        |(shape, depths, limits, times, verify, syncs, seed)| {
            let direction = [Direction::Read, Direction::Write, Direction::Mixed][shape.0 as usize];
            let block = match shape.2 {
                0 => BlockSizes::fixed(512),
                1 => BlockSizes::fixed(4096),
                2 => BlockSizes { min: 512, max: 8192, split: Vec::new() },
                3 => BlockSizes { min: 1024, max: 4096, split: vec![(1024, 30), (4096, 70)] },
                _ => BlockSizes::fixed(65_536),
            };
            Job {
                pattern: pattern(direction, shape.1),
                random_map: shape.3,
                block: PerOp::all(block),
                iodepth: depths.0,
                iodepth_low: depths.1,
                batch_submit: depths.2,
                batch_grows: depths.5,
                complete_min: depths.3,
                complete_max: depths.4,
                io_size: limits.0.map(|kib| Amount::Bytes(kib << 10)),
                number_ios: limits.1,
                offset: Amount::Bytes(limits.2 << 16),
                loops: limits.3,
                // At 100 ns a commit and 10 µs a reap, so that runs stay short.
                runtime: times.0.map(Nanos::from_micros),
                time_based: times.1,
                ramp_time: Nanos::from_micros(times.2),
                start_delay: (Nanos::from_micros(times.3), Nanos::from_micros(2 * times.3)),
                rate: PerOp::all(times.4.map(Rate::Iops)),
                sync_every: syncs.0,
                sync_at_end: syncs.1,
                verify: verify.then(Verify::default),
                seed: Some(seed),
                ..Job::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn every_job_keeps_the_invariants(job in any_job(), eager: bool) {
        let mut device = Device { eager, ..Device::new() };
        let (generator, observed) = observe(&job, &mut device);
        prop_assert_eq!(&observed.broken, &None);
        prop_assert!(observed.most_in_flight <= job.iodepth);
        let batch = if job.batch_submit == 0 { job.iodepth } else { job.batch_submit.min(job.iodepth) };
        prop_assert!(observed.commits.iter().all(|n| *n <= batch));
        // No verification job finds anything wrong with a correct device; a job
        // that only reads finds that nothing was written.
        if job.pattern.writes() {
            prop_assert_eq!(generator.bad_blocks(), &[]);
        }
        prop_assert_eq!(generator.next_is_done(), true);
        let stats = generator.stats();
        if job.ramp_time == Nanos::ZERO {
            prop_assert_eq!(stats.read.ios + stats.write.ios + stats.sync.ios, device.ios);
            prop_assert_eq!(stats.issued(), device.ios);
            prop_assert_eq!(stats.depth.total(), device.ios);
            prop_assert_eq!(stats.submit.total(), observed.commits.len() as u64);
            prop_assert_eq!(stats.read.clat.moments.n, stats.read.ios);
        }
    }

    #[test]
    fn same_seed_gives_same_ios(job in any_job()) {
        let job = Job { number_ios: Some(job.number_ios.unwrap_or(100)), runtime: None, loops: 1, ..job };
        // The order of completions must not matter.
        let (_, one) = run_on(&mut Device::new(), &job);
        let (_, two) = run_on(&mut Device { rng: Xoshiro::seed_from_u64(99), eager: true, ..Device::new() }, &job);
        let places = |log: &[Io]| log.iter().map(|io| (io.op, io.offset, io.len)).collect::<Vec<_>>();
        prop_assert_eq!(places(&one), places(&two));
    }
}

impl Generator {
    fn next_is_done(&self) -> bool {
        self.phase == Phase::Done && self.in_flight() == 0
    }
}

#[test]
fn invariants_catch_a_broken_caller() {
    // Negative test: nothing is committed, and every I/O completes at once.
    let mut observed = Observed::default();
    let device = Device::new();
    observed.see(Next::Commit, &device, 4);
    assert!(observed.broken.is_some());
    let mut observed = Observed::default();
    let io = Io { slot: 4, op: Op::Read, target: 0, offset: 0, len: 512 };
    observed.see(Next::Issue(io), &device, 4);
    assert!(observed.broken.as_ref().unwrap().contains("below the depth"));
    let mut observed = Observed { queued: 1, ..Observed::default() };
    observed.see(Next::Reap { min: 1 }, &device, 4);
    assert!(observed.broken.as_ref().unwrap().contains("unannounced"));
    // Negative test: a job of another depth.
    let job = Job { iodepth: 33, pattern: pattern(Direction::Read, true), ..Job::default() };
    assert_eq!(observe(&job, &mut Device::new()).1.most_in_flight, 33);
}

#[test]
fn post_000_batches_by_sixteen() {
    let job = Job {
        pattern: pattern(Direction::Read, true),
        iodepth: 64,
        batch_submit: 16,
        complete_min: 16,
        measure: Measure { slat: false, clat: false, lat: false, ..Measure::default() },
        ..Job::default()
    };
    let (generator, observed) = observe(&job, &mut Device::new());
    assert!(observed.commits.iter().all(|n| *n == 16));
    assert_eq!(generator.stats().submit.0, [0, 0, 0, 16, 0, 0, 0]);
    // The last 48 are taken together: the job is over.
    assert_eq!(generator.stats().complete.0, [0, 0, 0, 13, 0, 1, 0]);
    assert_eq!(generator.stats().read.clat.moments.n, 0);
}

#[test]
fn batches_grow_with_what_is_out() {
    let reads = Job {
        pattern: pattern(Direction::Read, true),
        iodepth: 32,
        batch_submit: 0,
        batch_grows: true,
        ..Job::default()
    };
    // All of it completes at once, again and again.
    let together = Job { complete_min: 32, number_ios: Some(96), ..reads.clone() };
    let (_, observed) = observe(&together, &mut Device::new());
    assert_eq!(observed.commits, [1, 1, 2, 4, 8, 16].repeat(3));
    // While others are out for long, what has completed goes back together: nothing waits for a
    // second doorbell.
    let half = Job { complete_min: 16, number_ios: Some(96), ..reads.clone() };
    let (_, observed) = observe(&half, &mut Device::new());
    assert_eq!(observed.commits[..9], [1, 1, 2, 4, 8, 16, 16, 16, 16]);
    // iodepth_batch is the most; without batch_grows there is one doorbell.
    let capped = Job { batch_submit: 4, ..together.clone() };
    assert_eq!(
        observe(&capped, &mut Device::new()).1.commits[..10],
        [1, 1, 2, 4, 4, 4, 4, 4, 4, 4]
    );
    let fixed = Job { batch_grows: false, ..together };
    assert_eq!(observe(&fixed, &mut Device::new()).1.commits, [32; 3]);
}

#[test]
fn iodepth_low_drains_the_queue() {
    // As fio: depths at the commits of 32 with a low mark of 8 and batches of 4 are 12, 16, … 32.
    let job = Job {
        iodepth: 32,
        iodepth_low: 8,
        batch_submit: 4,
        number_ios: Some(32 + 24 * 1000),
        runtime: None,
        ..Job::default()
    };
    let job = Job {
        io_size: Some(Amount::Bytes(1 << 30)),
        random_map: false,
        pattern: pattern(Direction::Read, true),
        ..job
    };
    let (generator, _) = observe(&job, &mut Device::new());
    let depth = generator.stats().depth.0;
    let share = |n: u64| (n as f64 * 100.0 / depth.iter().sum::<u64>() as f64).round();
    assert_eq!([share(depth[3]), share(depth[4]), share(depth[5])], [17.0, 67.0, 17.0]);
}

#[test]
fn complete_min_defaults_to_one() {
    let job = Job { iodepth: 32, complete_min: 0, ..Job::default() };
    assert_eq!(observe(&job, &mut Device::new()).1.most_in_flight, 1);
}

#[test]
fn random_map_visits_each_block_once() {
    let read = Job {
        pattern: pattern(Direction::Read, true),
        io_size: Some(Amount::Bytes(3 << 20)),
        ..Job::default()
    };
    let (_, log) = run(&read);
    assert_eq!(log.len(), 768);
    let pass = |log: &[Io]| log.iter().map(|io| io.offset).collect::<Vec<_>>();
    for chunk in log.chunks(256) {
        assert_eq!(chunk.iter().map(|io| io.offset).collect::<HashSet<_>>().len(), 256);
    }
    assert_ne!(pass(&log[..256]), pass(&log[256..512]));
    // Without the map blocks repeat, unless the generator is lfsr.
    let free = Job { random_map: false, ..read.clone() };
    assert!(run(&free).1[..256].iter().map(|io| io.offset).collect::<HashSet<_>>().len() < 200);
    let lfsr = Job { random_generator: RandomGenerator::Lfsr, ..free };
    assert_eq!(run(&lfsr).1[..256].iter().map(|io| io.offset).collect::<HashSet<_>>().len(), 256);
}

#[test]
fn sequential_jobs_start_at_their_offset() {
    let (_, log) = run(&Job {
        offset: Amount::Percent(50),
        size: Some(Amount::Bytes(64 << 10)),
        ..Job::default()
    });
    let offsets: Vec<u64> = log.iter().map(|io| io.offset).collect();
    assert_eq!(offsets, (0..16).map(|i| (512 << 10) + i * 4096).collect::<Vec<_>>());
    let holes = Job {
        pattern: Pattern { direction: Direction::Read, random: false, step: 4096 },
        ..Job::default()
    };
    assert_eq!(run(&holes).1[..3].iter().map(|io| io.offset).collect::<Vec<_>>(), [0, 8192, 16384]);
    let runs = Job {
        pattern: Pattern { direction: Direction::Read, random: true, step: 8 },
        ..Job::default()
    };
    let (_, log) = run(&runs);
    // A run that meets the end goes on elsewhere.
    let follows = |pair: &[Io]| {
        pair[1].offset == pair[0].offset + 4096 || pair[0].offset + 4096 == TARGET.bytes
    };
    assert!(log.chunks(8).all(|run| run.windows(2).all(follows)));
}

#[test]
fn mixes_and_splits_keep_their_shares() {
    let job = Job {
        pattern: pattern(Direction::Mixed, true),
        random_map: false,
        read_percent: 70,
        block: PerOp {
            read: BlockSizes { min: 4096, max: 16384, split: vec![(4096, 25), (16384, 75)] },
            ..PerOp::all(BlockSizes::fixed(512))
        },
        number_ios: Some(40_000),
        io_size: Some(Amount::Bytes(u64::MAX)),
        ..Job::default()
    };
    let (_, log) = run(&job);
    let share =
        |wanted: &dyn Fn(&&Io) -> bool| log.iter().filter(wanted).count() as f64 / log.len() as f64;
    assert!((share(&|io| io.op == Op::Read) - 0.7).abs() < 0.01);
    assert!((share(&|io| io.op == Op::Read && io.len == 4096) - 0.175).abs() < 0.01);
    assert!(log.iter().all(|io| io.op == Op::Read || io.len == 512));
    for (percent, op) in [(0, Op::Write), (100, Op::Read)] {
        assert!(run(&Job { read_percent: percent, ..job.clone() }).1.iter().all(|io| io.op == op));
    }
}

#[test]
fn sizes_average_to_their_mean() {
    let split = vec![(4096, 25), (8192, 65), (16384, 10)];
    for (sizes, mean) in [
        (BlockSizes::fixed(4096), 4096.0),
        (BlockSizes { min: 512, max: 8192, split: Vec::new() }, 4352.0),
        // 1024, 2048 and 3072: the largest that is no multiple of the smallest is never used.
        (BlockSizes { min: 1024, max: 3584, split: Vec::new() }, 2048.0),
        (BlockSizes { min: 4096, max: 16_384, split }, 7987.2),
    ] {
        assert_eq!(sizes.mean(), mean);
        let block = PerOp::all(sizes);
        let job = Job {
            pattern: pattern(Direction::Read, true),
            random_map: false,
            block,
            number_ios: Some(20_000),
            ..Job::default()
        };
        let (_, log) = run(&Job { io_size: Some(Amount::Bytes(u64::MAX)), ..job });
        let seen = log.iter().map(|io| f64::from(io.len)).sum::<f64>() / log.len() as f64;
        assert!((seen / mean - 1.0).abs() < 0.02, "{seen} {mean}");
    }
}

#[test]
fn zipf_has_few_popular_blocks() {
    let job = Job {
        pattern: pattern(Direction::Read, true),
        distribution: Distribution::Zipf { theta: 1.2 },
        number_ios: Some(20_000),
        io_size: Some(Amount::Bytes(u64::MAX)),
        ..Job::default()
    };
    let top = |job: &Job| {
        let mut counts = BTreeMap::new();
        run(job).1.iter().for_each(|io| *counts.entry(io.offset).or_insert(0u32) += 1);
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        f64::from(counts[..10].iter().sum::<u32>()) / 20_000.0
    };
    assert!(top(&job) > 0.5);
    assert!(top(&Job { distribution: Distribution::Uniform, random_map: false, ..job }) < 0.1);
}

#[test]
fn targets_alternate_and_share_size() {
    let job = Job { size: Some(Amount::Bytes(64 << 10)), ..Job::default() };
    let mut generator = Generator::new(&job, ThreadId::default(), &[TARGET, TARGET]).unwrap();
    let mut log = Vec::new();
    Device::new().run(&mut generator, |next, _| {
        if let Next::Issue(io) = next {
            log.push((io.target, io.offset));
        }
    });
    assert_eq!(
        log,
        (0..16).map(|i| (i as u16 % 2, u64::from(i / 2u32) * 4096)).collect::<Vec<_>>()
    );
}

#[test]
fn threads_differ_but_for_their_seed() {
    let job =
        Job { pattern: pattern(Direction::Read, true), number_ios: Some(20), ..Job::default() };
    let places = |job: &Job, id| {
        let mut generator = Generator::new(job, id, &[TARGET]).unwrap();
        let mut log = Vec::new();
        Device::new().run(&mut generator, |next, _| {
            if let Next::Issue(io) = next {
                log.push(io.offset);
            }
        });
        log
    };
    let thread = |number, entropy| ThreadId { number, entropy, ..ThreadId::default() };
    assert_eq!(places(&job, thread(1, 1)), places(&job, thread(1, 2)));
    assert_ne!(places(&job, thread(1, 1)), places(&job, thread(2, 1)));
    let free = Job { repeatable: false, ..job.clone() };
    assert_ne!(places(&free, thread(1, 1)), places(&free, thread(1, 2)));
    let seeded = Job { seed: Some(5), ..free };
    assert_eq!(places(&seeded, thread(1, 1)), places(&seeded, thread(1, 2)));
    let moved =
        Job { offset_increment: Amount::Bytes(256 << 10), pattern: Pattern::default(), ..job };
    assert_eq!(places(&moved, ThreadId { subjob: 2, ..ThreadId::default() })[0], 512 << 10);
}

#[test]
fn misfits_are_reported() {
    let misfit = |job: &Job, targets: &[TargetSize]| {
        Generator::new(job, ThreadId::default(), targets).unwrap_err().to_string()
    };
    let job = Job { name: "j".into(), ..Job::default() };
    assert_eq!(misfit(&job, &[]), "job 'j': there is no device to run on");
    let odd = Job { block: PerOp::all(BlockSizes::fixed(1000)), ..job.clone() };
    assert_eq!(
        misfit(&odd, &[TARGET]),
        "job 'j': block size 1000 is not a multiple of the device's block of 512 bytes"
    );
    let none = Job { block: PerOp::all(BlockSizes::fixed(0)), ..job.clone() };
    assert!(misfit(&none, &[TARGET]).contains("block size 0"));
    let outside = Job { offset: Amount::Bytes(1 << 20), ..job.clone() };
    assert!(misfit(&outside, &[TARGET]).contains("less than one block of 4096 bytes"));
    let crooked = Job { offset: Amount::Bytes(100), ..job.clone() };
    assert!(misfit(&crooked, &[TARGET]).contains("offset 100"));
    let long = Job { block: PerOp::all(BlockSizes::fixed(1 << 32)), ..job.clone() };
    assert!(
        misfit(&long, &[TargetSize { bytes: 1 << 40, block: 512, size_at_setup: None }])
            .contains("2 GiB")
    );
    let verified = |verify| Job {
        verify: Some(verify),
        pattern: pattern(Direction::Write, false),
        ..job.clone()
    };
    let narrow = Verify { interval: Some(64), kind: VerifyKind::Sha256, ..Verify::default() };
    assert!(
        misfit(&verified(narrow), &[TARGET])
            .contains("64 bytes has no room for its header of 104 bytes")
    );
    let inside = Verify { offset: 40, ..Verify::default() };
    assert!(
        misfit(&verified(inside), &[TARGET])
            .contains("verify_offset 40 lies within the header of 44 bytes")
    );
    let behind = Verify { offset: 4090, ..Verify::default() };
    assert!(misfit(&verified(behind), &[TARGET]).contains("verify_offset 4090"));
    let block = PerOp { read: BlockSizes::fixed(512), ..PerOp::all(BlockSizes::fixed(4096)) };
    let short = Job { verify: Some(Verify::default()), block, ..job.clone() };
    assert!(misfit(&short, &[TARGET]).contains("a read of 512 bytes is not a multiple"));
    let sizes = BlockSizes { min: 512, max: 4096, split: Vec::new() };
    let mapped = Job { block: PerOp::all(sizes), pattern: pattern(Direction::Read, true), ..job };
    assert!(
        misfit(&mapped, &[TargetSize { bytes: 1 << 50, block: 512, size_at_setup: None }])
            .contains("norandommap")
    );
}
