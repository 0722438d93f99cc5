use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::transport::kernel::KernelUri;

/// A ring on a file of its own, and its wake-up. `None`: this kernel, or file system, has no
/// io_uring for it.
fn ring_on(
    query: &str,
    tags: u32,
    owned: bool,
) -> Option<(CommandRing, Arc<Wake>, tempfile::NamedTempFile)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    let uri: KernelUri = format!("kernel:{}?{query}", file.path().display()).parse().unwrap();
    let kernel_file = match KernelFile::open(&uri, 16 << 20) {
        Ok(kernel_file) => Arc::new(kernel_file),
        Err(why) => {
            eprintln!("skipped: {why}");
            return None;
        }
    };
    let wake = Arc::new(Wake::new().unwrap());
    Some((
        CommandRing::new(&kernel_file, QueueId(1), tags, (&wake, &Arc::default()), owned, Poll::No)
            .unwrap(),
        wake,
        file,
    ))
}

fn ring(tags: u32, owned: bool) -> Option<(CommandRing, Arc<Wake>, tempfile::NamedTempFile)> {
    ring_on("readonly=yes", tags, owned)
}

fn wake_up(wake: &Wake) {
    wake.arm();
    wake.notify();
    wake.disarm();
}

fn reap(ring: &mut CommandRing, budget: u32) -> u32 {
    ring.reap(budget, &mut |completed| assert!(completed.status.is_success(), "{completed:?}"))
}

/// Posts a read of the first block, by a caller whose clock says `now`.
fn post_read(ring: &mut CommandRing, token: u64, now: Nanos) -> Option<Lent> {
    let bytes = ring.kernel_file.target().facts().lba_bytes;
    let buf = Some(ring.kernel_file.pool().alloc(bytes as usize).unwrap().lend());
    let addr = buf.as_ref().unwrap().addr();
    let part = Part {
        op: Op::Read,
        fua: false,
        nsid: nvme::Nsid(1),
        lba: 0,
        blocks: 1,
        addr,
        bytes,
        buf: &buf,
        keep: false,
    };
    assert!(ring.push_data(&part, Token(token), now));
    buf
}

/// Posts reads of the first block. Their buffers, until they are back.
fn post_reads(ring: &mut CommandRing, several: u32) -> Vec<Option<Lent>> {
    (0..several).map(|token| post_read(ring, token.into(), hw::now())).collect()
}

fn take_back(bufs: Vec<Option<Lent>>) {
    bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
}

/// Invariant: a wake-up ends a sleep for several completions, whenever it comes and however many
/// are awaited. A failure hangs.
#[test]
fn wakeup_ends_sleep_for_several() {
    for owned in [true, false] {
        let Some((mut ring, wake, _file)) = ring(64, owned) else { return };
        // Of these none completes: only the wake-up, or a time, ends a sleep.
        ring.in_flight += 64;
        for round in 0..40 {
            let at_least = [2, 3, 8, MAX_WAKE_CQES, 64, u32::MAX][round % 6];
            let late = Duration::from_micros([0, 50, 2_000][round / 3 % 3]);
            let waking = match round % 3 {
                // Before the thread sleeps.
                0 => {
                    wake_up(&wake);
                    None
                }
                _ => {
                    let wake = wake.clone();
                    Some(thread::spawn(move || {
                        thread::sleep(late);
                        wake_up(&wake);
                    }))
                }
            };
            ring.sleep(SleepFor::Completions(at_least), None);
            waking.into_iter().for_each(|waking| waking.join().unwrap());
            assert_eq!(reap(&mut ring, 64), 0, "a wake-up is no completion of a command");
        }
    }
}

/// Negative test: without the chain a wake-up is one completion, and the sleep lasts until its
/// time-out.
#[test]
fn one_wakeup_is_one_completion() {
    let Some((mut ring, wake, _file)) = ring(64, true) else { return };
    ring.in_flight += 64;
    ring.wake_cqes = Some(0);
    wake_up(&wake);
    let (began, time) = (Instant::now(), Nanos::from_millis(100));
    ring.sleep(SleepFor::Completions(3), Some(time));
    assert!(began.elapsed() >= Duration::from_nanos(time.0), "the mutant was woken");
}

#[test]
fn timeout_ends_sleep_for_several() {
    let Some((mut ring, _wake, _file)) = ring(64, true) else { return };
    ring.in_flight += 64;
    for sleep in [SleepFor::Completions(8), SleepFor::Nap(0), SleepFor::Nap(8)] {
        assert!(!ring.sleep(sleep, Some(Nanos::from_millis(1))));
    }
    assert_eq!(ring.counts.notified.get(), 0);
}

/// A nap that finds a completion ends after its time; one that finds none lasts until a completion,
/// the wake-up, or its time-out.
#[test]
fn min_wait_ends_at_first_completion() {
    for owned in [true, false] {
        let Some((mut ring, wake, _file)) = ring(64, owned) else { return };
        if !ring.kernel_file.features().min_wait {
            return eprintln!("NOT TESTED: the kernel has no min_wait (6.12)");
        }
        ring.in_flight += 40;
        let nap = Nanos::from_millis(2);
        for several in [1, 2, 8] {
            let bufs = post_reads(&mut ring, several);
            let began = hw::now();
            let mut found = 0;
            // Fewer than are out come: it is over with its time. It hangs where a nap for all is
            // not.
            while found < several {
                assert!(ring.sleep(SleepFor::NapThenFirst(nap, 0), None), "owned: {owned}");
                found += reap(&mut ring, 64);
            }
            assert!(hw::now() - began >= nap);
            take_back(bufs);
        }
        let began = Instant::now();
        assert!(!ring.sleep(SleepFor::NapThenFirst(nap, 0), Some(Nanos::from_millis(5))));
        assert!(began.elapsed() >= Duration::from_millis(5), "its caller goes on later");
        // Nothing in its time, and a wake-up long after: the nap has gone on.
        let (began, late) = (Instant::now(), Duration::from_millis(20));
        let theirs = wake.clone();
        let waking = thread::spawn(move || {
            thread::sleep(late);
            wake_up(&theirs);
        });
        ring.sleep(SleepFor::NapThenFirst(nap, 0), None);
        assert!(began.elapsed() >= late, "it ended with nothing");
        waking.join().unwrap();
        assert_eq!(reap(&mut ring, 64), 0);
    }
}

/// A chunk is registered once: not again by commands that name it, nor for another of its buffers.
#[test]
fn prepared_buffers_register_once() {
    let Some((mut ring, _wake, _file)) = ring(8, true) else { return };
    assert_eq!(ring.buffers.registered(), 0);
    let mut prepare = || {
        let lent = ring.kernel_file.pool().alloc(4096).unwrap().lend();
        ring.prepare(&lent);
        lent.take_back()
    };
    let kept = [prepare(), prepare()];
    // Where the kernel refuses (RLIMIT_MEMLOCK) nothing is, before and after.
    let prepared = ring.buffers.registered();
    assert!(prepared == 1 || !ring.kernel_file.registers_buffers(), "{prepared}");
    let bufs = post_reads(&mut ring, 4);
    assert_eq!(ring.buffers.registered(), prepared);
    let mut found = 0;
    while found < 4 {
        ring.sleep(SleepFor::Completions(1), None);
        found += reap(&mut ring, 8);
    }
    take_back(bufs);
    drop(kept);
}

/// The caller's clock may be behind or ahead: searches bound the time of a post, and each late
/// command is cancelled once.
#[test]
fn commands_time_out_by_true_clock() {
    let Some((mut ring, _wake, _file)) = ring(64, false) else { return };
    let (second, timeout) = (Nanos::from_secs(1), Nanos::from_secs(10));
    let at = |seconds: u64| Nanos(seconds * second.0);
    assert_eq!(ring.cancel_overdue(at(100), timeout), (0, Nanos::MAX), "nothing is out");
    // Behind, ahead, and in between the searches: as it was posted.
    let posted = [0, 5_000, 101].map(|seconds| post_read(&mut ring, seconds, at(seconds)));
    assert_eq!(
        ring.cancel_overdue(at(102), timeout),
        (0, at(111)),
        "they have been out for two seconds at most"
    );
    assert_eq!(
        ring.cancel_overdue(at(111), timeout),
        (1, at(112)),
        "the one whose clock is believed"
    );
    assert_eq!(
        ring.cancel_overdue(at(112), timeout),
        (2, Nanos::MAX),
        "the others count from when they were first seen"
    );
    assert_eq!(ring.cancel_overdue(at(10_000), timeout).0, 0, "each is cancelled once");
    let mut found = 0;
    while found < posted.len() as u32 {
        ring.sleep(SleepFor::Completions(1), None);
        found += ring.reap(8, &mut |_| {});
    }
    take_back(posted.into());
}

/// A nap ends with the completions that it waits for, whatever else is in flight. A failure hangs.
#[test]
fn naps_end_with_needed_completions() {
    let Some((mut ring, _wake, _file)) = ring(64, true) else { return };
    ring.in_flight += 40;
    for several in [2, 3, 8] {
        let bufs = post_reads(&mut ring, several);
        ring.sleep(SleepFor::Nap(several), None);
        assert_eq!(reap(&mut ring, 64), several);
        take_back(bufs);
    }
}

/// Reads a block several times, and sleeps for all of them: one system call each time.
#[test]
fn sleep_for_several_is_one_call() {
    let Some((mut ring, wake, _file)) = ring(64, true) else { return };
    for round in 0..20u32 {
        let several = 1 + round % 16;
        let bufs = post_reads(&mut ring, several);
        if round == 7 {
            // A wake-up in between costs a call.
            wake_up(&wake);
            ring.sleep(SleepFor::Completions(several), None);
        }
        let (before, mut found) = (ring.counts.system_calls.get(), 0);
        while found < several {
            assert!(ring.sleep(SleepFor::Completions(several - found), None) || found < several);
            found += reap(&mut ring, 64);
        }
        let calls = ring.counts.system_calls.get() - before;
        assert!(
            calls <= 2 || round == 7 || round == 8,
            "round {round}: {calls} calls for {several}"
        );
        assert_eq!(ring.in_flight(), 0);
        take_back(bufs);
    }
}

/// Through the page cache the kernel has one Flush at a time: of two, the one that reports a failed
/// write-back may be reaped last.
#[test]
fn cached_flushes_go_one_by_one() {
    let Some((mut ring, _wake, _file)) = ring_on("buffered=yes&lba=4096", 64, true) else { return };
    let flush = Part {
        op: Op::Flush,
        fua: false,
        nsid: nvme::Nsid(1),
        lba: 0,
        blocks: 0,
        addr: 0,
        bytes: 0,
        buf: &None,
        keep: false,
    };
    (0..4).for_each(|token| assert!(ring.push_other(&flush, Token(token), hw::now())));
    ring.submit();
    let mut found = 0;
    for left in (0..4).rev() {
        assert_eq!(ring.durable_waiting.len(), left);
        while found + (left as u32) < 4 {
            ring.sleep(SleepFor::Completions(1), None);
            found += reap(&mut ring, 1);
        }
    }
    assert!(ring.durable.is_none());
}

/// What finds no room in the ring is submitted with a later call, and nothing of it is lost.
#[test]
fn full_ring_submits_the_rest() {
    let Some((mut ring, _wake, _file)) = ring(8, true) else { return };
    while ring.sq.room() > 3 {
        assert!(ring.push_entry(Entry::nop().user_data(CANCEL)));
    }
    let bufs = post_reads(&mut ring, 8);
    assert_eq!((ring.backlog.len(), ring.in_flight(), ring.free.len()), (5, 8, 0));
    let mut found = 0;
    while found < 8 {
        ring.sleep(SleepFor::Completions(1), None);
        found += reap(&mut ring, 64);
    }
    assert_eq!((ring.to_submit, ring.backlog.len()), (0, 0));
    take_back(bufs);
}
