//! Every interleaving of a write that completes with a Flush in another queue (`--cfg loom`).

use sync::atomic::AtomicBool;
use sync::atomic::Ordering::{Acquire, Release};
use sync::model::check;
use sync::{Arc, thread};

use super::flush::{Snapshot, WriteMarks};
use super::{PathId, PathSet};

/// As it is, or in one of the ways that do not work.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Right,
    /// The request completes first and is counted then.
    TellFirst,
    /// What a Flush covered is read when it has succeeded, not when it was sent.
    CountLate,
}

/// One queue completes a write and tells its caller. Another flushes: a write that had completed before the Flush was
/// sent is covered by it, and one that completed later still needs one.
fn a_write_and_a_flush(how: How) {
    check(move || {
        let marks = WriteMarks::new(2, 1);
        // Not of interest here: what was written before.
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
        // The Flush is under way; the write may complete meanwhile.
        if how == How::CountLate {
            marks.uncovered(&mut snapshot);
        }
        if !need.is_empty() || how == How::CountLate {
            marks.flushed(PathId(0), &snapshot);
        }
        writer.join().unwrap();
        let covered = sent_with.get(1) == Some(&1);
        let open = marks.uncovered(&mut snapshot) == PathSet::of(PathId(0));
        assert_eq!(open, !covered, "a write that completed after the Flush was sent counts as flushed");
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

/// A controller loses its cache after a write has completed in it, and comes back. The writer's queue counts the write as late as
/// it likes, though before its caller is told; a caller that is told and then flushes may not hear that all is well. `blind`: writes are
/// counted as of the losses that there are, not of those that the writer knew of.
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
        // The path is up again: this queue is told, flushes what it has to, and all succeeds.
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
