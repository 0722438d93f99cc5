//! A write that was acknowledged is never overwritten by an older one, over random schedules in
//! virtual time. The application has one write to each block open at a time, and writes again after
//! an error too. A lost controller executes what it has until its keep-alive has run out. A path is
//! connected again once the fence is over, as over NVMe/TCP.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::*;

const KEEP_ALIVE: Nanos = Nanos::from_millis(100);
const QUIESCE: Nanos = Nanos::from_millis(50);
const BLOCKS: usize = 2;

#[derive(Clone, Debug)]
enum Event {
    Write(usize),
    /// A controller executes a write, and answers, or does not yet.
    Execute(usize, usize, bool),
    Lose(usize),
    /// A lost controller executes a write.
    ExecuteLate(usize, usize),
    /// A lost controller is reset through another path.
    ResetByOther(usize),
    Up(usize),
    Pass(u64),
}

/// A write, by the number of its submission.
#[derive(Clone, Copy, Debug)]
struct Write {
    number: u64,
    block: usize,
}

#[derive(Default)]
struct PathState {
    /// When the fence of the lost association is over; `None`: up.
    fence: Option<Nanos>,
    in_flight: Vec<(RequestId, Write)>,
    /// Writes that lost controllers have, and until when these execute them.
    lost: Vec<(Nanos, Write)>,
}

struct World {
    now: Nanos,
    failover: Failover,
    paths: Vec<PathState>,
    writes: Vec<Write>,
    /// By block: whether a write is open, and the last that was acknowledged.
    open: [bool; BLOCKS],
    acknowledged: [u64; BLOCKS],
    violation: Option<String>,
}

impl World {
    /// `fence`: its length after a loss.
    fn new(paths: usize, fence: Nanos) -> World {
        let config = FailoverConfig {
            no_path_timeout: Nanos::from_millis(150),
            ..FailoverConfig::default()
        };
        let traits = PathTraits { quiesce_after: Some(fence), ..traits(false) };
        let marks = WriteMarks::new(1, paths);
        let mut failover = Failover::new(config, &vec![traits; paths], &marks, 0, 4).unwrap();
        (0..paths).for_each(|path| failover.path_up(MS, PathId(path as u8), AnaState::OPTIMIZED));
        World {
            now: MS,
            failover,
            paths: std::iter::repeat_with(PathState::default).take(paths).collect(),
            writes: Vec::new(),
            open: [false; BLOCKS],
            acknowledged: [0; BLOCKS],
            violation: None,
        }
    }

    fn execute(&mut self, Write { number, block }: Write) {
        let acknowledged = self.acknowledged[block];
        if number < acknowledged {
            self.violation.get_or_insert(format!(
                "write {acknowledged} was acknowledged, and is overwritten by write {number}"
            ));
        }
    }

    fn happen(&mut self, event: &Event, fence: Nanos) {
        let (paths, now) = (self.paths.len(), self.now);
        match *event {
            Event::Write(block) if !self.open[block] => {
                self.open[block] = true;
                let number = self.writes.len() as u64 + 1;
                let write = Write { number, block };
                self.writes.push(write);
                let choose =
                    |among: PathSet| among.iter().nth(number as usize % among.len()).unwrap();
                if let Submitted::Send { request, path } =
                    self.failover.submit(now, number, Op::Write, choose)
                {
                    self.paths[path.index()].in_flight.push((request, write));
                }
            }
            Event::Execute(path, n, answers) => {
                let in_flight = &mut self.paths[path % paths].in_flight;
                let Some(&(request, write)) = in_flight.get(n % in_flight.len().max(1)) else {
                    return;
                };
                if answers {
                    in_flight.retain(|(other, _)| *other != request);
                }
                self.execute(write);
                let path = PathId((path % paths) as u8);
                if answers
                    && let CompletionOutcome::Done { status, .. } =
                        self.failover.ended(now, request, path, Status::SUCCESS)
                {
                    assert!(status.is_success());
                    (self.open[write.block], self.acknowledged[write.block]) =
                        (false, write.number);
                }
            }
            Event::Lose(path) if self.paths[path % paths].fence.is_none() => {
                let state = &mut self.paths[path % paths];
                let until = now + KEEP_ALIVE + QUIESCE;
                state.fence = Some(now + fence);
                state.lost.extend(state.in_flight.drain(..).map(|(_, write)| (until, write)));
                self.failover.path_lost(now, PathId((path % paths) as u8));
            }
            Event::ExecuteLate(path, n) => {
                let lost = &mut self.paths[path % paths].lost;
                lost.retain(|(until, _)| *until > now);
                if !lost.is_empty() {
                    let (_, write) = lost.swap_remove(n % lost.len());
                    self.execute(write);
                }
            }
            Event::ResetByOther(path) if self.paths[path % paths].fence.is_some() && paths > 1 => {
                let state = &mut self.paths[path % paths];
                state.lost.clear();
                state.fence = Some(now);
                self.failover.quiesced(now, PathId((path % paths) as u8));
            }
            Event::Up(path) if self.paths[path % paths].fence.is_some_and(|over| over <= now) => {
                self.paths[path % paths].fence = None;
                self.failover.path_up(now, PathId((path % paths) as u8), AnaState::OPTIMIZED);
            }
            Event::Pass(millis) => {
                let until = now + Nanos::from_millis(millis);
                while self.failover.next_deadline() <= until {
                    self.now = self.now.max(self.failover.next_deadline());
                    self.failover.tick(self.now);
                    self.drain();
                }
                self.now = until;
            }
            _ => {}
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(action) = self.failover.poll(self.now, |_, among| first(among)) {
            match action {
                Action::Send { request, token, path } => {
                    let write = self.writes[token as usize - 1];
                    self.paths[path.index()].in_flight.push((request, write));
                }
                Action::Fail { token, .. } => {
                    self.open[self.writes[token as usize - 1].block] = false
                }
                Action::Complete { .. } | Action::ReadAna(_) | Action::Reset(_) => {}
            }
        }
    }
}

fn schedules() -> impl Strategy<Value = (usize, Vec<Event>)> {
    let (path, n) = (0usize..3, 0usize..9);
    let event = prop_oneof![
        6 => (0..BLOCKS).prop_map(Event::Write),
        6 => (path.clone(), n.clone(), prop::bool::weighted(0.8))
            .prop_map(|(path, n, answers)| Event::Execute(path, n, answers)),
        2 => path.clone().prop_map(Event::Lose),
        1 => (path.clone(), n).prop_map(|(path, n)| Event::ExecuteLate(path, n)),
        1 => path.clone().prop_map(Event::ResetByOther),
        4 => path.prop_map(Event::Up),
        4 => prop_oneof![9 => 0u64..5, 1 => 0u64..300].prop_map(Event::Pass),
    ];
    (1usize..4, prop::collection::vec(event, 1..150))
}

/// Plays a schedule. Returns the first violation as an error.
fn play((paths, events): &(usize, Vec<Event>), fence: Nanos) -> Result<(), String> {
    let mut world = World::new(*paths, fence);
    events.iter().for_each(|event| world.happen(event, fence));
    world.violation.map_or(Ok(()), Err)
}

fn fence() -> Nanos {
    PathTraits::quiesce_after(KEEP_ALIVE, false, QUIESCE).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn newer_acknowledged_writes_stand(schedule in schedules()) {
        play(&schedule, fence()).map_err(TestCaseError::fail)?;
    }
}

/// Mutant: a fence of no length, with one path and with several.
#[test]
fn fence_of_no_length_is_caught() {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let mut caught = [0; 4];
    for _ in 0..1000 {
        let schedule = schedules().new_tree(&mut runner).unwrap().current();
        assert_eq!(play(&schedule, fence()), Ok(()));
        caught[schedule.0] += u32::from(play(&schedule, Nanos::ZERO).is_err());
    }
    assert!(caught[1..].iter().all(|&caught| caught > 0), "{caught:?}");
}
