use driver::Splitter;
use hw::DmaPool;
use nvme::{Nsid, Status};
use proptest::prelude::*;

use super::*;
use crate::error::IoError;
use crate::namespace::Namespace;

fn namespace(boundary: u32) -> Namespace {
    Namespace::new(Nsid(1), Splitter::new(9, 8 * 512, boundary).unwrap(), 1 << 20, 0)
}

/// A posted part.
#[derive(Clone, Copy, Debug)]
struct Posted {
    lba: u64,
    blocks: u32,
    addr: u64,
}

/// A pair with room for this many parts.
struct Room {
    tags: usize,
    posted: Vec<(Posted, Token)>,
}

impl Post for Room {
    fn post(&mut self, part: &Part<'_>, token: Token, _: Nanos) -> bool {
        let taken = self.posted.len() < self.tags;
        if taken {
            let Part { lba, blocks, addr, .. } = *part;
            self.posted.push((Posted { lba, blocks, addr }, token));
        }
        taken
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        self.post(part, token, now)
    }

    fn commit(&mut self) {}
}

struct Bench {
    pool: DmaPool,
    book: Requests,
}

impl Bench {
    fn new() -> Bench {
        Bench { pool: DmaPool::new(8 << 20).unwrap(), book: Requests::new(3) }
    }

    /// Enters a read, without posting it.
    fn enter(&mut self, boundary: u32, lba: u64, blocks: u32) {
        let buf = self.pool.alloc(blocks as usize * 512).unwrap();
        self.enter_request(Request::read(&namespace(boundary), lba, buf));
    }

    /// The same of any request.
    fn enter_request(&mut self, mut request: Request) {
        let (checked, checked_request) = request.check(&self.pool);
        checked.unwrap();
        request = checked_request;
        if let Err(request) = self.book.enter(request, Claim::Batch, Nanos(1)) {
            assert!(self.book.enter_growing(request, Claim::Batch, Nanos(1)).is_none());
        }
    }

    /// Posts the batch with `tags` tags. Returns the parts posted.
    fn post_entered(&mut self, tags: usize) -> Vec<(Posted, Token)> {
        let mut room = Room { tags, posted: Vec::new() };
        let posted = self.book.post_entered(&mut room, true, Nanos(1), 64);
        assert_eq!(posted as usize, room.posted.len());
        room.posted
    }

    /// A read that waits.
    fn read(&mut self, boundary: u32, lba: u64, blocks: u32) {
        self.book.begin();
        self.enter(boundary, lba, blocks);
        assert!(self.post_entered(0).is_empty());
    }

    /// Posts waiting parts with `tags` tags. Returns the parts posted.
    fn post(&mut self, tags: usize) -> Vec<(Posted, Token)> {
        let mut room = Room { tags, posted: Vec::new() };
        self.book.post_waiting(&mut room, Nanos(2), 64);
        room.posted
    }

    fn take_done(&mut self) -> Option<Completion> {
        let mut out = Vec::new();
        self.book.take_done(1, &mut out);
        out.pop()
    }

    fn end_part(&mut self, token: Token, status: Status) {
        let (completed, mut wakers) =
            (Completed { token: token.0, status, ..Completed::default() }, Vec::new());
        self.book.complete(&[completed], Nanos(5), &mut wakers);
        assert!(wakers.is_empty());
    }
}

proptest! {
    #[test]
    fn parts_cover_the_request_once(lba in 0u64..1000, blocks in 1u32..200, boundary in 0u32..40, tags in 1usize..6, retry in any::<bool>()) {
        let mut bench = Bench::new();
        bench.read(boundary, lba, blocks);
        let mut covered = Vec::new();
        let mut resets = u32::from(retry);
        while bench.book.open() > 0 {
            let posted = bench.post(tags);
            prop_assert!(!posted.is_empty());
            for (part, token) in posted {
                prop_assert_eq!(token.soft(), 3);
                if resets > 0 {
                    resets -= 1;
                    bench.end_part(token, REQUEUED);
                    continue;
                }
                covered.extend(part.lba..part.lba + u64::from(part.blocks));
                bench.end_part(token, Status::SUCCESS);
            }
        }
        covered.sort_unstable();
        prop_assert_eq!(covered, (lba..lba + u64::from(blocks)).collect::<Vec<_>>());
        let done = bench.take_done().unwrap();
        prop_assert_eq!(done.result, Ok(()));
        prop_assert!(bench.take_done().is_none());
    }
}

proptest! {
    /// Requests without data, through resets: every block once, and each part of a Deallocate at
    /// its own range.
    #[test]
    fn dataless_parts_cover_the_request(deallocate in any::<bool>(), lba in 0u64..1000, blocks in 1u64..4000, tags in 1usize..6, whole in any::<bool>(), resets in 0usize..3) {
        let mut bench = Bench::new();
        let splitter = namespace(100).splitter().with_dataless(Some(64), Some(256));
        let ns = Namespace::new(Nsid(1), splitter, 1 << 20, 0);
        let (make, most) = if deallocate { (Request::deallocate as fn(&Namespace, u64, u64) -> Request, 256) } else { (Request::write_zeroes as _, 64) };
        bench.book.begin();
        bench.enter_request(make(&ns, lba, blocks));
        let (mut posted, mut covered, mut resets, mut base) = (bench.post_entered(if whole { 64 } else { 0 }), Vec::new(), resets, None);
        while bench.book.open() > 0 {
            if posted.is_empty() {
                posted = bench.post(tags);
                prop_assert!(!posted.is_empty());
            }
            for (part, token) in std::mem::take(&mut posted) {
                let index = (part.lba - lba) / most;
                prop_assert_eq!(u64::from(part.blocks), most.min(blocks - index * most));
                if deallocate {
                    let first = part.addr - 16 * index;
                    prop_assert_eq!(*base.get_or_insert(first), first);
                }
                if resets > 0 {
                    resets -= 1;
                    bench.end_part(token, REQUEUED);
                    continue;
                }
                covered.extend(part.lba..part.lba + u64::from(part.blocks));
                bench.end_part(token, Status::SUCCESS);
            }
        }
        covered.sort_unstable();
        prop_assert_eq!(covered, (lba..lba + blocks).collect::<Vec<_>>());
        let done = bench.take_done().unwrap();
        prop_assert_eq!(done.result, Ok(()));
        prop_assert_eq!(done.buf.map(|list| list.addr()), base);
    }
}

#[test]
fn lost_range_lists_are_leaked() {
    let mut bench = Bench::new();
    let ns =
        Namespace::new(Nsid(1), namespace(0).splitter().with_dataless(None, Some(256)), 1 << 20, 0);
    bench.book.begin();
    bench.enter_request(Request::deallocate(&ns, 0, 8));
    let leaked = bench.pool.leaked();
    let posted = bench.post_entered(1);
    bench.end_part(posted[0].1, LOST);
    let done = bench.take_done().unwrap();
    assert_eq!(
        (done.result, done.buf.is_none(), bench.pool.leaked() - leaked),
        (Err(IoError::DeviceLost), true, 512)
    );
}

#[test]
fn first_error_stops_the_request() {
    let mut bench = Bench::new();
    bench.read(0, 0, 64);
    let posted = bench.post(3);
    bench.end_part(posted[1].1, Status::LBA_OUT_OF_RANGE);
    bench.end_part(posted[0].1, Status::INVALID_FIELD);
    bench.end_part(posted[2].1, Status::SUCCESS);
    assert!(bench.post(64).is_empty());
    assert_eq!(bench.take_done().unwrap().result, Err(IoError::Status(Status::LBA_OUT_OF_RANGE)));
    assert_eq!(bench.book.open(), 0);
}

#[test]
fn parts_are_retried_three_times() {
    let mut bench = Bench::new();
    bench.read(0, 0, 1);
    for _ in 0..4 {
        let posted = bench.post(1);
        bench.end_part(posted[0].1, REQUEUED);
    }
    assert_eq!(bench.take_done().unwrap().result, Err(IoError::TimedOut));
}

#[test]
fn requested_resets_fail_no_request() {
    let mut bench = Bench::new();
    bench.read(0, 0, 1);
    for _ in 0..20 {
        let posted = bench.post(1);
        bench.end_part(posted[0].1, REQUEUED_AS_ASKED);
    }
    let posted = bench.post(1);
    bench.end_part(posted[0].1, Status::SUCCESS);
    assert_eq!(bench.take_done().unwrap().result, Ok(()));
}

#[test]
fn lost_buffers_are_counted() {
    let mut bench = Bench::new();
    bench.read(0, 0, 8);
    let leaked = bench.pool.leaked();
    let posted = bench.post(8);
    bench.end_part(posted[0].1, LOST);
    let done = bench.take_done().unwrap();
    assert_eq!(
        (done.result, done.buf.is_none(), bench.pool.leaked() - leaked),
        (Err(IoError::DeviceLost), true, 4096)
    );
}

#[test]
fn orphaned_requests_keep_their_buffer() {
    let mut bench = Bench::new();
    bench.read(0, 0, 8);
    let posted = bench.post(8);
    bench.book.unclaim_all();
    assert_eq!(bench.book.open(), 1);
    let addr = posted[0].0.addr;
    assert!(bench.pool.check(addr, 4096).is_ok(), "the device may still write");
    bench.end_part(posted[0].1, Status::SUCCESS);
    assert_eq!((bench.book.open(), bench.pool.check(addr, 4096).is_err()), (0, true));
}

#[test]
fn lost_devices_fail_waiting_requests() {
    let mut bench = Bench::new();
    bench.read(0, 0, 64);
    let posted = bench.post(1);
    bench.book.fail_waiting(Failure::DeviceLost, Nanos(9));
    assert!(bench.take_done().is_none(), "one part is still out");
    bench.end_part(posted[0].1, Status::SUCCESS);
    assert_eq!(bench.take_done().unwrap().result, Err(IoError::DeviceLost));
}

proptest! {
    /// Batches are posted in the order in which they were entered, also if requests are split or
    /// wait, and if the table grows in between.
    #[test]
    fn batches_post_in_order(sizes in prop::collection::vec(1u32..20, 1..200), tags in 0usize..80) {
        let mut bench = Bench::new();
        bench.book.begin();
        for (n, blocks) in (0u64..).zip(&sizes) {
            bench.enter(0, n * 32, *blocks);
        }
        let mut posted = bench.post_entered(tags);
        let mut ended = 0;
        loop {
            let blocks = |parts: &[(Posted, Token)]| parts.iter().map(|(part, _)| part.blocks).sum::<u32>();
            prop_assert!(posted.is_sorted_by_key(|(part, _)| part.lba));
            ended += blocks(&posted);
            for (_, token) in posted.drain(..) {
                bench.end_part(token, Status::SUCCESS);
            }
            if ended == sizes.iter().sum::<u32>() {
                break;
            }
            posted = bench.post(tags.max(1));
            prop_assert!(!posted.is_empty());
        }
        prop_assert_eq!((bench.book.open(), bench.book.posted, bench.book.done() as usize), (0, 0, sizes.len()));
    }
}
