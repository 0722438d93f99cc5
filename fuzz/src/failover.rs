//! The failover of one software queue, under events that controllers of any kind bring about.

use std::collections::BTreeMap;

use driver::multipath::{
    Action, CompletionOutcome, Failover, FailoverConfig, PathId, PathTraits, RequestId, Submitted,
    WriteMarks,
};
use nvme::{AnaState, Status};
use units::{Nanos, Op};

use crate::source::Source;

const PATHS: usize = 3;

/// The host around it.
struct World {
    failover: Failover,
    marks: WriteMarks,
    now: Nanos,
    /// Commands on their way, and those that ended their requests.
    out: Vec<(RequestId, PathId)>,
    stale: Vec<(RequestId, PathId)>,
    /// How often each request has ended.
    ended: BTreeMap<u64, u32>,
}

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let how = source.u8();
    let seconds = |n| Nanos::from_secs(n);
    let config = FailoverConfig {
        no_path_timeout: seconds(u64::from(how & 3)),
        no_path_limit: if how & 4 == 0 { usize::MAX } else { 3 },
        retries: how >> 3 & 3,
        held_timeout: if how & 0x20 == 0 { Nanos::MAX } else { seconds(2) },
        unsafe_fast_failover: how & 0x40 != 0,
    };
    let traits = PathTraits {
        quiesce_after: (how & 0x80 == 0).then_some(seconds(1)),
        ana_transition: seconds(2),
        volatile_cache: source.u8() & 1 == 0,
    };
    let marks = WriteMarks::new(1, PATHS);
    let failover = Failover::new(config, &[traits; PATHS], &marks, 0, 4).expect("three paths");
    let mut world = World {
        failover,
        marks,
        now: seconds(1),
        out: Vec::new(),
        stale: Vec::new(),
        ended: BTreeMap::new(),
    };
    world.all_up();
    for token in 0..400 {
        if source.is_over() {
            break;
        }
        world.event(token, &mut source);
        world.carry_out();
    }
    world.come_to_an_end();
}

impl World {
    fn event(&mut self, token: u64, source: &mut Source) {
        let (what, path) = (source.u8(), PathId(source.u8() % (PATHS as u8 + 1)));
        let state = AnaState(path.0 ^ what >> 4);
        match what & 15 {
            0..3 => self.submit(
                token,
                [Op::Read, Op::Write, Op::Flush, Op::WriteZeroes][usize::from(what >> 4 & 3)],
            ),
            3..6 if !self.out.is_empty() => {
                let (request, path) = self.out.swap_remove(usize::from(path.0) % self.out.len());
                let status = [Status::SUCCESS, Status::HOST_PATHING_ERROR, Status::ABORTED_BY_HOST];
                let status =
                    status.get(usize::from(what >> 4)).copied().unwrap_or(Status(source.u16()));
                self.answer(request, path, status);
            }
            6 if !self.stale.is_empty() => {
                let (request, path) = self.stale[usize::from(path.0) % self.stale.len()];
                let again = self.failover.ended(self.now, request, path, Status(source.u16()));
                assert_eq!(again, CompletionOutcome::Stale, "an answer to a request that is over");
            }
            7 => self.failover.path_lost(self.now, path),
            8 => self.failover.path_resetting(self.now, path),
            9 => self.stopped(path),
            10 => {
                self.stopped(path);
                self.failover.path_up(self.now, path, state);
            }
            11 => self.failover.ana_changed(self.now, path, state),
            12 => self.failover.size_fits(self.now, path, what >> 4 & 1 == 0),
            13 => self.marks.cache_lost(path),
            _ => self.pass(Nanos(source.any_size() % 5_000_000_000)),
        }
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.ended.insert(token, 0);
        match self.failover.submit(self.now, token, op, |among| among.first().unwrap_or(PathId(0)))
        {
            Submitted::Send { request, path } => self.out.push((request, path)),
            Submitted::Queued => {}
            Submitted::Refused(_) => self.end(token),
        }
    }

    fn answer(&mut self, request: RequestId, path: PathId, status: Status) {
        if let CompletionOutcome::Done { token, .. } =
            self.failover.ended(self.now, request, path, status)
        {
            self.stale.push((request, path));
            self.end(token);
        }
    }

    fn end(&mut self, token: u64) {
        let times = self.ended.get_mut(&token).expect("a request of ours");
        *times += 1;
        assert_eq!(*times, 1, "request {token} ends twice");
    }

    /// Nothing is inside a path's controller any more: nothing of it is answered from here on.
    fn stopped(&mut self, path: PathId) {
        self.out.retain(|&(_, on)| on != path);
        self.failover.quiesced(self.now, path);
    }

    fn pass(&mut self, by: Nanos) {
        let until = self.now + by;
        for _ in 0..1000 {
            let next = self.failover.next_deadline();
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            self.failover.tick(self.now);
            self.carry_out();
        }
        panic!("deadlines that stay");
    }

    fn carry_out(&mut self) {
        for _ in 0..10_000 {
            match self.failover.poll(self.now, |_, among| among.first().unwrap_or(PathId(0))) {
                None => return,
                Some(Action::Send { request, path, .. }) => self.out.push((request, path)),
                Some(Action::Complete { token, .. } | Action::Fail { token, .. }) => self.end(token),
                Some(Action::ReadAna(_) | Action::Reset(_)) => {}
            }
        }
        panic!("it always has something to do");
    }

    fn all_up(&mut self) {
        for path in (0..PATHS as u8).map(PathId) {
            self.stopped(path);
            self.failover.path_up(self.now, path, AnaState::OPTIMIZED);
            self.failover.size_fits(self.now, path, true);
        }
        self.carry_out();
    }

    /// Every path is well: then every request ends.
    fn come_to_an_end(&mut self) {
        self.all_up();
        for _ in 0..10_000 {
            self.pass(Nanos::from_millis(100));
            match self.out.pop() {
                Some((request, path)) => self.answer(request, path, Status::SUCCESS),
                None if self.failover.is_idle() => break,
                None => {}
            }
            self.carry_out();
        }
        if let Some((token, _)) = self.ended.iter().find(|&(_, &times)| times == 0) {
            panic!("request {token} never ends");
        }
        assert!(self.failover.is_idle());
    }
}
