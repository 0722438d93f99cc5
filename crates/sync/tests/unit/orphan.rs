#[cfg(not(loom))]
mod unit {
    use std::cell::Cell;

    use crate::sweep_orphan;

    #[test]
    fn new_owner_learns_of_completions() {
        for (ends, open, again, told) in [
            (None, false, true, 0),
            (Some(false), false, false, 0),
            (Some(false), true, true, 0),
            (Some(true), false, false, 1),
            (Some(true), true, true, 1),
        ] {
            let woken = Cell::new(0);
            let swept = sweep_orphan(|| ends, || woken.set(woken.get() + 1), || open);
            assert_eq!((swept, woken.get()), (again, told), "{ends:?}, {open}");
        }
    }
}

/// A thread takes a queue whose one request has been answered, and sleeps until it has ended; the sweeper has not heard of it.
#[cfg(loom)]
mod models {
    use crate::atomic::AtomicU32;
    use crate::atomic::Ordering::Relaxed;
    use crate::model::{EventFds, LostWakeUp, fails, holds};
    use crate::sweep_orphan;
    use crate::{Arc, Mutex, MutexGuard, lock, thread, try_lock};
    use crate::{Inbox, SleepSteps, WakeFlag, sleep};

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        /// Telling the thread that has taken the queue.
        Tell,
        /// Publishing what is open before telling: it is published afterwards.
        PublishFirst,
        /// The owner's look at what is open, after arming.
        LookAtOpen,
    }

    struct Queue {
        book: Mutex<u32>,
        open: AtomicU32,
        inbox: Inbox<()>,
        flag: WakeFlag,
        fds: Arc<EventFds>,
        omit: Omit,
    }

    impl Queue {
        fn end_in(&self, mut book: MutexGuard<'_, u32>, publishes: bool) -> bool {
            let mut outcomes = Vec::new();
            let found = self.inbox.take(usize::MAX, &mut outcomes) > 0;
            *book -= outcomes.len() as u32;
            if publishes {
                self.open.store(*book, Relaxed);
            }
            found
        }
    }

    impl Queue {
        fn end(&self) -> Option<bool> {
            Some(self.end_in(try_lock(&self.book)?, self.omit != Omit::PublishFirst))
        }

        fn tell(&self) {
            if self.omit != Omit::Tell && self.flag.claim_wake() {
                self.fds.signal(0);
            }
        }

        fn is_open(&self) -> bool {
            if self.omit == Omit::PublishFirst {
                self.open.store(*lock(&self.book), Relaxed);
            }
            self.open.load(Relaxed) > 0
        }
    }

    /// The thread that has taken the queue, and what it saw open as it made its plan.
    struct Owner<'a> {
        queue: &'a Queue,
        seen: u32,
    }

    impl Owner<'_> {
        /// Until nothing is open.
        fn wait(mut self) -> Result<(), LostWakeUp> {
            loop {
                self.queue.end_in(lock(&self.queue.book), true);
                self.seen = self.queue.open.load(Relaxed);
                if self.seen == 0 {
                    return Ok(());
                }
                sleep::arm(&mut self);
                if !sleep::check(&mut self) {
                    self.queue.fds.block(&[0])?;
                }
                sleep::wake(&mut self);
            }
        }
    }

    impl SleepSteps for Owner<'_> {
        type Thread = ();

        fn flag(&self) -> &WakeFlag {
            &self.queue.flag
        }

        fn register(&mut self) -> Option<()> {
            None
        }

        fn allow(&mut self) {}

        fn tell(&self, (): ()) {}

        fn was_posted(&mut self) -> bool {
            false
        }

        fn has_entry(&mut self) -> bool {
            false
        }

        fn has_mail(&mut self) -> bool {
            !self.queue.inbox.is_empty() || self.queue.omit != Omit::LookAtOpen && self.seen != self.queue.open.load(Relaxed)
        }

        fn is_wanted(&mut self) -> bool {
            false
        }

        fn mask(&mut self) {}
    }

    fn taken_while_swept(omit: Omit) -> bool {
        let queue = Arc::new(Queue {
            book: Mutex::new(1),
            open: AtomicU32::new(1),
            inbox: Inbox::new(1),
            flag: WakeFlag::new(),
            fds: EventFds::new(1, 3),
            omit,
        });
        let spawn = |part: fn(&Queue)| {
            let queue = queue.clone();
            thread::spawn(move || {
                part(&queue);
                queue.fds.end();
            })
        };
        let answerer = spawn(|queue| {
            assert_eq!(queue.inbox.push(()), Ok(()));
            // As a thread that leaves mail does, whatever the twin.
            if queue.flag.claim_wake() {
                queue.fds.signal(0);
            }
        });
        let sweeper = spawn(|queue| _ = sweep_orphan(|| queue.end(), || queue.tell(), || queue.is_open()));
        let told = Owner { queue: &queue, seen: 0 }.wait().is_ok();
        queue.fds.end();
        answerer.join().unwrap();
        sweeper.join().unwrap();
        told
    }

    #[test]
    fn sweep_wakes_the_new_owner() {
        holds(3, || taken_while_swept(Omit::Nothing));
    }

    #[test]
    fn missing_wake_after_sweep_is_caught() {
        fails(3, || taken_while_swept(Omit::Tell));
    }

    #[test]
    fn early_wake_is_caught() {
        fails(3, || taken_while_swept(Omit::PublishFirst));
    }

    #[test]
    fn missing_check_of_open_is_caught() {
        fails(3, || taken_while_swept(Omit::LookAtOpen));
    }
}
