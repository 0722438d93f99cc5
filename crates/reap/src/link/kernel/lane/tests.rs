use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::link::kernel::KernelUri;

impl UringLane {
    /// Chunks of memory that the kernel has registered for it; `None`: it registers none.
    pub(crate) fn registered(&self) -> Option<usize> {
        self.link.registers().then(|| self.state().buffers.registered())
    }
}

/// A lane of a file of its own, and what rings its bell. `None`: this kernel, or file system, has no io_uring for it.
pub(super) fn lane(tags: u32, owned: bool) -> Option<(UringLane, Arc<Wake>, tempfile::NamedTempFile)> {
    lane_on("readonly=yes", tags, owned)
}

fn lane_on(query: &str, tags: u32, owned: bool) -> Option<(UringLane, Arc<Wake>, tempfile::NamedTempFile)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    let uri: KernelUri = format!("kernel:{}?{query}", file.path().display()).parse().unwrap();
    let link = match KernelLink::open(&uri, 16 << 20) {
        Ok(link) => Arc::new(link),
        Err(why) => {
            eprintln!("skipped: {why}");
            return None;
        }
    };
    let wake = Arc::new(Wake::new().unwrap());
    Some((UringLane::new(&link, QueueId(1), tags, &wake, owned).unwrap(), wake, file))
}

/// This many are out that never complete: only the bell, or a time, ends a sleep for several.
fn never_completes(lane: &UringLane, requests: u64) {
    add(&lane.announced, requests);
}

/// What a bell rings for is not there before.
pub(super) fn rings(wake: &Wake) {
    wake.arm();
    wake.tell();
    wake.mask();
}

/// The law: a sleep for several completions ends by the bell, whenever it rings, again and again, and at any number. It hangs where
/// that is not so.
#[test]
fn bell_ends_a_multi_completion_sleep() {
    for owned in [true, false] {
        let Some((lane, wake, _file)) = lane(64, owned) else { return };
        never_completes(&lane, 64);
        let mut out = [Completed::default(); 64];
        for round in 0..40 {
            let at_least = [2, 3, 8, MOST_AT_ONCE, 64, u32::MAX][round % 6];
            let late = Duration::from_micros([0, 50, 2_000][round / 3 % 3]);
            let ringing = match round % 3 {
                // Before the thread sleeps: told and not yet heard.
                0 => {
                    rings(&wake);
                    None
                }
                _ => {
                    let wake = wake.clone();
                    Some(thread::spawn(move || {
                        thread::sleep(late);
                        rings(&wake);
                    }))
                }
            };
            lane.wait(at_least, None);
            ringing.into_iter().for_each(|ringing| ringing.join().unwrap());
            assert_eq!(lane.reap(&mut out).found, 0, "bells are no completions");
        }
    }
}

/// The twin lets the bell come alone: its one completion is not several, and the sleep goes on to its time.
#[test]
fn one_bell_counts_as_one_completion() {
    let Some((lane, wake, _file)) = lane(64, true) else { return };
    never_completes(&lane, 64);
    lane.state().peal = Some(0);
    rings(&wake);
    let (began, time) = (Instant::now(), Nanos::from_millis(100));
    lane.wait(3, Some(time));
    assert!(began.elapsed() >= Duration::from_nanos(time.0), "the twin has noticed the bell");
}

#[test]
fn timeout_ends_a_multi_completion_sleep() {
    let Some((lane, _wake, _file)) = lane(64, true) else { return };
    never_completes(&lane, 64);
    assert!(!lane.wait(8, Some(Nanos::from_millis(1))));
    lane.nap(0, Some(Nanos::from_millis(1)));
    lane.nap(8, Some(Nanos::from_millis(1)));
    assert_eq!(lane.messages(), 0, "nothing has notified");
}

/// A nap that brings something in its time ends with that; one that brings nothing goes on until there is something, a bell, or until
/// its caller goes on.
#[test]
fn min_wait_ends_at_first_completion() {
    for owned in [true, false] {
        let Some((lane, wake, _file)) = lane(64, owned) else { return };
        if !lane.dozes() {
            return eprintln!("NOT TESTED: the kernel has no min_wait (6.12)");
        }
        never_completes(&lane, 40);
        let (mut out, nap) = ([Completed::default(); 64], Nanos::from_millis(2));
        for several in [1, 2, 8] {
            let bufs = post_reads(&lane, several);
            let began = hw::now();
            let mut found = 0;
            // Fewer than are out come: it is over with its time. It hangs where a nap for all is not.
            while found < several {
                assert!(lane.doze(0, nap, None), "owned: {owned}");
                found += lane.reap(&mut out).found;
            }
            assert!(hw::now() - began >= nap);
            bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
        }
        let began = Instant::now();
        assert!(!lane.doze(0, nap, Some(Nanos::from_millis(5))));
        assert!(began.elapsed() >= Duration::from_millis(5), "its caller goes on later");
        // Nothing in its time, and a bell long after: the nap has gone on.
        let (began, late) = (Instant::now(), Duration::from_millis(20));
        let bell = wake.clone();
        let ringing = thread::spawn(move || {
            thread::sleep(late);
            rings(&bell);
        });
        lane.doze(0, nap, None);
        assert!(began.elapsed() >= late, "it ended in vain");
        ringing.join().unwrap();
        assert_eq!(lane.reap(&mut out).found, 0);
    }
}

/// A chunk of which a ring has been told is registered once: not again by the requests that name it, nor for another of its buffers.
#[test]
fn prepared_buffers_register_once() {
    let Some((lane, _wake, _file)) = lane(8, true) else { return };
    let known = || lane.state().buffers.registered();
    let prepare = || {
        let lent = lane.link.pool().alloc(4096).unwrap().lend();
        lane.prepare(&lent);
        lent.take_back()
    };
    assert_eq!(known(), 0);
    let kept = [prepare(), prepare()];
    // Where the kernel refuses (RLIMIT_MEMLOCK) nothing is, before and after.
    let prepared = known();
    assert!(prepared == 1 || !lane.link.registers(), "{prepared}");
    let bufs = post_reads(&lane, 4);
    assert_eq!(known(), prepared);
    let (mut out, mut found) = ([Completed::default(); 8], 0);
    while found < 4 {
        lane.wait(1, None);
        found += lane.reap(&mut out).found;
    }
    bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
    drop(kept);
}

/// Posts reads of this many blocks. Their buffers, until they are back.
fn post_reads(lane: &UringLane, several: u32) -> Vec<Option<hw::Lent>> {
    (0..several).map(|token| post_read_at(lane, token.into(), hw::now())).collect()
}

/// Posts a read of the first block, by a caller whose clock says `now`.
pub(super) fn post_read_at(lane: &UringLane, token: u64, now: Nanos) -> Option<hw::Lent> {
    let bytes = lane.link.target().facts().lba_bytes;
    let buf = Some(lane.link.pool().alloc(bytes as usize).unwrap().lend());
    let addr = buf.as_ref().unwrap().addr();
    let part = Part { op: Op::Read, fua: false, nsid: nvme::Nsid(1), lba: 0, blocks: 1, addr, bytes, buf: &buf, keep: false };
    assert!(lane.lock().post(&part, Token(token), now));
    buf
}

/// The caller's clock may be behind or ahead: a request is late by what is seen of it from look to look, and that once.
#[test]
fn requests_time_out_by_poller_clock() {
    let Some((lane, _wake, _file)) = lane(64, false) else { return };
    let (second, timeout) = (Nanos::from_secs(1), Nanos::from_secs(10));
    let late_at = |seconds: u64| lane.try_cancel(Nanos(seconds * second.0), timeout);
    assert_eq!(late_at(100), 0, "nothing is out");
    // Behind, ahead, and in between the looks: as it was posted.
    let posted = [0, 5_000, 101].map(|seconds| post_read_at(&lane, seconds, Nanos(seconds * second.0)));
    assert_eq!(late_at(102), 0, "they have been out for two seconds at most");
    assert_eq!(late_at(111), 1, "the one whose clock is believed");
    assert_eq!(late_at(112), 2, "the others count from when they were first seen");
    assert_eq!(late_at(10_000), 0, "each is cancelled once");
    let (mut out, mut found) = ([Completed::default(); 8], 0);
    while found < posted.len() as u32 {
        lane.wait(1, None);
        found += lane.reap(&mut out).found;
    }
    posted.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
}

/// Whatever else is out, a nap whose caller can go on is over. It hangs where that is not so.
#[test]
fn naps_end_with_needed_completions() {
    let Some((lane, _wake, _file)) = lane(64, true) else { return };
    never_completes(&lane, 40);
    let mut out = [Completed::default(); 64];
    for several in [2, 3, 8] {
        let bufs = post_reads(&lane, several);
        lane.nap(several, None);
        assert_eq!(lane.reap(&mut out).found, several);
        bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
    }
}

/// Reads a block, so often, and sleeps for all of them: one system call each time.
#[test]
fn multi_completion_sleep_is_one_call() {
    let Some((lane, wake, _file)) = lane(64, true) else { return };
    let mut out = [Completed::default(); 64];
    for round in 0..20u32 {
        let several = 1 + round % 16;
        let bufs = post_reads(&lane, several);
        if round == 7 {
            // A bell in between is heard, and costs a call.
            rings(&wake);
            lane.wait(several, None);
        }
        let (before, mut found) = (lane.enters(), 0);
        while found < several {
            assert!(lane.wait(several - found, None) || found < several);
            found += lane.reap(&mut out).found;
        }
        let calls = lane.enters() - before;
        assert!(calls <= 2 || round == 7 || round == 8, "round {round}: {calls} calls for {several}");
        assert_eq!(lane.in_flight(), 0);
        bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
    }
}

/// Through the page cache the kernel has one Flush at a time: of two, the one that is told of a failed write-back may be taken last.
#[test]
fn cached_flushes_go_one_by_one() {
    let Some((lane, _wake, _file)) = lane_on("buffered=yes&lba=4096", 64, true) else { return };
    let flush = Part { op: Op::Flush, fua: false, nsid: nvme::Nsid(1), lba: 0, blocks: 0, addr: 0, bytes: 0, buf: &None, keep: false };
    let mut posting = lane.lock();
    (0..4).for_each(|token| assert!(posting.post_other(&flush, Token(token), hw::now())));
    posting.commit();
    drop(posting);
    let (mut out, mut found) = ([Completed::default(); 8], 0);
    for left in (0..4).rev() {
        assert_eq!(lane.state().waiting.len(), left);
        while found + (left as u32) < 4 {
            lane.wait(1, None);
            found += lane.reap(&mut out[..1]).found;
        }
    }
    assert!(lane.state().durable.is_none());
}
