//! Flushes: where they come, and what they count as.

use super::*;

/// Writes, with the I/Os as letters.
fn letters(job: Job) -> (Generator, String) {
    let job = Job {
        pattern: pattern(Direction::Write, false),
        io_size: Some(Amount::Bytes(7 * 4096)),
        ..job
    };
    let (generator, ios) = run(&job);
    (generator, ios.iter().map(|io| if io.op == Op::Flush { 'F' } else { 'w' }).collect())
}

#[test]
fn fsync_follows_n_writes() {
    for iodepth in [1, 2, 16] {
        let job = Job { iodepth, ..Job::default() };
        assert_eq!(letters(job.clone()).1, "wwwwwww");
        assert_eq!(letters(Job { sync_every: 3, ..job.clone() }).1, "wwwFwwwFw");
        assert_eq!(letters(Job { sync_every: 7, ..job.clone() }).1, "wwwwwww");
        assert_eq!(letters(Job { sync_at_end: true, ..job.clone() }).1, "wwwwwwwF");
        assert_eq!(letters(Job { sync_every: 7, sync_at_end: true, ..job.clone() }).1, "wwwwwwwF");
        assert_eq!(
            letters(Job { sync_every: 1, sync_at_end: true, number_ios: Some(2), ..job }).1,
            "wFwF"
        );
    }
}

#[test]
fn end_fsync_follows_the_last_write() {
    let job = Job {
        iodepth: 16,
        sync_at_end: true,
        pattern: pattern(Direction::Write, true),
        ..Job::default()
    };
    let mut generator = generator(&job);
    let mut alone = false;
    Device::new().run(&mut generator, |next, device| {
        if matches!(next, Next::Issue(io) if io.op == Op::Flush) {
            alone = device.flying.is_empty();
        }
    });
    assert!(alone);
}

#[test]
fn flushes_have_figures_of_their_own() {
    let (generator, _) = letters(Job { sync_every: 2, sync_at_end: true, ..Job::default() });
    let stats = generator.stats();
    assert_eq!(
        (stats.write.ios, stats.write.issued, stats.write.clat.moments.n, stats.write.bytes),
        (7, 7, 7, 7 * 4096)
    );
    assert_eq!(
        (stats.sync.ios, stats.sync.issued, stats.sync.clat.moments.n, stats.sync.bytes),
        (4, 4, 4, 0)
    );
    assert_eq!((stats.read.ios, stats.depth.total()), (0, 11));
}

#[test]
fn who_writes_nothing_flushes_nothing() {
    let (_, ios) = run(&Job { sync_every: 1, sync_at_end: true, ..Job::default() });
    assert!(ios.iter().all(|io| io.op == Op::Read));
}

#[test]
fn each_written_device_is_flushed() {
    let job = Job {
        pattern: pattern(Direction::Write, false),
        sync_every: 4,
        sync_at_end: true,
        number_ios: Some(6),
        ..Job::default()
    };
    let mut generator = Generator::new(&job, ThreadId::default(), &[TARGET, TARGET]).unwrap();
    let mut log = Vec::new();
    Device::new().run(&mut generator, |next, _| {
        if let Next::Issue(io) = next {
            log.push((io.op == Op::Flush, io.target));
        }
    });
    // As in fio: after four writes the file whose turn it is, which is then the other one's; at the
    // end each of them.
    let (write, flush) = (|target| (false, target), |target| (true, target));
    let writes = [write(0), write(1), write(0), write(1), flush(0), write(1), write(0)];
    assert_eq!(log[..7], writes);
    assert_eq!(log[7..], [flush(0), flush(1)]);
}

#[test]
fn failed_flush_ends_the_job() {
    let job = Job { pattern: pattern(Direction::Write, false), sync_every: 2, ..Job::default() };
    let mut device = Device { fails: Some(2), ..Device::new() };
    let (generator, ios) = run_on(&mut device, &job);
    assert_eq!(generator.failure().map(|failure| failure.io.op), Some(Op::Flush));
    assert_eq!(ios.len(), 3);
}
