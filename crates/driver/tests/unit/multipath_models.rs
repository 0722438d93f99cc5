//! Every interleaving of a write that completes with a Flush in another queue (`--cfg loom`).

use sync::atomic::AtomicBool;
use sync::atomic::Ordering::{Acquire, Release};
use sync::model::check;
use sync::{Arc, thread};

use super::flush::{Snapshot, WriteMarks};
use super::{PathId, PathSet};

/// The order of the driver, or a mutant.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Right,
    /// The request completes before it is counted.
    TellFirst,
    /// The snapshot is taken when the Flush has succeeded, not when it was submitted.
    CountLate,
}

/// One queue completes a write. Another flushes: a write completed before the Flush was submitted
/// is covered, a later one still needs a Flush.
fn a_write_and_a_flush(how: How) {
    check(move || {
        let marks = WriteMarks::new(2, 1);
        // Earlier writes are not part of this model.
        marks.flushed(PathId(0), &vec![0, 0]);
        let told = Arc::new(AtomicBool::new(false));
        let writer = {
            let (marks, told) = (marks.clone(), told.clone());
            thread::spawn(move || {
                if how == How::TellFirst {
                    told.store(true, Release);
                }
                marks.note_write(1, PathId(0), 0);
                told.store(true, Release);
            })
        };
        let completed_before = told.load(Acquire);
        let mut snapshot = Snapshot::new();
        let need = marks.uncovered(&mut snapshot);
        assert!(!completed_before || need.contains(PathId(0)), "a completed write is not covered");
        let sent_with = snapshot.clone();
        // The Flush is in progress; the write may complete now.
        if how == How::CountLate {
            marks.uncovered(&mut snapshot);
        }
        if !need.is_empty() || how == How::CountLate {
            marks.flushed(PathId(0), &snapshot);
        }
        writer.join().unwrap();
        let covered = sent_with.get(1) == Some(&1);
        let open = marks.uncovered(&mut snapshot) == PathSet::of(PathId(0));
        assert_eq!(
            open, !covered,
            "a write that completed after the Flush was sent counts as flushed"
        );
    });
}

#[test]
fn write_is_covered_or_open() {
    a_write_and_a_flush(How::Right);
}

#[test]
#[should_panic(expected = "a completed write is not covered")]
fn write_counts_before_it_completes() {
    a_write_and_a_flush(How::TellFirst);
}

#[test]
#[should_panic(expected = "counts as flushed")]
fn flush_covers_earlier_writes() {
    a_write_and_a_flush(How::CountLate);
}

/// A controller loses its cache after a write has completed in it, and comes back. The writer's
/// queue may count the write at any time before its caller sees the completion. A caller that then
/// flushes must not get a success. `blind`: the write is counted with the current losses, not with
/// those that the queue knew.
fn a_write_and_a_lost_cache(blind: bool) {
    check(move || {
        let marks = WriteMarks::new(2, 1);
        marks.flushed(PathId(0), &vec![0, 0]);
        let told = Arc::new(AtomicBool::new(false));
        let writer = {
            let (marks, told) = (marks.clone(), told.clone());
            thread::spawn(move || {
                marks.note_write(1, PathId(0), if blind { marks.losses(PathId(0)) } else { 0 });
                told.store(true, Release);
            })
        };
        marks.cache_lost(PathId(0));
        // The path is up again: this queue sees that, flushes, and succeeds.
        let completed_before = told.load(Acquire);
        let mut snapshot = Snapshot::new();
        marks.uncovered(&mut snapshot);
        if marks.lost_writes().is_empty() {
            marks.flushed(PathId(0), &snapshot);
            assert!(!completed_before, "a write that is gone counts as flushed");
        }
        writer.join().unwrap();
        assert!(!marks.lost_writes().is_empty(), "a write that is gone counts as flushed");
    });
}

#[test]
fn lost_write_fails_every_flush() {
    a_write_and_a_lost_cache(false);
}

#[test]
#[should_panic(expected = "a write that is gone counts as flushed")]
fn writes_count_towards_their_cache() {
    a_write_and_a_lost_cache(true);
}
