use std::thread;
use std::time::Duration;

use nvme::QueueId;

use super::super::tests::{lane, post_read_at, rings};
use super::*;
use crate::wake::Wake;

/// A lane, what rings its bell, and its file.
type Own = (UringLane, Arc<Wake>, tempfile::NamedTempFile);

/// Lanes of files of their own, that are driven together. `None`: this kernel has no io_uring for them.
fn lanes(several: usize, owned: bool) -> Option<Vec<Own>> {
    let lanes: Vec<_> = (0..several).map_while(|_| lane(64, owned)).collect();
    let needs = lanes.first()?.0.needs()?;
    let common = Common::new(needs).unwrap();
    for (lane, ..) in &lanes {
        assert!(lane.join(&common).unwrap());
        assert!(!lane.join(&common).unwrap(), "one seat is enough");
        lane.gather(true);
        lane.post_in_common(true);
    }
    assert!(common.begin() && !common.begin(), "it serves one group at a time");
    Some(lanes)
}

fn enters(lanes: &[Own]) -> u64 {
    lanes.iter().map(|(lane, ..)| lane.enters()).sum()
}

/// Takes what a lane has, until it has had so many.
fn take(lane: &UringLane, several: usize) {
    let mut found = 0;
    while found < several {
        // What was left at the seat no sleep tells of.
        match (lane.has_come(), lane.is_out_in_common()) {
            (true, _) => {}
            (false, true) => lane.wait_in_common(None),
            (false, false) => _ = lane.wait(1, None),
        }
        let mut out = [Completed::default(); 16];
        let reaped = lane.reap(&mut out).found as usize;
        assert!(out[..reaped].iter().all(|done| done.status.is_success()), "{:?}", &out[..reaped]);
        found += reaped;
    }
    assert_eq!(found, several);
}

#[test]
fn one_system_call_submits_for_all_files_and_waits_for_all() {
    for owned in [true, false] {
        let Some(lanes) = lanes(5, owned) else { return };
        for round in 0..20 {
            let before = enters(&lanes);
            let bufs: Vec<_> =
                lanes.iter().flat_map(|(lane, ..)| (0..4).map(|token| post_read_at(lane, token, hw::now())).collect::<Vec<_>>()).collect();
            assert_eq!(enters(&lanes), before, "nothing is announced before the sleep");
            lanes[round % 5].0.wait_in_common(None);
            assert_eq!(enters(&lanes), before + 1, "owned: {owned}");
            assert!(lanes.iter().any(|(lane, ..)| lane.has_come()), "the sleep has ended with something");
            lanes.iter().for_each(|(lane, ..)| take(lane, 4));
            for buf in bufs.into_iter().flatten() {
                assert!(buf.take_back().iter().all(|&byte| byte == 7), "what was read is the file's");
            }
            assert!(lanes.iter().all(|(lane, ..)| lane.in_flight() == 0 && !lane.is_out_in_common() && !lane.hint()));
        }
    }
}

/// The law, as for the bell of a ring of its own: it hangs where that is not so.
#[test]
fn any_lanes_bell_ends_a_sleep_in_the_ring() {
    for owned in [true, false] {
        let Some(lanes) = lanes(3, owned) else { return };
        for round in 0..30usize {
            let (wake, late) = (lanes[round % 3].1.clone(), Duration::from_micros([0, 50, 2_000][round / 3 % 3]));
            let ringing = (round % 2 == 0).then(|| {
                let wake = wake.clone();
                thread::spawn(move || {
                    thread::sleep(late);
                    rings(&wake);
                })
            });
            if ringing.is_none() {
                rings(&wake);
            }
            lanes[round / 3 % 3].0.wait_in_common(None);
            ringing.into_iter().for_each(|ringing| ringing.join().unwrap());
            let mut out = [Completed::default(); 4];
            assert!(lanes.iter().all(|(lane, ..)| lane.reap(&mut out).found == 0), "bells are no completions");
        }
    }
}

fn signals(lane: &UringLane) -> u64 {
    lane.state().signal.drain()
}

/// A lane that is driven by itself again may be another thread's, which sleeps elsewhere.
#[test]
fn a_lane_that_posts_there_no_more_is_signalled_by_the_one_that_finds_its_completions() {
    for owned in [true, false] {
        let Some(lanes) = lanes(2, owned) else { return };
        let [(here, ..), (gone, ..)] = &lanes[..] else { unreachable!() };
        for leaves in [false, true] {
            let bufs = [post_read_at(here, 1, hw::now()), post_read_at(gone, 2, hw::now())];
            gone.gather(!leaves);
            gone.post_in_common(true);
            assert_eq!(gone.posts_in_common(), !leaves);
            // To its own ring, where it posts there no more.
            let own = post_read_at(gone, 3, hw::now());
            here.commit();
            while !gone.has_come() {
                here.wait_in_common(None);
            }
            assert_eq!(signals(gone) > 0, leaves, "owned: {owned}");
            assert_eq!(gone.sleeps_in_common().is_some(), !leaves);
            gone.commit();
            take(gone, 2);
            take(here, 1);
            bufs.into_iter().chain([own]).flatten().for_each(|buf| drop(buf.take_back()));
            gone.gather(true);
        }
    }
}

/// Its thread may be another than that of the lanes which are driven together, and sleeps while it finds what is theirs.
#[test]
fn a_lane_that_posts_there_no_more_signals_the_others() {
    let Some(lanes) = lanes(2, false) else { return };
    let [(here, ..), (gone, ..)] = &lanes[..] else { unreachable!() };
    for leaves in [false, true] {
        let bufs = [post_read_at(here, 1, hw::now()), post_read_at(gone, 2, hw::now())];
        here.commit();
        gone.gather(!leaves);
        gone.post_in_common(true);
        // A thread that goes to sleep enters the kernel, which brings what waits in its task.
        while here.seat.get().unwrap().ready() < 2 {
            thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(gone.reap(&mut [Completed::default(); 4]).found, 1);
        assert!(here.has_come());
        assert_eq!(signals(here) > 0, leaves);
        take(here, 1);
        bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
        gone.gather(true);
    }
}

#[test]
fn a_thread_that_is_none_of_them_signals_those_whose_completions_it_finds() {
    let Some(lanes) = lanes(2, false) else { return };
    let [(here, ..), (other, ..)] = &lanes[..] else { unreachable!() };
    let buf = post_read_at(here, 1, hw::now());
    let theirs = post_read_at(other, 2, hw::now());
    here.commit();
    while here.seat.get().unwrap().ready() < 2 {
        thread::sleep(Duration::from_micros(100));
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = Vec::with_capacity(4);
            while other.try_reap_more(4, &mut out).is_none() {}
            assert_eq!(out.len(), 1);
        });
    });
    assert!(here.has_come());
    assert!(signals(here) > 0);
    take(here, 1);
    [buf, theirs].into_iter().flatten().for_each(|buf| drop(buf.take_back()));
}

/// A request past its time-out is asked for on the ring where it is, and its buffer comes back with its own completion.
#[test]
fn what_is_late_is_cancelled_where_it_is() {
    for owned in [true, false] {
        let Some(lanes) = lanes(2, owned) else { return };
        let lane = &lanes[1].0;
        let bufs: Vec<_> = (0..8).map(|token| post_read_at(lane, token, hw::now())).collect();
        assert_eq!(lane.try_cancel(hw::now(), Nanos::ZERO), 8);
        assert_eq!(lane.try_cancel(hw::now(), Nanos::ZERO), 0, "each is asked for once");
        let mut found = 0;
        while found < 8 {
            // Where the ring has an owner, its next commit asks.
            lane.commit();
            if !lane.has_come() {
                lane.wait_in_common(None);
            }
            // Read, or cancelled: the kernel decides.
            found += lane.reap(&mut [Completed::default(); 16]).found;
        }
        assert!(lane.state().left_in_common.is_empty());
        bufs.into_iter().flatten().for_each(|buf| drop(buf.take_back()));
    }
}

#[test]
fn seats_are_given_back_and_files_let_go() {
    for owned in [true, false] {
        let Some(mut kept) = lanes(1, owned) else { return };
        let (first, ..) = kept.pop().unwrap();
        let common = first.common().unwrap().clone();
        for tags in 0..260 {
            // More lanes, one after the other, than there are seats.
            let wake = Wake::new().unwrap();
            let lane = UringLane::new(&first.link, QueueId(2), 1 + tags % 4, &wake, owned).unwrap();
            lane.join(&common).unwrap();
        }
        let Some((lane, _wake, file)) = lane(4, owned) else { return };
        lane.join(&common).unwrap();
        drop(lane);
        // A writer has the file to itself: nothing else holds it by now.
        let uri = format!("kernel:{}", file.path().display()).parse().unwrap();
        crate::link::KernelLink::open(&uri, 16 << 20).unwrap();
        let buf = post_read_at(&first, 1, hw::now());
        take(&first, 1);
        buf.into_iter().for_each(|buf| drop(buf.take_back()));
    }
}

#[test]
fn a_lane_has_one_seat_and_a_ring_takes_its_kind_alone() {
    let (Some(own), Some(any)) = (lanes(1, true), lanes(1, false)) else { return };
    let (own, any) = (&own[0].0, &any[0].0);
    let common = own.common().unwrap();
    assert!(common.fits(own.needs().unwrap()));
    assert_eq!(common.fits(any.needs().unwrap()), own.owner().is_none());
    assert!(!common.fits(Needs { big: true, ..own.needs().unwrap() }));
    assert!(any.join(common).unwrap_err().to_string().contains("other queues"));
}
