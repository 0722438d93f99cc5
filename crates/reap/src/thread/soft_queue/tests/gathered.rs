//! Files that one thread drives together in `posted`, over a ring that they have in common.

use std::time::Duration;

use super::*;
use crate::Instant;

type Files = Vec<tempfile::NamedTempFile>;

/// A group over files of their own. `None`: this kernel has no io_uring for them.
fn group(several: usize, mode: Mode) -> Option<(Group, Files)> {
    let options = OpenOptions::new().mode(mode).timeout(Duration::from_secs(600));
    let opened = (0..several).map(|_| owned::in_the_kernel(&options));
    let (queues, files): (Vec<_>, Files) = opened.map_while(|opened| opened.map(|(device, file)| (device.queue().unwrap(), file))).unzip();
    (queues.len() == several).then(|| (Group::new(queues).unwrap(), files))
}

fn lane(queue: &Queue) -> &SoftQueue {
    &queue.lanes()[0]
}

fn posts_in_common(lane: &SoftQueue) -> bool {
    lane.queue.lane.uring().unwrap().posts_in_common()
}

/// Submits reads, by a caller that `waits` next or not.
fn submit_and(waits: bool, queue: &Queue, reads: u64) {
    let ns = queue.namespaces()[0];
    let reads = (0..reads).map(|lba| Request::read(&ns, lba, queue.buffer(4096).unwrap()));
    lane(queue).submit(now(), waits, reads).map_err(|(why, _)| why).unwrap();
}

fn submit(queue: &Queue, reads: u64) {
    submit_and(false, queue, reads);
}

/// Has every queue do reads until the mode that was asked for is in force. A mode that looks as it submits may leave nothing to wait for.
fn adopt(group: &Group) {
    let all = group.queues().len();
    loop {
        group.queues().iter().for_each(|queue| submit(queue, 1));
        assert_eq!(group.wait(all, limit()).unwrap(), all);
        reap(group, all);
        if group.queues().iter().all(|queue| lane(queue).soft.mode.settled()) {
            return;
        }
    }
}

/// What is waited for comes sooner. The limit is for the failure.
fn limit() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Reaps so many, all of which have read what is in the files.
fn reap(group: &Group, several: usize) {
    let mut done = Vec::with_capacity(64);
    group.queues().iter().for_each(|queue| _ = queue.reap(&mut done));
    assert_eq!(done.len(), several);
    assert!(done.iter().all(|done| done.result.is_ok() && done.buf.as_ref().unwrap().iter().all(|&byte| byte == 7)));
}

/// What is out in the ring in common is found whatever mode comes next, one queue's or all queues', and by a wait for one queue alone.
#[test]
fn what_is_out_in_the_ring_in_common_is_found_in_every_mode_that_follows() {
    let Some((group, _files)) = group(3, Mode::POSTED) else { return };
    let queues = group.queues();
    // What is held back is announced as the mode changes, and completes after the thread that follows has begun to look.
    for (mode, held) in Mode::ALL.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        for changed in [1, 3] {
            queues.iter().for_each(|queue| queue.set_mode(Mode::POSTED));
            adopt(&group);
            assert!(queues.iter().all(|queue| posts_in_common(lane(queue))));
            queues.iter().for_each(|queue| submit_and(held, queue, 2));
            queues[..changed].iter().for_each(|queue| queue.set_mode(mode));
            assert_eq!(queues[0].wait(2, limit()).unwrap(), 2, "{mode}, {changed}");
            assert_eq!(group.wait(6, limit()).unwrap(), 6, "{mode}, {changed}");
            reap(&group, 6);
            adopt(&group);
            let fits = |queue: &Queue| posts_in_common(lane(queue)) == lane(queue).may_gather();
            assert!(queues.iter().all(fits), "{mode}, {changed}");
        }
    }
}

/// Where something of a queue may be elsewhere, a sleep in the ring in common would miss it.
#[test]
fn a_sleep_in_common_is_for_queues_of_which_all_is_there() {
    let Some((group, _files)) = group(2, Mode::INTERRUPT) else { return };
    let lanes = || group.queues().iter().map(lane);
    assert!(lanes().all(|lane| !lane.may_gather() && !posts_in_common(lane) && lane.sleeps_in_common().is_none()));
    // To rings of their own. The first wait of a queue that is in `posted` gathers them.
    adopt(&group);
    group.queues().iter().for_each(|queue| queue.set_mode(Mode::POSTED));
    adopt(&group);
    assert_eq!(group.wait(0, limit()).unwrap(), 0);
    assert!(lanes().all(|lane| lane.may_gather() && posts_in_common(lane)));
    let rings: Vec<_> = lanes().map(Driven::sleeps_in_common).collect();
    assert!(rings[0].is_some_and(|ring| ring > 1) && rings[0] == rings[1], "{rings:?}");
    let first = lanes().next().unwrap();
    first.looker.borrow_mut().waiter.others_look = true;
    assert_eq!(first.sleeps_in_common(), None, "another thread takes what is on its own ring");
    first.looker.borrow_mut().waiter.others_look = false;
    assert_eq!(first.sleeps_in_common(), rings[0]);
}

/// What is held back goes with the sleep in common, of whichever queue; and where the thread sleeps elsewhere, before that.
#[test]
fn what_is_held_back_for_a_sleep_in_common_is_announced_there_or_before_another() {
    let Some((group, _files)) = group(3, Mode::POSTED) else { return };
    let queues = group.queues();
    adopt(&group);
    for elsewhere in [false, true] {
        queues.iter().for_each(|queue| submit_and(true, queue, 1));
        for queue in queues {
            assert!(matches!(lane(queue).plan(now(), Nanos::MAX), Plan::Sleep { .. }));
            assert!(lane(queue).uncommitted.get(), "a sleep in common announces it");
        }
        if elsewhere {
            queues.iter().for_each(|queue| lane(queue).announce());
        } else {
            lane(&queues[1]).block_in_common(None);
            let told: Vec<_> = queues.iter().map(|queue| lane(queue).was_told_in_common()).collect();
            assert!(told.contains(&true), "it has ended with something");
        }
        assert!(queues.iter().all(|queue| !lane(queue).uncommitted.get()), "{elsewhere}");
        assert_eq!(group.wait(3, limit()).unwrap(), 3);
        reap(&group, 3);
        assert!(queues.iter().all(|queue| !lane(queue).was_told_in_common()), "nothing is left");
    }
}

/// A file by itself has its own ring, in a group or out of one.
#[test]
fn one_file_has_nothing_in_common_with_others() {
    let Some((alone, _files)) = group(1, Mode::POSTED) else { return };
    adopt(&alone);
    assert!(!posts_in_common(lane(&alone.queues()[0])));
}

/// A group that is over leaves each file to itself: who takes it next sleeps in a ring of its own.
#[test]
fn a_group_that_is_over_has_no_ring_in_common() {
    let Some((group, _files)) = group(2, Mode::POSTED) else { return };
    adopt(&group);
    let hardware: Vec<_> = group.queues().iter().map(|queue| lane(queue).queue.clone()).collect();
    assert!(hardware.iter().all(|queue| queue.lane.uring().unwrap().posts_in_common()));
    drop(group);
    assert!(hardware.iter().all(|queue| !queue.lane.uring().unwrap().posts_in_common()));
}
