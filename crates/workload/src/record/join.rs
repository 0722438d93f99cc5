//! What a thread noted down and what its devices stamped, put together: one [`Submission`] for each request.
//!
//! Neither side knows the other's names for things, and their notes arrive whenever a block of them is full. A stamp
//! belongs to the oldest request of its operation that covers its bytes and has not all of its stamps yet.

use std::collections::{BTreeMap, VecDeque};

use super::{Cause, Header, Service, Submission};
use units::{Nanos, Op};

/// What a job thread notes down, in the order in which it happened. Instants are of the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The thread began: the origin of its [`Cause::At`].
    Began(Nanos),
    /// The application waits until so many I/Os have completed.
    Wait(u32),
    /// The I/O in this place was found to be complete.
    Completed {
        /// Which of the places for I/Os in flight.
        place: u32,
        /// When.
        at: Nanos,
    },
    /// An I/O was submitted.
    Submitted {
        /// Its place, free until now.
        place: u32,
        /// What it does.
        op: Op,
        /// Index of the thread's target.
        target: u16,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// When the job's rate meant it to start; none: there is no rate.
        due: Option<Nanos>,
    },
    /// The doorbell was rung.
    Committed {
        /// When.
        at: Nanos,
        /// What the application had computed for the batch.
        think: Nanos,
    },
}

/// What a device stamped of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// What it did.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// When the device took it from its queue.
    pub fetched: Nanos,
    /// How long it took.
    pub service: Service,
}

/// Puts notes and stamps together.
#[derive(Debug)]
pub struct Join {
    threads: Vec<Thread>,
    devices: Vec<Device>,
}

#[derive(Debug)]
struct Thread {
    /// The header's devices, by target.
    targets: Vec<usize>,
    began: Nanos,
    /// By place, the number of the I/O that was there last.
    last: Vec<Option<u64>>,
    /// Completions since the last submission; those of them before the last wait; what that wait was for.
    completed: u32,
    before_wait: u32,
    wait: u32,
    /// Number of the oldest submission that is open, and the open ones: not all that is to be known of them is known.
    first: u64,
    open: VecDeque<Open>,
    /// Of the batch in the making.
    batch: u32,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    submission: Submission,
    committed: Nanos,
    completed: Option<Nanos>,
    /// Its device stamps.
    stamped: bool,
    /// Bytes without a stamp; of a Flush, 1.
    missing: u64,
}

#[derive(Debug, Default)]
struct Device {
    stamped: bool,
    /// By operation and first byte, the requests that wait for stamps: thread and number, oldest first.
    waiting: BTreeMap<(u8, u64), VecDeque<(usize, u64)>>,
    /// No request is longer.
    longest: u64,
    /// Stamps whose request has not been told of.
    early: VecDeque<Stamp>,
}

impl Join {
    /// For what `header` describes.
    pub fn new(header: &Header) -> Join {
        let thread = |head: &super::ThreadHead| Thread {
            targets: head.targets.clone(),
            began: Nanos::ZERO,
            last: Vec::new(),
            completed: 0,
            before_wait: 0,
            wait: 0,
            first: 0,
            open: VecDeque::new(),
            batch: 0,
        };
        let device = |head: &super::DeviceHead| Device { stamped: head.stamped, ..Device::default() };
        Join { threads: header.threads.iter().map(thread).collect(), devices: header.devices.iter().map(device).collect() }
    }

    /// What a thread noted down next.
    pub fn noted(&mut self, thread: usize, events: &[Event]) {
        for event in events {
            self.note(thread, event);
        }
        for device in 0..self.devices.len() {
            let early = std::mem::take(&mut self.devices[device].early);
            self.stamped(device, early);
        }
    }

    /// What a device stamped next.
    pub fn stamped(&mut self, device: usize, stamps: impl IntoIterator<Item = Stamp>) {
        for stamp in stamps {
            if !self.stamp(device, &stamp)
                && let Some(device) = self.devices.get_mut(device)
            {
                device.early.push_back(stamp);
            }
        }
    }

    /// Stamps that still look for their request are not of the recording.
    pub fn forget_early(&mut self) {
        self.devices.iter_mut().for_each(|device| device.early.clear());
    }

    /// The next submission of `thread`, if all is known of it; with `all`, even if not.
    pub fn pop(&mut self, thread: usize, all: bool) -> Option<Submission> {
        let thread = self.threads.get_mut(thread)?;
        let open = thread.open.front()?;
        // The last of the batch is known to be that once the doorbell has been rung.
        if !all && (open.missing > 0 || thread.open.len() <= thread.batch as usize) {
            return None;
        }
        let mut submission = open.submission;
        if open.missing > 0 {
            let service = open.completed.map_or(Nanos::ZERO, |at| at - open.committed);
            submission.service = Service { service, bound: true, ..Service::default() };
        }
        thread.open.pop_front();
        thread.first += 1;
        Some(submission)
    }

    fn note(&mut self, index: usize, event: &Event) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        match *event {
            Event::Began(at) => thread.began = at,
            Event::Wait(min) => (thread.before_wait, thread.wait) = (thread.completed, min),
            Event::Completed { place, at } => {
                thread.completed = thread.completed.saturating_add(1);
                let number = thread.last.get(place as usize).copied().flatten();
                if let Some(open) = number.and_then(|number| thread.open_mut(number)) {
                    open.completed = Some(at);
                    if !open.stamped {
                        open.missing = 0;
                        open.submission.service = Service { service: at - open.committed, bound: true, ..Service::default() };
                    }
                }
            }
            Event::Submitted { place, op, target, offset, len, due } => {
                let cause = match (due, thread.take_place(place)) {
                    (Some(due), _) => Cause::At(due - thread.began),
                    (None, Some(before)) => Cause::After(before),
                    (None, None) => Cause::Start,
                };
                let wait = if thread.wait > 0 && due.is_none() { thread.before_wait.saturating_add(thread.wait) } else { 0 };
                (thread.completed, thread.before_wait, thread.wait) = (0, 0, 0);
                let missing = if op == Op::Flush { 1 } else { len.into() };
                let (think, ends_batch, service) = (Nanos::ZERO, false, Service::default());
                let submission = Submission { op, target, offset, len, cause, wait, think, ends_batch, service };
                let number = thread.number();
                let device = thread.targets.get(usize::from(target)).and_then(|&device| self.devices.get_mut(device));
                let device = device.filter(|device| device.stamped);
                let stamped = device.is_some();
                thread.open.push_back(Open { submission, committed: Nanos::ZERO, completed: None, stamped, missing });
                thread.batch += 1;
                if let Some(device) = device {
                    device.longest = device.longest.max(len.into());
                    device.waiting.entry((op as u8, offset)).or_default().push_back((index, number));
                }
            }
            Event::Committed { at, think } => thread.commit(at, think),
        }
    }

    /// Whether its request was found.
    fn stamp(&mut self, at: usize, stamp: &Stamp) -> bool {
        let Some(device) = self.devices.get_mut(at) else { return true };
        let op = stamp.op as u8;
        let end = stamp.offset.saturating_add(stamp.bytes.into());
        let nearby = (op, stamp.offset.saturating_sub(device.longest))..=(op, stamp.offset);
        for (&key, requests) in device.waiting.range_mut(nearby).rev() {
            for position in 0..requests.len() {
                let Some(&(thread, number)) = requests.get(position) else { break };
                let Some(open) = self.threads.get_mut(thread).and_then(|thread| thread.open_mut(number)) else { continue };
                let covers = open.submission.offset.saturating_add(open.submission.len.into()) >= end;
                if !covers || open.missing == 0 {
                    continue;
                }
                open.stamp(stamp);
                if open.missing == 0 {
                    requests.remove(position);
                    if requests.is_empty() {
                        device.waiting.remove(&key);
                    }
                }
                return true;
            }
        }
        false
    }
}

impl Thread {
    /// The number of the next submission.
    fn number(&self) -> u64 {
        self.first + self.open.len() as u64
    }

    fn open_mut(&mut self, number: u64) -> Option<&mut Open> {
        let at = number.checked_sub(self.first)?;
        self.open.get_mut(usize::try_from(at).ok()?)
    }

    /// The next submission takes this place; the number of the one that was there before.
    fn take_place(&mut self, place: u32) -> Option<u64> {
        let number = self.number();
        let place = place as usize;
        if self.last.len() <= place {
            self.last.resize(place + 1, None);
        }
        self.last.get_mut(place)?.replace(number)
    }

    fn commit(&mut self, at: Nanos, think: Nanos) {
        let count = std::mem::take(&mut self.batch) as usize;
        let (each, rest) = (think.0 / count.max(1) as u64, think.0 % count.max(1) as u64);
        let batch = self.open.iter_mut().rev().take(count);
        for (n, open) in batch.enumerate() {
            open.committed = at;
            open.submission.ends_batch = n == 0;
            open.submission.think = Nanos(each + if n == 0 { rest } else { 0 });
        }
    }
}

impl Open {
    /// Takes a stamp in. Of several the slowest stands for all.
    fn stamp(&mut self, stamp: &Stamp) {
        let total = |service: &Service| service.queued + service.service + service.late;
        if total(&stamp.service) >= total(&self.submission.service) {
            self.submission.service = stamp.service;
        }
        self.missing = self.missing.saturating_sub(u64::from(stamp.bytes).max(1));
    }
}
