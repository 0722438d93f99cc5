//! Threads that share a hardware queue, stepped in any order, with a device that posts at any time.
//! Checks that each thread with completions to come polls, is woken, or has them reaped by another.

use std::collections::VecDeque;

use super::*;

/// The shared hardware queue. A message reaches the thread with the notification role, or the only
/// thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    shared: bool,
    pub(super) armed: bool,
    /// Owners of the entries posted and not taken.
    posted: VecDeque<usize>,
    /// Messages that were not read.
    signals: u32,
    owner: Option<usize>,
    others: VecDeque<usize>,
    /// A thread holds the queue's lock.
    held: bool,
}

/// The queue from one thread's point of view.
pub(super) struct Bound<'a>(pub(super) &'a mut Shared, pub(super) usize);

impl Notification for Bound<'_> {
    type Thread = usize;
    fn is_shared(&self) -> bool {
        self.0.shared
    }
    fn has_own_vector(&self) -> bool {
        true
    }
    fn arm(&mut self) {
        self.0.armed = true;
    }
    fn mask(&mut self) {
        self.0.armed = false;
    }
    fn pending(&mut self) -> bool {
        // The holder of the lock checks the queue after unlocking.
        !self.0.posted.is_empty() && !self.0.held
    }
    fn take_role(&mut self) -> bool {
        let owner = *self.0.owner.get_or_insert(self.1);
        if owner != self.1 && !self.0.others.contains(&self.1) {
            self.0.others.push_back(self.1);
        }
        owner == self.1
    }
    fn has_role(&self) -> bool {
        self.0.owner == Some(self.1)
    }
    fn release_role(&mut self) -> Option<usize> {
        if self.0.owner != Some(self.1) {
            self.0.others.retain(|other| *other != self.1);
            return None;
        }
        self.0.owner = self.0.others.pop_front();
        self.0.owner
    }
    fn other_owner(&mut self) -> Option<usize> {
        self.0.owner.filter(|owner| *owner != self.1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Decide,
    /// Holds the lock.
    Release,
    Sleep(usize),
    /// `true`: with a timer.
    Blocked(bool),
    Done,
}

struct Thread {
    waiter: Waiter<Mutant>,
    at: At,
    /// Another thread has woken it.
    called: bool,
    /// Completions that other threads reaped for it.
    inbox: u32,
    in_flight: u32,
    /// Batches after the first, each submitted when nothing is in flight: of two commands and of
    /// one in turn.
    later: u32,
    switch: Option<Mode>,
}

/// One to three threads, each with two modes, a first number of commands and a number of later
/// batches; and which of the threads and the device moves next.
#[derive(Clone, Debug)]
struct Case {
    threads: Vec<(Mode, Option<Mode>, u32, u32)>,
    moves: Vec<usize>,
    /// Another thread is runnable on the CPU.
    cpu_wanted: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    let mode = || {
        prop::sample::select(vec![
            Mode::INTERRUPT,
            Mode::IRQ_POLL,
            Mode::SUSPEND,
            Mode::POLL,
            Mode::ADAPTIVE,
            Mode::HYBRID_MEAN,
        ])
    };
    let thread =
        (mode(), prop::option::weighted(0.4, mode()), 1u32..5, prop_oneof![Just(0u32), 1u32..20]);
    let moves = prop::collection::vec(0usize..8, 10..200);
    (prop::collection::vec(thread, 1..4), moves, any::<bool>())
        .prop_map(|(threads, moves, cpu_wanted)| Case { threads, moves, cpu_wanted })
}

struct World {
    shared: Shared,
    threads: Vec<Thread>,
    /// Owners of the commands in the device.
    device: VecDeque<usize>,
    now: Nanos,
}

impl World {
    fn new(case: &Case, ablation: Mutant) -> World {
        let shared = Shared { shared: case.threads.len() > 1, ..Shared::default() };
        let thread = |&(mode, switch, in_flight, later): &(Mode, Option<Mode>, u32, u32)| {
            let seen = Seen { cpu_wanted: case.cpu_wanted, ..Seen::default() };
            let waiter = Waiter {
                owner: case.threads.len() == 1,
                seen,
                ..Waiter::new(mode, &SleepCosts::default(), ablation)
            };
            Thread { waiter, at: At::Decide, called: false, inbox: 0, in_flight, later, switch }
        };
        let mut world = World {
            shared,
            threads: case.threads.iter().map(thread).collect(),
            device: VecDeque::new(),
            now: Nanos(1),
        };
        let most = case.threads.iter().map(|thread| thread.2).max().unwrap_or(0);
        for n in 0..most {
            world.device.extend((0..case.threads.len()).filter(|&me| n < case.threads[me].2));
        }
        for (me, thread) in world.threads.iter_mut().enumerate() {
            thread.waiter.settle(&mut Bound(&mut world.shared, me));
        }
        world
    }

    /// The device posts the next entry, and sends a message if armed.
    fn post(&mut self) {
        let Some(owner) = self.device.pop_front() else { return };
        self.shared.posted.push_back(owner);
        self.shared.signals += u32::from(self.shared.armed);
    }

    fn call(&mut self, whom: Option<usize>) {
        if let Some(whom) = whom {
            self.threads[whom].called = true;
        }
    }

    fn step(&mut self, me: usize) {
        self.now += Nanos(1_000);
        let thread = &mut self.threads[me];
        let mut bound = Bound(&mut self.shared, me);
        match thread.at {
            At::Done => {}
            At::Decide => self.decide(me),
            At::Release => {
                bound.0.held = false;
                thread.waiter.seen.pending = bound.pending();
                thread.at = At::Decide;
            }
            At::Sleep(step) => {
                let ablation = thread.waiter.ablation;
                thread.at = At::Sleep(step + 1);
                let queue = std::iter::once((&mut thread.waiter, bound));
                match sleep_step(
                    &ablation,
                    step,
                    queue,
                    |(waiter, mut bound)| waiter.arm(&mut bound),
                    |(waiter, mut bound)| waiter.recheck(&mut bound),
                ) {
                    StepResult::Found(_) => self.back(me, None),
                    StepResult::Block => {
                        thread.at = At::Blocked(!matches!(thread.waiter.plan, Plan::Sleep { .. }))
                    }
                    StepResult::Armed(_) | StepResult::Empty(_) => {}
                }
            }
            At::Blocked(by_itself) => {
                if bound.0.signals > 0 && (thread.waiter.owner || !bound.0.shared) {
                    bound.0.signals = 0;
                    self.back(me, Some(Woke::NOTIFIED));
                } else if std::mem::take(&mut thread.called) {
                    self.back(me, Some(Woke::OTHER));
                } else if by_itself {
                    self.back(me, Some(Woke { cause: Cause::Timer, late: Nanos::ZERO }));
                }
            }
        }
    }

    fn back(&mut self, me: usize, woke: Option<Woke>) {
        let thread = &mut self.threads[me];
        let mut bound = Bound(&mut self.shared, me);
        if let Some(woke) = woke {
            thread.waiter.wakes(&bound);
            thread.waiter.woken(woke);
        }
        thread.waiter.mask_or_keep(thread.in_flight, &mut bound);
        thread.at = At::Decide;
    }

    fn decide(&mut self, me: usize) {
        let thread = &mut self.threads[me];
        let mut bound = Bound(&mut self.shared, me);
        thread.in_flight -= std::mem::take(&mut thread.inbox);
        if thread.in_flight == 0 && thread.later > 0 {
            let commands = 1 + thread.later % 2;
            (thread.in_flight, thread.later) = (commands, thread.later - 1);
            self.device.extend((0..commands).map(|_| me));
        }
        if thread.in_flight == 0 {
            thread.at = At::Done;
            let heir = thread.waiter.leave(&mut bound);
            return self.call(heir);
        }
        if let Some(mode) = thread.switch.take_if(|_| thread.in_flight == 1) {
            thread.waiter.adopt(mode, &SleepCosts::default());
            thread.waiter.settle(&mut bound);
        }
        thread.waiter.seen.in_flight = thread.in_flight;
        match thread.waiter.next(self.now, &mut bound) {
            Plan::Poll { .. } => self.look(me),
            Plan::Spin { .. } if bound.pending() => thread.waiter.found_something(),
            Plan::Spin { .. } => {}
            Plan::Nap { .. } | Plan::Sleep { .. } | Plan::Idle => {
                let heir = thread.waiter.register(&mut bound);
                thread.at = At::Sleep(0);
                self.call(heir);
            }
        }
    }

    /// Takes an entry of any owner, unless another thread holds the lock.
    fn look(&mut self, me: usize) {
        let waiter = &mut self.threads[me].waiter;
        let met = waiter.seen.pending;
        waiter.begin_poll();
        if self.shared.held {
            (waiter.seen.lock_busy, waiter.seen.pending) = (true, met);
            return;
        }
        self.shared.held = true;
        self.threads[me].at = At::Release;
        if let Some(owner) = self.shared.posted.pop_front() {
            self.threads[me].waiter.seen.found = 1;
            self.threads[owner].inbox += 1;
            self.threads[owner].called |= owner != me;
        }
    }

    /// Whether a thread is awake, woken, or has a timer.
    fn moves(&self, me: usize) -> bool {
        let thread = &self.threads[me];
        let signalled = self.shared.signals > 0 && (thread.waiter.owner || !self.shared.shared);
        match thread.at {
            At::Done => false,
            At::Blocked(by_itself) => by_itself || thread.called || signalled,
            _ => true,
        }
    }
}

/// Runs the moves, and then all threads in turn, until every entry is found.
fn run(case: &Case, ablation: Mutant) -> Result<(), String> {
    let mut world = World::new(case, ablation);
    for &who in &case.moves {
        if who < world.threads.len() { world.step(who) } else { world.post() }
    }
    for n in 0..20_000 {
        if world.threads.iter().all(|thread| thread.at == At::Done) {
            return Ok(());
        }
        if world.device.is_empty() && !(0..world.threads.len()).any(|me| world.moves(me)) {
            return Err(format!("standstill with {} entries posted", world.shared.posted.len()));
        }
        (0..world.threads.len()).for_each(|me| world.step(me));
        world.now += Nanos(5_000);
        // By then each thread that goes to sleep does.
        if n % 8 == 0 {
            world.post();
        }
    }
    Err("goes round and round".into())
}

#[test]
fn waiting_threads_find_everything() {
    holds(NO_ABLATION, any_case(), |case| run(&case, NO_ABLATION)).unwrap();
}

#[test]
fn ablated_waiters_are_caught() {
    use SleepStep::{Arm, Block, Check};
    let twins = [
        Mutant { sleep: &[Arm, Block], ..NO_ABLATION },
        Mutant { sleep: &[Check, Arm, Block], ..NO_ABLATION },
        Mutant { sleep: &[Check, Block], ..NO_ABLATION },
        Mutant { breaks: Some(Rule::PollAfterSwitch), ..NO_ABLATION },
        Mutant { breaks: Some(Rule::RearmAfterMask), ..NO_ABLATION },
        Mutant { breaks: Some(Rule::HandOffRole), ..NO_ABLATION },
        Mutant { breaks: Some(Rule::NotifyOwner), ..NO_ABLATION },
    ];
    for twin in twins {
        let message = holds(twin, any_case(), |case| run(&case, twin))
            .expect_err(&format!("no case finds {twin:?}"));
        assert!(message.contains("standstill"), "{twin:?}: {message}");
    }
}
