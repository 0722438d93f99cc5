//! Two threads with real eventfds and rings. A lost wake-up shows as a sleep that ends by time-out
//! with an entry waiting. Bounded: no sleep is longer than [`PATIENCE`], and the device thread ends
//! with the host.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::{hint, thread};

use hw::{Bar, CqRing, DmaPool, EventFd, Poller, Vectors};
use nvme::{CqSlots, Cqe, Doorbells, QueueId, RingIndex, Status, Vector};
use sync::{Inbox, NotificationRole, PollLock, WaiterId, WakeFlag};
use units::Nanos;

const ENTRIES: u32 = 8;
const QUEUE: QueueId = QueueId(1);
const VECTOR: Vector = Vector(0);
const PATIENCE: Nanos = Nanos::from_secs(60);
/// Limit for a sleep, enough for a slow machine.
const ENOUGH: Nanos = Nanos::from_secs(10);

/// The state shared by host and device.
struct Machine {
    bar: Bar,
    vectors: Vectors,
    cq: CqRing,
    stop: AtomicBool,
}

impl Machine {
    fn new() -> Machine {
        let pool = DmaPool::new(1 << 20).unwrap();
        let memory = pool.alloc_ring(4096).unwrap();
        Machine {
            bar: Bar::new(1),
            vectors: hw::vectors(1, true).unwrap(),
            cq: pool.cq(memory.addr(), ENTRIES).unwrap(),
            stop: AtomicBool::new(false),
        }
    }

    /// The device: completes each command as soon as its doorbell rings, with one message each.
    /// Returns the number of messages.
    fn device(&self) -> u64 {
        let (mut seen, mut producer) = (0, RingIndex::new(ENTRIES));
        let (mut cid, mut idle, mut sent) = (0u16, 0u32, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let tail = self.bar.sq_tail(QUEUE);
            if tail == seen {
                idle += 1;
                if idle % 1000 == 0 {
                    thread::yield_now()
                } else {
                    hint::spin_loop()
                }
                continue;
            }
            while seen != tail {
                let cqe =
                    Cqe { cid, ..Cqe::default() }.with_status(Status::SUCCESS, producer.phase());
                self.cq.store(producer.slot(), &cqe);
                producer.advance();
                (cid, seen) = (cid.wrapping_add(1), (seen + 1) % ENTRIES);
                sent += u64::from(self.vectors.message(VECTOR.0));
            }
        }
        sent
    }

    /// Reads the message counter repeatedly. `Err`: the counter went back.
    fn counts(&self) -> Result<(), [u64; 2]> {
        let mut before = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let counted = self.vectors.messages(VECTOR.0);
            if counted < before {
                return Err([before, counted]);
            }
            before = counted;
            thread::yield_now();
        }
        Ok(())
    }
}

/// At most this many rounds; fewer if other load makes each round take a time slice.
fn while_there_is_time(rounds: u32) -> impl Iterator<Item = u32> {
    let enough = hw::now() + ENOUGH;
    (0..rounds).take_while(move |_| hw::now() < enough)
}

/// Ends the device whether the host returns or panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each round rings the doorbell, arms, polls once more and sleeps. The entry may arrive at any
/// point.
#[test]
fn two_threads_lose_no_wakeup() {
    const ROUNDS: u32 = 100_000;
    let machine = Machine::new();
    thread::scope(|scope| {
        let device = scope.spawn(|| machine.device());
        let counts = scope.spawn(|| machine.counts());
        let _stop = StopOnDrop(&machine.stop);
        let bell = machine.vectors.flag(VECTOR.0).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(machine.vectors.signal(VECTOR.0).unwrap(), 0).unwrap();
        let (mut consumer, mut keys) = (RingIndex::new(ENTRIES), Vec::with_capacity(1));
        for round in while_there_is_time(ROUNDS) {
            machine.bar.ring_sq(QUEUE, (round + 1) % ENTRIES);
            // The entry is to arrive before, between and after the steps below.
            (0..round * 7 % 127).for_each(|_| hint::spin_loop());
            let cqe = loop {
                bell.arm();
                if !machine.cq.is_new(consumer.slot(), consumer.phase()) {
                    poller.wait(Some(PATIENCE), &mut keys).unwrap();
                    let waiting = machine.cq.is_new(consumer.slot(), consumer.phase());
                    assert!(!(keys.is_empty() && waiting), "the wake-up of round {round} was lost");
                    assert!(!keys.is_empty(), "round {round}: no event within {PATIENCE}");
                }
                bell.disarm();
                if let Some(cqe) = machine.cq.load(consumer.slot(), consumer.phase()) {
                    break cqe;
                }
            };
            assert_eq!(cqe.cid, round as u16);
            consumer.advance();
        }
        machine.stop.store(true, Ordering::Relaxed);
        let (sent, counts) = (device.join().unwrap(), counts.join().unwrap());
        assert_eq!(counts, Ok(()), "the message counter went back");
        assert_eq!(
            machine.vectors.messages(VECTOR.0),
            sent,
            "and reading the counter consumed no wake-up"
        );
    });
}

/// A thread that shares the queue: its wake-up, and the completions that others reaped for it.
struct Sleeper {
    bell: WakeFlag,
    eventfd: EventFd,
    inbox: Inbox<u16>,
}

/// One queue that two threads submit to and sleep on, by the protocol of [`NotificationRole`].
struct Shared {
    machine: Machine,
    /// Commands so far.
    sq: Mutex<u32>,
    /// The thread that submitted each CID.
    owners: [AtomicU32; ENTRIES as usize],
    lock: PollLock<RingIndex>,
    position: AtomicU64,
    role: NotificationRole,
    sleepers: [Sleeper; 2],
}

impl Shared {
    fn new() -> Shared {
        let sleeper = || Sleeper {
            bell: WakeFlag::new(),
            eventfd: EventFd::new().unwrap(),
            inbox: Inbox::new(ENTRIES as usize),
        };
        Shared {
            machine: Machine::new(),
            sq: Mutex::new(0),
            owners: Default::default(),
            lock: PollLock::new(RingIndex::new(ENTRIES)),
            position: AtomicU64::new(1 << 32),
            role: NotificationRole::new(2),
            sleepers: [sleeper(), sleeper()],
        }
    }

    /// The CID of the thread's next command.
    fn submit(&self, me: usize) -> u16 {
        let mut commands = self.sq.lock().unwrap();
        let cid = *commands as u16;
        self.owners[usize::from(cid) % ENTRIES as usize].store(me as u32, Ordering::Relaxed);
        *commands = commands.wrapping_add(1);
        self.machine.bar.ring_sq(QUEUE, *commands % ENTRIES);
        cid
    }

    fn pending(&self) -> bool {
        let position = self.position.load(Ordering::Relaxed);
        self.machine.cq.is_new(position as u32, position >> 32 == 1)
    }

    /// Reaps what is there and passes it to its owners. `None`: another thread is reaping.
    /// Otherwise whether there is more.
    fn reap(&self, me: usize) -> Option<bool> {
        let mut taken = Vec::new();
        let position = |consumer: &mut RingIndex| {
            while let Some(cqe) = self.machine.cq.load(consumer.slot(), consumer.phase()) {
                // Under the lock: once it is released the other thread may run on until the command
                // after the next seven has this one's place in `owners`.
                let owner = self.owners[usize::from(cqe.cid) % ENTRIES as usize]
                    .load(Ordering::Relaxed) as usize;
                taken.push((owner, cqe.cid));
                consumer.advance();
            }
            self.position.store(
                u64::from(consumer.slot()) | u64::from(consumer.phase()) << 32,
                Ordering::Release,
            );
        };
        let more = self.lock.try_poll(position, || self.pending())?.more;
        for (owner, cid) in taken {
            self.sleepers[owner].inbox.push(cid).unwrap();
            if owner != me {
                self.wake(owner);
            }
        }
        Some(more)
    }

    fn wake(&self, sleeper: usize) {
        if self.sleepers[sleeper].bell.claim_wake() {
            self.sleepers[sleeper].eventfd.signal();
        }
    }

    /// Sleeps until the thread's one command, `cid`, has completed.
    fn wait(&self, me: usize, cid: u16, poller: &Poller, round: u32) {
        let (own, id) = (&self.sleepers[me], WaiterId(me as u32));
        let (vector, message) = (
            self.machine.vectors.flag(VECTOR.0).unwrap(),
            self.machine.vectors.signal(VECTOR.0).unwrap(),
        );
        let (mut owner, mut keys) = (false, Vec::with_capacity(2));
        loop {
            while self.reap(me) == Some(true) {}
            if let Some(completed) = own.inbox.pop() {
                assert_eq!(completed, cid, "thread {me}, round {round}: another thread's entry");
                break;
            }
            own.bell.arm();
            if self.role.try_take(id) {
                if !owner {
                    poller.add(message, 1).unwrap();
                    owner = true;
                }
                vector.arm();
            }
            let found = owner && self.pending() && self.reap(me).is_some();
            if !found && own.inbox.is_empty() {
                poller.wait(Some(PATIENCE), &mut keys).unwrap();
                assert!(!keys.is_empty(), "thread {me}, round {round}: no event within {PATIENCE}");
            }
            own.bell.disarm();
            if owner {
                vector.disarm();
            }
        }
        if owner {
            poller.remove(message).unwrap();
        }
        if let Some(heir) = self.role.release(id) {
            self.wake(heir.0 as usize);
        }
    }
}

/// Two threads, each with one command in flight at a time: the role changes hands at nearly every
/// completion.
#[test]
fn shared_queues_lose_no_wakeup() {
    const ROUNDS: u32 = 20_000;
    let shared = Shared::new();
    thread::scope(|scope| {
        scope.spawn(|| shared.machine.device());
        let _stop = StopOnDrop(&shared.machine.stop);
        let host = |me: usize| {
            let poller = Poller::new().unwrap();
            poller.add(&shared.sleepers[me].eventfd, 0).unwrap();
            for round in while_there_is_time(ROUNDS) {
                let cid = shared.submit(me);
                shared.wait(me, cid, &poller, round);
            }
        };
        let other = scope.spawn(move || host(1));
        host(0);
        other.join().unwrap();
    });
    assert_eq!(shared.role.owner(), None);
}
