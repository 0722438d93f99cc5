//! Where I/Os go, beside the usual ways.

use super::*;

/// Offsets of a job's I/Os, in KiB.
fn in_kib(job: &Job) -> Vec<u64> {
    run(job).1.iter().map(|io| io.offset / 1024).collect()
}

fn small(direction: Direction, random: bool) -> Job {
    Job { pattern: pattern(direction, random), size: Some(Amount::Bytes(64 << 10)), ..Job::default() }
}

fn many(distribution: Distribution) -> Job {
    let (number_ios, io_size) = (Some(20_000), Some(Amount::Bytes(u64::MAX)));
    Job { pattern: pattern(Direction::Read, true), distribution, random_map: false, number_ios, io_size, ..Job::default() }
}

/// The share of a job's I/Os below this share of the device.
fn below_share(job: &Job, part: f64) -> f64 {
    let log = run(job).1;
    log.iter().filter(|io| (io.offset as f64) < part * TARGET.bytes as f64).count() as f64 / log.len() as f64
}

#[test]
fn trims_have_their_own_size_and_figures() {
    let block = PerOp { trim: BlockSizes::fixed(16 << 10), ..PerOp::both(BlockSizes::fixed(512)) };
    let (generator, log) = run(&Job { block, ..small(Direction::Trim, false) });
    assert_eq!(
        log.iter().map(|io| (io.op, io.offset, io.len)).collect::<Vec<_>>(),
        [0, 16, 32, 48].map(|k| (Op::Deallocate, k << 10, 16 << 10))
    );
    let stats = generator.stats();
    assert_eq!((stats.trim.ios, stats.trim.bytes, stats.trim.issued, stats.write.ios, stats.issued()), (4, 64 << 10, 4, 0, 4));
    let random: std::collections::BTreeSet<u64> = in_kib(&small(Direction::Trim, true)).into_iter().collect();
    assert_eq!(random.len(), 16);
}

/// Every block of a pass is in one range of one command; the last command has what is left.
#[test]
fn a_trim_has_several_ranges() {
    let sizes = PerOp::both(BlockSizes { min: 4096, max: 12 << 10, split: vec![(4096, 50), (12 << 10, 50)] });
    for (random, block) in [(false, PerOp::both(BlockSizes::fixed(4096))), (true, PerOp::both(BlockSizes::fixed(4096))), (false, sizes)] {
        let job = Job { ranges: 3, iodepth: 4, block, ..small(Direction::Trim, random) };
        let mut generator = Generator::new(&job, Seat::default(), &[TARGET]).unwrap();
        assert!(generator.has_ranges());
        let (mut blocks, mut commands) = (Vec::new(), Vec::new());
        loop {
            match generator.next(Nanos::ZERO) {
                Next::Issue(io) => {
                    generator.issued(&io, Nanos::ZERO);
                    let ranges = generator.ranges(io.slot).to_vec();
                    assert_eq!((io.offset, io.op), (ranges[0].0, Op::Deallocate));
                    assert_eq!(u64::from(io.len), ranges.iter().map(|(_, len)| u64::from(*len)).sum::<u64>());
                    blocks.extend(ranges.iter().flat_map(|&(at, len)| (at..at + u64::from(len)).step_by(4096)));
                    commands.push((io, ranges.len()));
                    generator.committed(Nanos::ZERO);
                    generator.completed(io, Nanos::ZERO, Ok(()), &[]);
                }
                Next::Done => break,
                _ => {}
            }
        }
        blocks.sort_unstable();
        assert_eq!(blocks, (0..16).map(|block| block * 4096).collect::<Vec<_>>(), "random: {random}");
        let (last, all) = (commands.last().unwrap().1, commands.len());
        assert!(commands[..all - 1].iter().all(|(_, ranges)| *ranges == 3) && (1..=3).contains(&last), "{commands:?}");
        assert_eq!((generator.stats().trim.ios, generator.stats().trim.bytes), (all as u64, 64 << 10));
    }
    // What else a job does has one range, and so has a trim before a write.
    for direction in [Direction::Read, Direction::Write, Direction::TrimWrite] {
        assert!(!Generator::new(&Job { ranges: 3, ..small(direction, true) }, Seat::default(), &[TARGET]).unwrap().has_ranges());
    }
    let two = Generator::new(&Job { ranges: 3, ..small(Direction::Trim, true) }, Seat::default(), &[TARGET; 2]);
    assert!(two.unwrap_err().to_string().contains("needs one device"));
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
        assert_eq!((generator.stats().trim.bytes, generator.stats().write.bytes), (64 << 10, 64 << 10));
    }
}

#[test]
fn zones_have_their_shares() {
    let zone = |access, percent| AccessZone { access, room: ZoneRoom::Percent(percent) };
    let job = many(Distribution::Zoned(PerOp::both(vec![zone(50.0, 5.0), zone(30.0, 15.0), zone(20.0, 80.0)])));
    for (part, share) in [(0.05, 0.5), (0.2, 0.8), (1.0, 1.0)] {
        assert!((below_share(&job, part) - share).abs() < 0.02, "{part}");
    }
    let bytes = |access, bytes| AccessZone { access, room: ZoneRoom::Bytes(bytes) };
    let job = many(Distribution::Zoned(PerOp::both(vec![bytes(90.0, 64 << 10), bytes(10.0, 64 << 10)])));
    assert!((below_share(&job, 0.0625) - 0.9).abs() < 0.02);
    assert!(run(&job).1.iter().all(|io| io.offset < 128 << 10));
}

#[test]
fn a_bell_stands_in_the_middle() {
    let job = many(Distribution::Normal { percent: 10.0 });
    assert!((below_share(&job, 0.5) - 0.5).abs() < 0.02);
    assert!((below_share(&job, 0.6) - below_share(&job, 0.4) - 0.68).abs() < 0.03);
}

#[test]
fn a_fifth_of_the_blocks_has_four_fifths_of_the_ios() {
    let log = run(&many(Distribution::Pareto { h: 0.2 })).1;
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    log.iter().for_each(|io| *counts.entry(io.offset).or_default() += 1);
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let top: u32 = counts.iter().take(256 / 5).sum();
    assert!((f64::from(top) / log.len() as f64 - 0.8).abs() < 0.04);
}

#[test]
fn sequences_repeat_or_move_on() {
    let sequence = |moves| Job { distribution: Distribution::Sequence { blocks: vec![2, 0, 1], moves }, ..small(Direction::Read, true) };
    let ios = |moves| in_kib(&Job { number_ios: Some(7), ..sequence(moves) });
    assert_eq!(ios(false), [8, 0, 4, 8, 0, 4, 8]);
    assert_eq!(ios(true), [8, 0, 4, 20, 12, 16, 32]);
}

#[test]
fn offsets_are_aligned_and_may_repeat() {
    let job = Job { align: PerOp::both(4096), block: PerOp::both(BlockSizes::fixed(512)), ..small(Direction::Read, true) };
    let log = run(&job).1;
    assert_eq!(log.len(), 128);
    assert!(log.iter().all(|io| io.offset % 4096 == 0 && io.len == 512));
}

#[test]
fn some_follow_the_one_before_or_share_its_place() {
    let half = Job { random_percent: PerOp::both(50), number_ios: Some(4_000), ..many(Distribution::Uniform) };
    let log = run(&half).1;
    let follow = log.windows(2).filter(|pair| pair[1].offset == pair[0].offset + 4096).count() as f64 / log.len() as f64;
    assert!((follow - 0.5).abs() < 0.05, "{follow}");
    let mut same = Job { identical: true, ..small(Direction::Read, true) };
    same.pattern.step = 4;
    let log = in_kib(&same);
    assert!(log.len() == 16 && log.chunks(4).all(|run| run.iter().all(|offset| *offset == run[0])), "{log:?}");
}

/// As fio 3.33 does: observed with `--write_iolog`.
#[test]
fn strided_zones_are_gone_through_one_after_the_other() {
    let zones = |range, skip, whole| Some(Strided { size: 16 << 10, range, skip, whole });
    let job = Job { strided: zones(16 << 10, 48 << 10, true), ..small(Direction::Read, false) };
    let expected: Vec<u64> = (0..4).flat_map(|zone| (0..4).map(move |block| zone * 64 + block * 4)).collect();
    assert_eq!(in_kib(&job), expected);
    let mut found = in_kib(&Job { pattern: pattern(Direction::Read, true), ..job.clone() });
    assert!(found.chunks(4).zip(0..).all(|(zone, at)| zone.iter().all(|offset| (at * 64..at * 64 + 16).contains(offset))), "{found:?}");
    found.sort_unstable();
    assert_eq!(found, expected);
    let wider = Job { strided: zones(32 << 10, 16 << 10, true), ..job.clone() };
    assert_eq!(in_kib(&wider)[..6], [0, 4, 8, 12, 48, 52]);
    // Around the end of the region.
    let around = Job { strided: zones(16 << 10, 16 << 10, false), io_size: Some(Amount::Bytes(48 << 10)), ..job };
    assert_eq!(in_kib(&around), [0, 4, 8, 12, 32, 36, 40, 44, 0, 4, 8, 12]);
}

/// As fio 3.33 does, but for the dice: observed with `--write_iolog`.
#[test]
fn files_take_turns_or_are_done_one_after_the_other() {
    let files = |service, service_run| Job { files: 4, service, service_run, ..small(Direction::Read, false) };
    let turns = |job: &Job| in_kib(job).iter().map(|kib| kib / 16).collect::<Vec<u64>>();
    assert_eq!(in_kib(&files(FileService::RoundRobin, 1))[..6], [0, 16, 32, 48, 4, 20]);
    assert_eq!(turns(&files(FileService::Sequential, 1)), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    assert_eq!(turns(&files(FileService::RoundRobin, 3)), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 1, 2, 3]);
    let mut random = turns(&files(FileService::Random, 1));
    assert_ne!(random, turns(&files(FileService::RoundRobin, 1)));
    random.sort_unstable();
    assert_eq!(random, turns(&files(FileService::Sequential, 1)));
}

fn any_place() -> impl Strategy<Value = Job> {
    use proptest::sample::select;
    let zone = |access, percent| AccessZone { access, room: ZoneRoom::Percent(percent) };
    let distributions = vec![
        Distribution::Uniform,
        Distribution::Zipf { theta: 1.2 },
        Distribution::Pareto { h: 0.3 },
        Distribution::Normal { percent: 40.0 },
        Distribution::Zoned(PerOp::both(vec![zone(90.0, 0.1), zone(5.0, 10.0), zone(5.0, 60.0)])),
        Distribution::Sequence { blocks: vec![7, 0, u64::MAX, 3], moves: true },
    ];
    let strided = vec![None, None, Some((4096, 4096, 0)), Some((8192, 65_536, 20_480)), Some((512, 1 << 20, 1 << 20))];
    let directions = vec![Direction::Read, Direction::Write, Direction::Mixed, Direction::Trim, Direction::TrimWrite];
    let services = vec![FileService::RoundRobin, FileService::Sequential, FileService::Random];
    let sizes = vec![(512, 512), (4096, 4096), (512, 8192), (4096, 65_536)];
    (
        (select(directions), any::<bool>(), select(vec![1i64, 1, 3]), select(distributions), select(strided)),
        (select(sizes), select(vec![0u64, 512, 4096, 65_536]), select(vec![0u32, 50, 100]), any::<bool>(), any::<bool>()),
        (1u32..5, select(services), 1u64..4, 1u32..9, any::<bool>()),
        select(vec![0u64, 512, 20_480]),
    )
        .prop_map(
            |((direction, random, step, distribution, strided), (size, align, percent, identical, random_map), files, offset)| {
                let (files, service, service_run, iodepth, verifies) = files;
                let zones = |(size, range, skip)| Strided { size, range, skip, whole: offset == 0 };
                let step = if random { step } else { 0 };
                Job {
                    pattern: Pattern { direction, random, step },
                    distribution,
                    strided: strided.map(zones),
                    block: PerOp::both(BlockSizes { min: size.0, max: size.1, split: Vec::new() }),
                    align: PerOp::both(align),
                    random_percent: PerOp::both(percent),
                    identical,
                    random_map,
                    files,
                    service,
                    service_run,
                    iodepth,
                    offset: Amount::Bytes(offset),
                    size: Some(Amount::Bytes(300 << 10)),
                    number_ios: Some(200),
                    verify: verifies.then(|| Verify { backlog: Some(Backlog { writes: 7, batch: 3 }), ..Verify::default() }),
                    ..Job::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn wherever_ios_go_they_are_within_the_region_and_found_again(job in any_place()) {
        let Ok(mut generator) = Generator::new(&job, Seat::default(), &[TARGET]) else { return Ok(()) };
        let whole = job.strided.is_some_and(|zones| zones.whole);
        let offset = if let Amount::Bytes(offset) = job.offset { offset } else { 0 };
        let end = if whole { TARGET.bytes } else { offset + (300 << 10) };
        let mut log = Vec::new();
        Device::new().run(&mut generator, |next, _| {
            if let Next::Issue(io) = next {
                log.push(io);
            }
        });
        for io in &log {
            prop_assert!(io.len > 0 && io.offset >= offset && io.offset + u64::from(io.len) <= end, "{io:?}");
            prop_assert!(io.offset % 512 == 0 && io.len % 512 == 0, "{io:?}");
        }
        prop_assert!(!log.is_empty() && log.len() <= 500, "{}", log.len());
        // Whatever a writer writes, it finds; a reader finds nothing that was ever written.
        if job.pattern.direction != Direction::Read {
            prop_assert_eq!(generator.bad_count(), 0, "{:?} of {:?}", generator.bad_blocks(), log);
        }
    }
}
