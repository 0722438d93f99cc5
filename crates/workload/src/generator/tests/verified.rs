//! Writes that are read back, by the job that wrote them or by a later one.

use super::*;

fn writer(random: bool) -> Job {
    Job {
        pattern: pattern(Direction::Write, random),
        iodepth: 8,
        verify: Some(Verify::default()),
        ..Job::default()
    }
}

fn reader() -> Job {
    Job { pattern: pattern(Direction::Read, true), ..writer(false) }
}

#[test]
fn written_blocks_are_verified_once() {
    for random in [false, true] {
        let (generator, log) = run(&writer(random));
        assert_eq!(log.len(), 512);
        let offsets = |log: &[Io]| log.iter().map(|io| io.offset).collect::<Vec<_>>();
        assert_eq!(offsets(&log[..256]), offsets(&log[256..]));
        assert!(
            log[..256].iter().all(|io| io.op == Op::Write)
                && log[256..].iter().all(|io| io.op == Op::Read)
        );
        assert_eq!((generator.bad_count(), generator.error()), (0, 0));
        let (read, write) = (&generator.stats().read, &generator.stats().write);
        assert_eq!((read.ios, write.ios), (256, 256));
        // Each has the time of its own phase.
        assert!(read.runtime > Nanos::ZERO && write.runtime > Nanos::ZERO);
    }
    let (_, log) = run(&Job {
        verify: Some(Verify { after_write: false, ..Verify::default() }),
        ..writer(true)
    });
    assert_eq!(log.len(), 256);
}

#[test]
fn later_job_finds_flipped_bit() {
    let mut device = Device::new();
    let (generator, _) = run_on(&mut device, &Job { offset: Amount::Bytes(0), ..writer(true) });
    assert_eq!(generator.error(), 0);
    let (generator, log) = run_on(&mut device, &reader());
    assert_eq!((log.len(), generator.bad_count()), (256, 0));
    device.memory[123 * 4096 + 700] ^= 0x10;
    let (generator, log) = run_on(&mut device, &reader());
    assert_eq!((log.len(), generator.bad_count(), generator.error()), (256, 1, 84));
    let bad = &generator.bad_blocks()[0];
    assert_eq!((bad.offset, bad.len), (123 * 4096, 4096));
    assert!(
        bad.to_string().starts_with("verify: at offset 503808, length 4096: crc32c is 0x"),
        "{bad}"
    );
    assert!(bad.to_string().contains(": byte 700 is 0x"), "{bad}");
    // verify_fatal stops at once.
    let strict = Job {
        verify: Some(Verify { fatal: true, ..Verify::default() }),
        seed: Some(3),
        ..reader()
    };
    let (generator, log) = run_on(&mut device, &strict);
    assert_eq!(generator.error(), 84);
    assert!(log.len() < 256);
}

#[test]
fn reader_may_use_other_block_sizes() {
    let mut device = Device::new();
    let sizes = BlockSizes { min: 512, max: 8192, split: Vec::new() };
    let (generator, _) = run_on(&mut device, &Job { block: PerOp::all(sizes), ..writer(true) });
    assert_eq!(generator.error(), 0);
    let verify = Some(Verify { interval: Some(512), ..Verify::default() });
    let job = Job { block: PerOp::all(BlockSizes::fixed(64 << 10)), verify, ..reader() };
    let (generator, log) = run_on(&mut device, &job);
    assert_eq!((log.len(), generator.bad_count()), (16, 0));
    device.memory[5 * 65536 + 513] ^= 1;
    let (generator, _) = run_on(&mut device, &job);
    assert_eq!(generator.bad_blocks()[0].offset, 5 * 65536 + 512);
}

#[test]
fn what_was_never_written_is_found() {
    let (generator, _) = run(&reader());
    assert_eq!(generator.bad_count(), 256);
    assert_eq!(generator.bad_blocks().len(), 16);
    assert!(generator.bad_blocks().iter().all(|bad| bad.why.starts_with("no verify header")));
}

#[test]
fn lost_overwrite_is_found() {
    let mut device = Device::new();
    let mut write = |loses_write| {
        let mut generator = generator(&writer(true));
        device.writes = 0;
        device.loses_write = loses_write;
        device.run(&mut generator, |_, _| {});
        generator
    };
    assert_eq!(write(None).bad_count(), 0);
    let generator = write(Some(17));
    assert_eq!(generator.bad_count(), 1);
    assert!(generator.bad_blocks()[0].why.starts_with("stale data"));
    // The same run's own earlier data, which has the same seed: a block that a second pass failed
    // to overwrite.
    let job = Job { loops: 2, ..writer(false) };
    let mut device = Device { loses_write: Some(256 + 40), ..Device::new() };
    let (generator, _) = run_on(&mut device, &job);
    assert!(generator.bad_blocks()[0].why.starts_with("stale data"));
    assert_eq!(generator.bad_blocks()[0].offset, 40 * 4096);
}

#[test]
fn time_based_writers_verify_each_pass() {
    let job = Job {
        runtime: Some(Nanos::from_millis(20)),
        time_based: true,
        size: Some(Amount::Bytes(64 << 10)),
        ..writer(true)
    };
    let (generator, log) = run(&job);
    assert_eq!(generator.error(), 0);
    let kinds: String =
        log.chunks(16).map(|pass| if pass[0].op == Op::Write { 'w' } else { 'r' }).collect();
    assert!(kinds.starts_with("wrwrwrwr"), "{kinds}");
    assert!(
        generator.stats().write.runtime + generator.stats().read.runtime >= Nanos::from_millis(20)
    );
}

#[test]
fn overwrites_are_verified_by_the_last() {
    // Without a map some blocks are written twice: the last write is what is read back, by its
    // offset.
    let job = Job { random_map: false, io_size: Some(Amount::Bytes(4 << 20)), ..writer(true) };
    let (generator, log) = run(&job);
    let (writes, reads) = log.split_at(1024);
    let written: BTreeSet<u64> = writes.iter().map(|io| io.offset).collect();
    assert!(
        reads.iter().map(|io| io.offset).eq(written) && reads.iter().all(|io| io.op == Op::Read)
    );
    assert_eq!(generator.error(), 0);
    // A mixed job verifies its writes only.
    let mixed = Job { pattern: pattern(Direction::Mixed, true), ..writer(true) };
    let (generator, log) = run(&mixed);
    let writes = log.iter().filter(|io| io.op == Op::Write).count();
    assert_eq!((log.len(), generator.error()), (256 + writes, 0));
}

#[test]
fn verify_only_writes_nothing() {
    for (direction, random) in [
        (Direction::Write, false),
        (Direction::Write, true),
        (Direction::Mixed, false),
        (Direction::Mixed, true),
    ] {
        let mut device = Device::new();
        let job = Job { pattern: pattern(direction, random), ..writer(random) };
        let (_, wrote) = run_on(
            &mut device,
            &Job {
                verify: Some(Verify { after_write: false, ..Verify::default() }),
                ..job.clone()
            },
        );
        let only = |verify| Job { verify: Some(Verify { only: true, ..verify }), ..job.clone() };
        let (generator, read) = run_on(&mut device, &only(Verify::default()));
        assert_eq!((generator.error(), generator.stats().write.ios), (0, 0));
        let places = |log: &[Io], op| {
            log.iter().filter(|io| io.op == op).map(|io| io.offset).collect::<Vec<_>>()
        };
        assert_eq!(places(&read, Op::Read), places(&wrote, Op::Write), "{direction:?} {random}");
        assert_eq!(places(&read, Op::Write), [0; 0]);
        // Another thread's seeds differ, which is found only if they are checked.
        let other = |job: &Job| {
            Generator::new(job, ThreadId { number: 2, ..ThreadId::default() }, &[TARGET]).unwrap()
        };
        let mut ordered = other(&only(Verify::default()));
        device.run(&mut ordered, |_, _| {});
        assert!(ordered.bad_count() > 0);
        if direction == Direction::Write {
            assert!(ordered.bad_blocks()[0].why.starts_with("the header's seed"));
            let mut blind = other(&only(Verify { header_seed: Some(false), ..Verify::default() }));
            device.run(&mut blind, |_, _| {});
            assert_eq!(blind.bad_count(), 0);
        }
        let target = places(&wrote, Op::Write)[5];
        device.memory[target as usize + 2000] ^= 1;
        let (generator, _) = run_on(&mut device, &only(Verify::default()));
        assert_eq!((generator.bad_count(), generator.bad_blocks()[0].offset), (1, target));
    }
}

#[test]
fn verify_only_passes_are_identical() {
    let mut device = Device::new();
    run_on(&mut device, &Job { loops: 3, ..writer(true) });
    let verify = Some(Verify { only: true, ..Verify::default() });
    let (generator, log) =
        run_on(&mut device, &Job { verify: verify.clone(), loops: 2, ..writer(true) });
    assert_eq!((generator.error(), log.len()), (0, 512));
    let timed =
        Job { verify, time_based: true, runtime: Some(Nanos::from_millis(20)), ..writer(true) };
    let (generator, log) = run_on(&mut device, &timed);
    assert!(generator.error() == 0 && log.len() > 256 && log.iter().all(|io| io.op == Op::Read));
    // With a seed of one's own the last pass is not the first one; seeds are then not compared.
    run_on(&mut device, &Job { loops: 3, seed: Some(7), ..writer(true) });
    let verify = Some(Verify { only: true, ..Verify::default() });
    let (generator, _) =
        run_on(&mut device, &Job { verify, loops: 3, seed: Some(7), ..writer(true) });
    assert_eq!(generator.error(), 0);
}

#[test]
fn verify_header_seed_compares_seeds() {
    let mut device = Device::new();
    run_on(&mut device, &writer(true));
    let told = |repeatable| Job {
        verify: Some(Verify { header_seed: Some(true), ..Verify::default() }),
        repeatable,
        ..reader()
    };
    assert_eq!(run_on(&mut device, &told(true)).0.bad_count(), 0);
    assert_eq!(run_on(&mut device, &told(false)).0.bad_count(), 256);
}

#[test]
fn verify_null_checks_nothing() {
    let verify = Some(Verify { kind: VerifyKind::Null, ..Verify::default() });
    let (generator, log) = run(&Job { verify, ..writer(true) });
    assert_eq!((log.len(), generator.error(), generator.verifies()), (512, 0, false));
}

#[test]
fn unequal_lengths_keep_whole_blocks() {
    let block = PerOp { read: BlockSizes::fixed(512), ..PerOp::all(BlockSizes::fixed(4096)) };
    for (random, distribution) in [
        (false, Distribution::Uniform),
        (true, Distribution::Uniform),
        (true, Distribution::Zipf { theta: 1.1 }),
    ] {
        let job = Job {
            block: block.clone(),
            distribution,
            pattern: pattern(Direction::Mixed, random),
            ..writer(random)
        };
        let (generator, log) = run(&Job { size: Some(Amount::Bytes(100 << 10)), ..job.clone() });
        assert_eq!((generator.error(), generator.bad_blocks()), (0, [].as_slice()));
        assert!(
            log.iter()
                .all(|io| io.offset + u64::from(io.len) <= 100 << 10
                    && io.offset.is_multiple_of(512))
        );
        let small = Job { size: Some(Amount::Bytes(2048)), ..job };
        assert!(
            matches!(Generator::new(&small, ThreadId::default(), &[TARGET]), Err(misfit) if misfit.to_string().contains("less than one block of 4096 bytes"))
        );
    }
}

/// Writes in flight have no order: either of two that overlap may be carried out last.
#[test]
fn overlapping_writes_wait() {
    let overlapping = |seed, serialize_overlap, verify| Job {
        align: PerOp::all(512),
        random_map: false,
        seed: Some(seed),
        serialize_overlap,
        verify,
        io_size: Some(Amount::Bytes(200 * 4096)),
        size: Some(Amount::Bytes(64 << 10)),
        ..writer(true)
    };
    for seed in 0..20 {
        let mut device =
            Device { late: Some(Vec::new()), rng: Xoshiro::seed_from_u64(seed), ..Device::new() };
        let (generator, _) =
            run_on(&mut device, &overlapping(seed, false, Some(Verify::default())));
        assert_eq!((generator.bad_count(), generator.error()), (0, 0), "seed {seed}");
        for serialize in [true, false] {
            let (mut generator, mut overlapped) =
                (super::generator(&overlapping(seed, serialize, None)), 0);
            let mut device = Device { late: Some(Vec::new()), ..Device::new() };
            device.run(&mut generator, |next, device| {
                let Next::Issue(io) = next else { return };
                let meets = |other: &Io| {
                    other.offset < io.offset + u64::from(io.len)
                        && io.offset < other.offset + u64::from(other.len)
                };
                overlapped += u32::from(device.flying.iter().any(meets));
            });
            assert_eq!(overlapped > 0, !serialize, "seed {seed}: without it nothing waits");
            assert_eq!(generator.stats().write.ios, 200);
        }
    }
}
