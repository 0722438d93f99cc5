//! Invariants of failover over random events. The executor and controllers know the true state; the
//! failover learns only what a host can know. For each invariant a mutant shows that a violation is
//! found.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::*;

const PATHS: usize = 3;
const KEEP_ALIVE: Nanos = Nanos::from_millis(100);
const QUIESCE: Nanos = Nanos::from_millis(50);

/// What the environment of a [`Failover`] does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutant {
    None,
    /// A lost path counts as stopped, without the wait.
    NoWait,
    /// ANA state changes are not reported.
    IgnoresAna,
    /// The cache of a controller counts as non-volatile.
    SkipsFlush,
    /// A power loss of a controller is not reported.
    IgnoresPowerLoss,
    /// A changed namespace size is not reported.
    IgnoresSize,
    /// A completion is reported twice.
    EndsTwice,
    /// Some retries are not sent.
    DropsRetries,
}

#[derive(Clone, Debug)]
enum Event {
    Submit(Op),
    /// The n-th command in flight completes.
    Answer(usize, usize, Answer),
    Lose(usize),
    /// A lost controller executes a write.
    LateWrite(usize, usize),
    /// The controller is reset, then stopped, then brought up.
    Reset(usize),
    Stopped(usize),
    Up(usize, AnaState),
    Ana(usize, AnaState),
    /// A lost controller loses its power, its commands and its cache.
    Power(usize),
    /// The controller reports the expected namespace size, or another.
    Size(usize, bool),
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Success,
    Path,
    Interrupted,
    Media,
    PermanentFailure,
}

/// A command in flight.
#[derive(Clone, Debug)]
struct InFlight {
    request: RequestId,
    token: u64,
    op: Op,
    /// The writes that a Flush makes durable: those completed when it was sent.
    covers: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Controller {
    in_flight: Vec<InFlight>,
    /// Up: it completes commands.
    live: bool,
    lost_at: Option<Nanos>,
    resetting: bool,
    ana: Option<AnaState>,
    /// The ANA state last reported to the host.
    reported: Option<AnaState>,
    /// Completed and unflushed writes, by token.
    cache: BTreeSet<u64>,
    /// Writes lost with its power; and whether it has lost power since it was up.
    gone: BTreeSet<u64>,
    lost_power: bool,
    /// It reports another namespace size.
    wrong_size: bool,
}

struct World {
    mutant: Mutant,
    now: Nanos,
    failover: Failover,
    controllers: Vec<Controller>,
    ops: BTreeMap<u64, Op>,
    ended: BTreeMap<u64, u32>,
    /// For each Flush in progress, the writes completed when it was submitted that are still
    /// cached, or were lost.
    covers: BTreeMap<u64, Vec<(usize, u64)>>,
    violation: Option<String>,
}

impl World {
    fn new(mutant: Mutant, fast: bool) -> World {
        let config = FailoverConfig {
            unsafe_fast_failover: fast,
            no_path_timeout: Nanos::from_secs(5),
            ..FailoverConfig::default()
        };
        let traits = PathTraits {
            quiesce_after: PathTraits::quiesce_after(KEEP_ALIVE, false, QUIESCE),
            ana_transition: Nanos::from_secs(2),
            volatile_cache: mutant != Mutant::SkipsFlush,
        };
        let failover =
            Failover::new(config, &[traits; PATHS], &WriteMarks::new(1, PATHS), 0, 4).unwrap();
        let mut world = World {
            mutant,
            now: Nanos::from_secs(1),
            failover,
            controllers: std::iter::repeat_with(Controller::default).take(PATHS).collect(),
            ops: BTreeMap::new(),
            ended: BTreeMap::new(),
            covers: BTreeMap::new(),
            violation: None,
        };
        (0..PATHS).for_each(|path| world.up(path, AnaState::OPTIMIZED));
        world
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Whether a controller can still execute its commands: until a reset, or until its keep-alive
    /// has expired.
    fn can_act(&self, path: usize) -> bool {
        let controller = &self.controllers[path];
        controller.live
            || controller.resetting
            || controller.lost_at.is_some_and(|at| self.now < at + KEEP_ALIVE + QUIESCE)
    }

    fn sent(&mut self, request: RequestId, token: u64, path: PathId) {
        let op = self.ops[&token];
        for other in 0..PATHS {
            if op.changes_blocks()
                && self.can_act(other)
                && self.controllers[other]
                    .in_flight
                    .iter()
                    .any(|in_flight| in_flight.token == token)
            {
                self.violate(format!(
                    "write {token} is sent on path {path} while path {other} may still execute it"
                ));
            }
        }
        let controller = &mut self.controllers[path.index()];
        if !controller.live || !controller.ana.is_some_and(AnaState::is_accessible) {
            // Only the reported state counts: the host cannot know more. `IgnoresAna` is reported,
            // and not passed on.
            let reported = controller.reported.is_some_and(AnaState::is_accessible);
            if !controller.live || !reported {
                self.violate(format!(
                    "request {token} is sent on path {path}, which cannot be used"
                ));
            }
        }
        if self.controllers[path.index()].wrong_size && op != Op::Flush {
            self.violate(format!(
                "request {token} is sent on path {path}, where the namespace has another size"
            ));
        }
        let controller = &mut self.controllers[path.index()];
        let covers = controller.cache.clone();
        controller.in_flight.push(InFlight { request, token, op, covers });
    }

    fn end(&mut self, token: u64, status: Option<Status>) {
        *self.ended.entry(token).or_default() += 1;
        if self.ended[&token] > 1 || !self.ops.contains_key(&token) {
            self.violate(format!("request {token} ends {} times", self.ended[&token]));
        }
        if self.ops[&token] == Op::Flush && status.is_some_and(Status::is_success) {
            let covers = self.covers.remove(&token).unwrap_or_default();
            if let Some((path, write)) =
                covers.iter().find(|(path, write)| self.controllers[*path].gone.contains(write))
            {
                self.violate(format!("Flush {token} succeeds and write {write} was lost with the power of path {path}"));
            }
            if let Some((path, write)) = covers
                .into_iter()
                .find(|(path, write)| self.controllers[*path].cache.contains(write))
            {
                self.violate(format!(
                    "Flush {token} succeeds and write {write} is in the cache of path {path}"
                ));
            }
        }
    }

    /// Carries out the actions of the failover until there are none.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            let choice = self.now.0 as usize;
            match self.failover.poll(self.now, |token, among| pick(among, choice + token as usize))
            {
                None => return,
                Some(Action::Send { token, .. })
                    if self.mutant == Mutant::DropsRetries && token % 3 == 0 => {}
                Some(Action::Send { request, token, path }) => self.sent(request, token, path),
                Some(Action::Complete { token, status }) => self.end(token, Some(status)),
                Some(Action::Fail { token, .. }) => self.end(token, None),
                Some(Action::ReadAna(path)) => {
                    if self.controllers[path.index()].live {
                        self.report_ana(path.index());
                    }
                }
                Some(Action::Reset(path)) => self.reset(path.index()),
            }
        }
        self.violate("the failover does not settle".into());
    }

    fn report_ana(&mut self, path: usize) {
        let Some(state) = self.controllers[path].ana else { return };
        self.controllers[path].reported = Some(state);
        if self.mutant != Mutant::IgnoresAna {
            self.failover.ana_changed(self.now, PathId(path as u8), state);
        }
    }

    fn up(&mut self, path: usize, ana: AnaState) {
        let Controller { cache, gone, lost_power, wrong_size, .. } =
            std::mem::take(&mut self.controllers[path]);
        self.controllers[path] = Controller {
            live: true,
            ana: Some(ana),
            reported: Some(ana),
            cache,
            gone,
            wrong_size,
            ..Controller::default()
        };
        if lost_power && self.mutant != Mutant::IgnoresPowerLoss {
            self.failover.marks.cache_lost(PathId(path as u8));
        }
        self.failover.path_up(self.now, PathId(path as u8), ana);
    }

    fn reset(&mut self, path: usize) {
        if !self.can_act(path) {
            // Its keep-alive has expired.
            self.controllers[path].in_flight.clear();
        }
        let controller = &mut self.controllers[path];
        (controller.live, controller.resetting, controller.lost_at) = (false, true, None);
        self.failover.path_resetting(self.now, PathId(path as u8));
    }

    fn happen(&mut self, event: &Event, token: u64) {
        match *event {
            Event::Submit(op) => self.submit(op, token),
            Event::Answer(path, n, answer) => self.answer(path, n, answer),
            Event::Lose(path)
                if self.controllers[path].live || self.controllers[path].resetting =>
            {
                let controller = &mut self.controllers[path];
                (controller.live, controller.resetting, controller.lost_at) =
                    (false, false, Some(self.now));
                let id = PathId(path as u8);
                self.failover.path_lost(self.now, id);
                if self.mutant == Mutant::NoWait {
                    self.failover.quiesced(self.now, id);
                }
            }
            Event::LateWrite(path, n)
                if self.controllers[path].lost_at.is_some() && self.can_act(path) =>
            {
                let writes = self.controllers[path]
                    .in_flight
                    .iter()
                    .filter(|in_flight| in_flight.op.changes_blocks());
                let done: Vec<_> = writes.map(|in_flight| in_flight.token).collect();
                if let Some(&token) = done.get(n % done.len().max(1))
                    && self.ended.contains_key(&token)
                {
                    self.violate(format!(
                        "write {token} is executed by a lost controller after it has ended"
                    ));
                }
            }
            Event::Reset(path)
                if self.controllers[path].live || self.controllers[path].lost_at.is_some() =>
            {
                self.reset(path)
            }
            Event::Stopped(path) if self.controllers[path].resetting => {
                self.controllers[path].resetting = false;
                self.controllers[path].in_flight.clear();
                self.failover.quiesced(self.now, PathId(path as u8));
            }
            Event::Up(path, ana) if self.controllers[path].is_stopped() => self.up(path, ana),
            Event::Ana(path, state) if self.controllers[path].live => {
                self.controllers[path].ana = Some(state);
                self.report_ana(path);
            }
            Event::Power(path) if self.controllers[path].lost_at.is_some() => {
                let controller = &mut self.controllers[path];
                controller.in_flight.clear();
                controller.gone.append(&mut controller.cache);
                controller.lost_power = true;
            }
            Event::Size(path, fits) => {
                self.controllers[path].wrong_size = !fits;
                if self.mutant != Mutant::IgnoresSize {
                    self.failover.size_fits(self.now, PathId(path as u8), fits);
                }
            }
            Event::Pass(millis) => self.pass(self.now + Nanos::from_millis(millis)),
            _ => {}
        }
        self.drain();
    }

    /// Advances the time, with a step at each deadline.
    fn pass(&mut self, until: Nanos) {
        for _ in 0..1_000 {
            let next = self.failover.next_deadline();
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            self.failover.tick(self.now);
            self.drain();
        }
        self.violate("a deadline does not pass".into());
    }

    fn submit(&mut self, op: Op, token: u64) {
        self.ops.insert(token, op);
        if op == Op::Flush {
            let caches = self.controllers.iter().enumerate();
            self.covers.insert(
                token,
                caches
                    .flat_map(|(path, c)| c.cache.union(&c.gone).map(move |&write| (path, write)))
                    .collect(),
            );
        }
        let choice = self.now.0 as usize;
        match self
            .failover
            .submit(self.now, token, op, |among| pick(among, choice + token as usize))
        {
            Submitted::Send { request, path } => self.sent(request, token, path),
            Submitted::Queued => {}
            Submitted::Refused(_) => self.end(token, None),
        }
    }

    fn answer(&mut self, path: usize, n: usize, answer: Answer) {
        let controller = &mut self.controllers[path];
        if !controller.live && !controller.resetting || controller.in_flight.is_empty() {
            return;
        }
        let in_flight = controller.in_flight.swap_remove(n % controller.in_flight.len());
        let ana = controller.ana.unwrap_or(AnaState::CHANGE);
        let status = match answer {
            _ if ana.refusal().is_some() => ana.refusal().unwrap_or_default(),
            Answer::Success => Status::SUCCESS,
            Answer::Path => Status::INTERNAL_PATH_ERROR,
            Answer::Interrupted => Status::COMMAND_INTERRUPTED,
            Answer::Media => Status::UNRECOVERED_READ_ERROR,
            Answer::PermanentFailure => {
                // The host gave up: the controller still has the command.
                controller.in_flight.push(in_flight.clone());
                Status::ABORTED_BY_HOST
            }
        };
        if status.is_success() {
            match in_flight.op {
                Op::Write | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable => {
                    _ = controller.cache.insert(in_flight.token)
                }
                Op::Flush => controller.cache.retain(|write| !in_flight.covers.contains(write)),
                Op::Read | Op::Compare | Op::Verify => {}
            }
        }
        let id = PathId(path as u8);
        let ended = self.failover.ended(self.now, in_flight.request, id, status);
        if let CompletionOutcome::Done { token, status } = ended {
            self.end(token, Some(status));
            if self.mutant == Mutant::EndsTwice {
                self.end(token, Some(status));
            }
        }
    }
}

impl Controller {
    /// It has no command of the host, and may be brought up.
    fn is_stopped(&self) -> bool {
        !self.live && !self.resetting && self.lost_at.is_none()
    }
}

fn pick(among: PathSet, n: usize) -> PathId {
    among.iter().nth(n % among.len()).unwrap()
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let path = 0..PATHS;
    let state = || {
        prop::sample::select(vec![
            AnaState::OPTIMIZED,
            AnaState::OPTIMIZED,
            AnaState::NON_OPTIMIZED,
            AnaState::INACCESSIBLE,
            AnaState::PERSISTENT_LOSS,
            AnaState::CHANGE,
        ])
    };
    let answers = vec![
        Answer::Success,
        Answer::Success,
        Answer::Success,
        Answer::Path,
        Answer::Interrupted,
        Answer::Media,
        Answer::PermanentFailure,
    ];
    let op = prop::sample::select(vec![
        Op::Read,
        Op::Read,
        Op::Write,
        Op::Write,
        Op::WriteZeroes,
        Op::Deallocate,
        Op::Flush,
        Op::Flush,
    ]);
    let event = prop_oneof![
        8 => op.prop_map(Event::Submit),
        8 => (path.clone(), 0usize..9, prop::sample::select(answers)).prop_map(|(path, n, answer)| Event::Answer(path, n, answer)),
        2 => path.clone().prop_map(Event::Lose),
        2 => (path.clone(), 0usize..9).prop_map(|(path, n)| Event::LateWrite(path, n)),
        1 => path.clone().prop_map(Event::Reset),
        2 => path.clone().prop_map(Event::Stopped),
        2 => (path.clone(), state()).prop_map(|(path, state)| Event::Up(path, state)),
        2 => (path.clone(), state()).prop_map(|(path, state)| Event::Ana(path, state)),
        1 => path.clone().prop_map(Event::Power),
        1 => (path, any::<bool>()).prop_map(|(path, fits)| Event::Size(path, fits)),
        3 => prop_oneof![0u64..20, 0u64..300, 0u64..6_000].prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 1..80)
}

/// Plays the events, then lets every request end. Returns the first violation as an error.
fn play(events: &[Event], mutant: Mutant, fast: bool) -> Result<MultipathCounters, String> {
    let mut world = World::new(mutant, fast);
    let mut submitted = 0;
    for event in events {
        world.happen(event, submitted);
        submitted += u64::from(matches!(event, Event::Submit(_)));
    }
    for round in 0..50 {
        for path in 0..PATHS {
            world.happen(&Event::Size(path, true), 0);
            let controller = &world.controllers[path];
            if controller.live && controller.ana.is_some_and(AnaState::is_accessible) {
                continue;
            }
            world.happen(&Event::Reset(path), 0);
            world.happen(&Event::Stopped(path), 0);
            world.happen(&Event::Up(path, AnaState::OPTIMIZED), 0);
        }
        for _ in 0..400 {
            (0..PATHS)
                .for_each(|path| world.happen(&Event::Answer(path, round, Answer::Success), 0));
        }
    }
    let unended = (0..submitted).find(|token| world.ended.get(token) != Some(&1));
    match (world.violation, unended) {
        (Some(violation), _) => Err(violation),
        (None, Some(token)) => {
            Err(format!("request {token} ends {} times", world.ended.get(&token).unwrap_or(&0)))
        }
        (None, None) if !world.failover.is_idle() => {
            Err("a request is left although all have ended".into())
        }
        (None, None) => Ok(world.failover.counters()),
    }
}

/// The first violation of a mutant, over the same scripts each time.
fn first_violation(mutant: Mutant, fast: bool) -> Option<String> {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    (0..400).find_map(|_| {
        let script = events().new_tree(&mut runner).unwrap().current();
        play(&script, mutant, fast).err()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Every request ends once; a write is sent again only when no controller can carry an earlier
    /// attempt out; no path is used that the host knows cannot be; a Flush that succeeds has
    /// reached every cache with writes from before it, and none was lost with a controller's power.
    #[test]
    fn invariants_hold(events in events()) {
        play(&events, Mutant::None, false).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn each_mutant_breaks_its_invariant() {
    assert_eq!(first_violation(Mutant::None, false), None);
    for (mutant, fast, expected) in [
        (Mutant::NoWait, false, "may still execute it"),
        (Mutant::None, true, "may still execute it"),
        (Mutant::IgnoresAna, false, "cannot be used"),
        (Mutant::SkipsFlush, false, "is in the cache"),
        (Mutant::IgnoresPowerLoss, false, "was lost with the power"),
        (Mutant::IgnoresSize, false, "where the namespace has another size"),
        (Mutant::EndsTwice, false, "ends 2 times"),
        (Mutant::DropsRetries, false, "ends 0 times"),
    ] {
        let violation =
            first_violation(mutant, fast).unwrap_or_else(|| panic!("{mutant:?} violates nothing"));
        assert!(violation.contains(expected), "{mutant:?}: {violation}");
    }
}

/// The scripts reach every outcome.
#[test]
fn scripts_reach_every_outcome() {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let mut sum = MultipathCounters::default();
    for _ in 0..300 {
        let counters =
            play(&events().new_tree(&mut runner).unwrap().current(), Mutant::None, false).unwrap();
        sum.retried += counters.retried;
        sum.failed_over += counters.failed_over;
        sum.held += counters.held;
        sum.waited += counters.waited;
        sum.failed += counters.failed;
        sum.longest_hold = sum.longest_hold.max(counters.longest_hold);
    }
    assert!(
        sum.retried > 300
            && sum.failed_over > 300
            && sum.held > 100
            && sum.waited > 100
            && sum.failed > 20,
        "{sum:?}"
    );
    assert!(sum.longest_hold > Nanos::from_millis(200), "{sum:?}");
}
