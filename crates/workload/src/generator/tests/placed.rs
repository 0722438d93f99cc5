//! Offsets of I/Os with less common options.

use super::*;

/// Offsets of a job's I/Os, in KiB.
fn in_kib(job: &Job) -> Vec<u64> {
    run(job).1.iter().map(|io| io.offset / 1024).collect()
}

fn small(direction: Direction, random: bool) -> Job {
    Job {
        pattern: pattern(direction, random),
        size: Some(Amount::Bytes(64 << 10)),
        ..Job::default()
    }
}

fn many(distribution: Distribution) -> Job {
    let (number_ios, io_size) = (Some(20_000), Some(Amount::Bytes(u64::MAX)));
    Job {
        pattern: pattern(Direction::Read, true),
        distribution,
        random_map: false,
        number_ios,
        io_size,
        ..Job::default()
    }
}

/// The share of a job's I/Os below this share of the device.
fn below_share(job: &Job, part: f64) -> f64 {
    let log = run(job).1;
    log.iter().filter(|io| (io.offset as f64) < part * TARGET.bytes as f64).count() as f64
        / log.len() as f64
}

#[test]
fn trims_have_own_figures() {
    let block = PerOp { trim: BlockSizes::fixed(16 << 10), ..PerOp::all(BlockSizes::fixed(512)) };
    let (generator, log) = run(&Job { block, ..small(Direction::Trim, false) });
    assert_eq!(
        log.iter().map(|io| (io.op, io.offset, io.len)).collect::<Vec<_>>(),
        [0, 16, 32, 48].map(|k| (Op::Deallocate, k << 10, 16 << 10))
    );
    let stats = generator.stats();
    assert_eq!(
        (stats.trim.ios, stats.trim.bytes, stats.trim.issued, stats.write.ios, stats.issued()),
        (4, 64 << 10, 4, 0, 4)
    );
    let random: std::collections::BTreeSet<u64> =
        in_kib(&small(Direction::Trim, true)).into_iter().collect();
    assert_eq!(random.len(), 16);
}

#[test]
fn what_is_trimmed_is_written_next() {
    for random in [false, true] {
        let (generator, log) = run(&small(Direction::TrimWrite, random));
        assert_eq!(log.len(), 32);
        for pair in log.chunks(2) {
            assert_eq!((pair[0].op, pair[1].op), (Op::Deallocate, Op::Write));
            assert_eq!((pair[0].offset, pair[0].len), (pair[1].offset, pair[1].len));
        }
        assert_eq!(
            (generator.stats().trim.bytes, generator.stats().write.bytes),
            (64 << 10, 64 << 10)
        );
    }
}

#[test]
fn a_bell_stands_in_the_middle() {
    let job = many(Distribution::Normal { percent: 10.0 });
    assert!((below_share(&job, 0.5) - 0.5).abs() < 0.02);
    assert!((below_share(&job, 0.6) - below_share(&job, 0.4) - 0.68).abs() < 0.03);
}

#[test]
fn pareto_concentrates_ios() {
    let log = run(&many(Distribution::Pareto { h: 0.2 })).1;
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    log.iter().for_each(|io| *counts.entry(io.offset).or_default() += 1);
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let top: u32 = counts.iter().take(256 / 5).sum();
    // A hash, as in fio, gives some blocks several ranks, and others none.
    let share = f64::from(top) / log.len() as f64;
    assert!((0.78..0.92).contains(&share), "{share}");
}

#[test]
fn offsets_are_aligned_and_may_repeat() {
    let job = Job {
        align: PerOp::all(4096),
        block: PerOp::all(BlockSizes::fixed(512)),
        ..small(Direction::Read, true)
    };
    let log = run(&job).1;
    assert_eq!(log.len(), 128);
    assert!(log.iter().all(|io| io.offset % 4096 == 0 && io.len == 512));
}

#[test]
fn files_take_turns() {
    assert_eq!(
        in_kib(&Job { files: 4, ..small(Direction::Read, false) })[..6],
        [0, 16, 32, 48, 4, 20]
    );
}

fn any_place() -> impl Strategy<Value = Job> {
    use proptest::sample::select;
    let distributions = vec![
        Distribution::Uniform,
        Distribution::Zipf { theta: 1.2 },
        Distribution::Pareto { h: 0.3 },
        Distribution::Normal { percent: 40.0 },
    ];
    let directions = vec![
        Direction::Read,
        Direction::Write,
        Direction::Mixed,
        Direction::Trim,
        Direction::TrimWrite,
    ];
    let sizes = vec![(512, 512), (4096, 4096), (512, 8192), (4096, 65_536)];
    (
        (select(directions), any::<bool>(), select(vec![1i64, 1, 3]), select(distributions)),
        (select(sizes), select(vec![0u64, 512, 4096, 65_536]), any::<bool>()),
        (1u32..5, 1u32..9, any::<bool>()),
        select(vec![0u64, 512, 20_480]),
    )
        .prop_map(
            |(
                (direction, random, step, distribution),
                (size, align, random_map),
                files,
                offset,
            )| {
                let (files, iodepth, verifies) = files;
                let step = if random { step } else { 0 };
                Job {
                    pattern: Pattern { direction, random, step },
                    distribution,
                    block: PerOp::all(BlockSizes { min: size.0, max: size.1, split: Vec::new() }),
                    align: PerOp::all(align),
                    random_map,
                    files,
                    iodepth,
                    offset: Amount::Bytes(offset),
                    size: Some(Amount::Bytes(300 << 10)),
                    number_ios: Some(200),
                    verify: verifies.then(|| Verify {
                        backlog: 7,
                        backlog_batch: 3,
                        ..Verify::default()
                    }),
                    ..Job::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn random_distributions_stay_in_the_region(job in any_place()) {
        let Ok(mut generator) = Generator::new(&job, ThreadId::default(), &[TARGET]) else { return Ok(()) };
        let offset = if let Amount::Bytes(offset) = job.offset { offset } else { 0 };
        // As in fio the last I/O may reach beyond `size`, where the device goes on.
        let mut log = Vec::new();
        Device::new().run(&mut generator, |next, _| {
            if let Next::Issue(io) = next {
                log.push(io);
            }
        });
        for io in &log {
            prop_assert!(io.len > 0 && (offset..offset + (300 << 10)).contains(&io.offset), "{io:?}");
            prop_assert!(io.offset + u64::from(io.len) <= TARGET.bytes, "{io:?}");
            prop_assert!(io.offset % 512 == 0 && io.len % 512 == 0, "{io:?}");
        }
        prop_assert!(!log.is_empty() && log.len() <= 500, "{}", log.len());
        // Whatever a writer writes, it finds; a reader finds nothing that was ever written.
        if job.pattern.direction != Direction::Read {
            prop_assert_eq!(generator.bad_count(), 0, "{:?} of {:?}", generator.bad_blocks(), log);
        }
    }
}
