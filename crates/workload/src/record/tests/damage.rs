//! Files that are cut off, altered, or something else: an error each, and no panic.

use super::*;

#[test]
fn other_files_are_told_from_recordings() {
    assert_eq!(Trace::parse(b"[global]\nrw=randread\n".to_vec()).unwrap_err(), TraceError::Foreign);
    assert_eq!(Trace::parse(Vec::new()).unwrap_err(), TraceError::Foreign);
    let mut later = write(&header(1, 1, 0), &[Vec::new()]);
    later[8] = 9;
    assert_eq!(Trace::parse(later).unwrap_err(), TraceError::Version { found: 9, known: 1 });
}

#[test]
fn a_recording_that_contradicts_itself_is_malformed() {
    let whole = Submission { len: 512, ..submission() };
    let cases = [
        (Submission { target: 2, ..whole }, "a target that the thread does not have"),
        (Submission { offset: DEVICE, ..whole }, "beyond the end"),
        (Submission { offset: 1, ..whole }, "whole blocks"),
        (Submission { len: 0, ..whole }, "whole blocks"),
        (Submission { len: 2 << 20, ..whole }, "longest"),
        (Submission { cause: Cause::After(7), ..whole }, "no earlier submission"),
    ];
    for (submission, expected) in cases {
        let error = Trace::parse(write(&header(1, 4, 0), &[vec![submission]])).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("at byte"), "{error}");
    }
    let mut stranger = header(1, 4, 0);
    stranger.threads[0].targets = vec![5];
    assert!(Trace::parse(write(&stranger, &[Vec::new()])).unwrap_err().to_string().contains("uses a device"));
    for (stages, missing) in [([1, 1], "stage 1, and none of stage 0"), ([0, u32::MAX], "stage 4294967295, and none of stage 1")] {
        let mut gap = header(2, 4, 0);
        (gap.threads[0].stage, gap.threads[1].stage) = (stages[0], stages[1]);
        let error = Trace::parse(write(&gap, &[Vec::new(), Vec::new()])).unwrap_err().to_string();
        assert!(error.contains(missing), "{error}");
    }
    let mut slow = header(1, 4, 0);
    let dice = ServiceTimes { tail_ppm: 1_000_001, ..ServiceTimes::default() };
    slow.devices[0].timing = Some(Timing { write: dice, ..Timing::default() });
    assert!(Trace::parse(write(&slow, &[Vec::new()])).unwrap_err().to_string().contains("1000001 of a million"));
}

#[test]
fn nothing_follows_the_end() {
    let mut long = write(&header(1, 4, 0), &[vec![submission()]]);
    let end = long.len();
    long.extend(*b"more");
    let error = Trace::parse(long).unwrap_err();
    assert_eq!(error, TraceError::Malformed { at: end as u64, what: "4 bytes after the end".into() });
}

fn submission() -> Submission {
    let (cause, service) = (Cause::Start, Service::default());
    Submission { op: Op::Read, target: 0, offset: 0, len: 512, cause, wait: 0, think: Nanos(0), ends_batch: true, service }
}

/// A file of two threads, and how it reads.
fn file() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any_thread(), 2).prop_map(|threads| write(&header(2, 8, 0), &threads))
}

proptest! {
    #[test]
    fn a_recording_that_is_cut_off_says_so(bytes in file(), keep in any::<prop::sample::Index>()) {
        let keep = keep.index(bytes.len());
        let error = Trace::parse(bytes[..keep].to_vec()).unwrap_err();
        prop_assert_eq!(error, if keep == 0 { TraceError::Foreign } else { TraceError::CutOff { at: keep as u64 } });
    }

    #[test]
    fn a_bit_that_fell_over_is_noticed(mut bytes in file(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(Trace::parse(bytes).is_err());
    }

    /// With checksums put right, so that what lies behind them is reached: read as something, or refused.
    #[test]
    fn damage_behind_right_checksums_does_no_harm(
        bytes in file(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
    ) {
        let mut bytes = bytes;
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        repair(&mut bytes);
        if let Ok(trace) = Trace::parse(bytes) {
            let trace = Arc::new(trace);
            for thread in 0..trace.header().threads.len() {
                let told = trace.submissions(thread).count() as u64;
                prop_assert_eq!(Some(&told), trace.end().submissions.get(thread));
                // Beyond this, what is replayed would be the damage's own size.
                if trace.header().threads[thread].depth < 1_000 {
                    prop_assert_eq!(replayed::run(&trace, thread, Nanos(1_000)).order.len() as u64, told);
                }
            }
        }
    }
}

/// Makes the checksums fit, as far as there are blocks.
fn repair(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(|w| u32::from_le_bytes(w.try_into().unwrap()) as usize);
    let Some(end) = word(bytes, 12).map(|len| len.saturating_add(20)).filter(|end| *end <= bytes.len()) else { return };
    let sum = crc32c::crc32c(&bytes[20..end]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    let mut at = end;
    while let Some(next) = word(bytes, at + 12).map(|len| len.saturating_add(at + 20)).filter(|next| *next <= bytes.len()) {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 16]), &bytes[at + 20..next]);
        bytes[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
        at = next;
    }
}
