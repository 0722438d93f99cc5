//! What a job thread notes down while it is recorded: in blocks, so that it allocates and hands over once for thousands
//! of I/Os.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;

use reap::{Completion, Nanos};
use workload::record::Event;
use workload::{Generator, Io};

/// Events to a block.
const BLOCK: usize = 4096;

/// A block of one thread's events.
pub type Noted = (usize, Vec<Event>);

/// One job thread's notebook.
#[derive(Debug)]
pub struct Tap {
    thread: usize,
    block: Vec<Event>,
    to: SyncSender<Noted>,
    /// Blocks could not be written as fast as they came, or not at all: nothing is noted down any more.
    stopped: Arc<AtomicBool>,
    /// When the library last gave the CPU back to the application.
    since: Nanos,
    /// What reading the clock takes.
    clock: Nanos,
}

impl Tap {
    /// Of this thread of the plan.
    pub fn new(thread: usize, to: SyncSender<Noted>, stopped: Arc<AtomicBool>) -> Tap {
        let clock = (0..64).map(|_| (hw::now(), hw::now())).map(|(a, b)| b - a).min().unwrap_or_default();
        Tap { thread, block: Vec::with_capacity(BLOCK), to, stopped, since: Nanos::ZERO, clock }
    }

    /// The thread begins.
    pub fn began(&mut self, now: Nanos) {
        self.note(Event::Began(now));
        self.returned();
    }

    /// The application waits until so many I/Os have completed.
    pub fn waits(&mut self, min: u32) {
        self.note(Event::Wait(min));
    }

    /// The doorbell is about to be rung for these I/Os, by their places.
    pub fn commits(&mut self, batch: impl Iterator<Item = (u32, Io)>, generator: &Generator) {
        let at = hw::now();
        for (place, io) in batch {
            let Io { op, target, offset, len, .. } = io;
            self.note(Event::Submitted { place, op, target, offset, len, due: generator.due(&io) });
        }
        self.note(Event::Committed { at, think: at - self.since - self.clock });
    }

    /// The library has given these completions to the application.
    pub fn found(&mut self, completions: &[Completion]) {
        for completion in completions {
            self.note(Event::Completed { place: completion.tag as u32, at: Nanos(completion.completed_at.as_nanos()) });
        }
        self.returned();
    }

    /// What follows is the application's time.
    pub fn returned(&mut self) {
        self.since = hw::now();
    }

    fn note(&mut self, event: Event) {
        self.block.push(event);
        if self.block.len() == BLOCK {
            self.send(Vec::with_capacity(BLOCK));
        }
    }

    /// Never waits: a disk that is too slow ends the recording, and does not slow the run.
    fn send(&mut self, next: Vec<Event>) {
        let block = std::mem::replace(&mut self.block, next);
        if !self.stopped.load(Relaxed) && self.to.try_send((self.thread, block)).is_err() {
            self.stopped.store(true, Relaxed);
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.send(Vec::new());
    }
}
