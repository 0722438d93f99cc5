//! Recordings: as they are, and with checksums that are right, so that what stands behind them is read.

use std::sync::Arc;

use units::Nanos;
use workload::Next;
use workload::record::{Replayer, Trace};

/// Submissions that are played again, at most.
const MOST: usize = 300;

pub fn run(data: &[u8]) {
    check(data.to_vec());
    let mut mended = data.to_vec();
    mend(&mut mended);
    if mended != data {
        check(mended);
    }
}

fn check(bytes: Vec<u8>) {
    let trace = match Trace::parse(bytes) {
        Ok(trace) => Arc::new(trace),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let threads = trace.header().threads.len();
    for thread in 0..threads {
        assert_eq!(trace.submissions(thread).count() as u64, trace.end().submissions[thread]);
    }
    for thread in 0..threads.min(4) {
        play(&trace, thread);
    }
    assert!(Replayer::new(trace, threads).is_none());
}

/// Submits a thread's submissions again. Each completes when it is waited for.
fn play(trace: &Arc<Trace>, thread: usize) {
    if trace.header().threads[thread].depth > 1024 {
        return;
    }
    let Some(mut replayer) = Replayer::new(Arc::clone(trace), thread) else { return };
    let (mut now, mut flying) = (Nanos(1_000), Vec::new());
    for _ in 0..MOST {
        match replayer.next(now) {
            Next::Issue(io) => {
                replayer.issued(&io, now);
                flying.push(io);
            }
            Next::Commit => replayer.committed(now),
            Next::Reap { min, .. } => {
                assert!(min >= 1 && min as usize <= flying.len(), "it waits for {min} of {}", flying.len());
                now = Nanos(now.0.saturating_add(5_000));
                flying.drain(..).for_each(|io| replayer.completed(io, now, Ok(())));
            }
            Next::Wait { until } => {
                assert!(until > now, "it waits until {until} at {now}");
                now = until;
            }
            Next::Done => return assert!(flying.is_empty()),
        }
    }
}

/// Puts the right checksum wherever the format has one (docs/record.md).
fn mend(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let put = |bytes: &mut [u8], at: usize, sum: u32| bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    let Some(text) = word(bytes, 12) else { return };
    let Some(sum) = bytes.get(20..20 + text).map(crc32c::crc32c) else { return };
    put(bytes, 16, sum);
    let mut at = 20 + text;
    while let Some(len) = word(bytes, at + 12) {
        let Some(payload) = bytes.get(at + 20..at + 20 + len) else { return };
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 16]), payload);
        put(bytes, at + 16, sum);
        at += 20 + len;
    }
}
