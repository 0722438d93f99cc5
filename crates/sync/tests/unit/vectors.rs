#[cfg(not(loom))]
mod unit {
    use std::cell::Cell;

    use crate::{Signal, Vectors};

    impl Signal for Cell<u32> {
        fn signal(&self) {
            self.set(self.get() + 1);
        }

        fn count(&self) -> Option<u64> {
            Some(self.get().into())
        }
    }

    fn three(masks: bool) -> Vectors<Cell<u32>> {
        Vectors::new((0..3).map(|_| Cell::new(0)), masks)
    }

    fn signalled(vectors: &Vectors<Cell<u32>>) -> [u32; 3] {
        [0, 1, 2].map(|vector| vectors.signal(vector).unwrap().get())
    }

    #[test]
    fn armed_vector_sends_each_message() {
        let (vectors, unmaskable) = (three(true), three(false));
        assert_eq!((vectors.len(), vectors.message(1), unmaskable.message(1)), (3, false, true));
        assert!(vectors.arm(1), "a message has met the mask");
        vectors.clear_pending(1);
        assert!(
            vectors.message(1) && vectors.message(1) && !vectors.message(0) && !vectors.message(3)
        );
        assert_eq!((vectors.messages(1), vectors.notifications(1), vectors.messages(3)), (2, 2, 0));
        assert_eq!((signalled(&vectors), signalled(&unmaskable)), ([0, 2, 0], [0, 1, 0]));
        assert!(
            vectors.flag(3).is_none() && vectors.signal(3).is_none() && vectors.posted(3).is_none()
        );
        assert_eq!(vectors.notifications(3), 0);
        vectors.flag(1).unwrap().disarm();
        assert!(!vectors.message(1));
    }

    #[test]
    fn signals_say_if_they_count() {
        struct Mute;
        impl Signal for Mute {
            fn signal(&self) {}

            fn count(&self) -> Option<u64> {
                None
            }
        }
        let (counted, mute) = (three(true), Vectors::new([Mute], true));
        assert!(!mute.arm(0));
        assert!(mute.message(0) && counted.are_counted() && !mute.are_counted());
        assert_eq!((mute.messages(0), mute.notifications(0)), (0, 0));
    }

    #[test]
    fn posted_messages_share_a_notification() {
        let vectors = three(true);
        for vector in [1, 2] {
            vectors.route(vector, Some(1));
            assert!(!vectors.arm(vector));
        }
        assert!(vectors.message(2) && vectors.message(1) && vectors.message(2));
        let posted = vectors.posted(1).unwrap();
        assert!(posted.take(1) && posted.take(2) && !posted.take(2));
        assert_eq!(
            (signalled(&vectors), vectors.messages(2), vectors.notifications(1)),
            ([0, 1, 0], 2, 1)
        );
        assert!(!vectors.arm(2));
        assert!(vectors.message(2));
        assert_eq!(signalled(&vectors), [0, 2, 0]);
        vectors.route(2, None);
        assert!(vectors.message(2));
        assert_eq!((signalled(&vectors), vectors.notifications(2)), ([0, 2, 1], 1));
        assert_eq!(
            [1, 2].map(|vector| vectors.messages(vector)),
            [1, 4],
            "its own alone, though the home has woken of all"
        );
    }

    #[test]
    fn messages_without_target_are_dropped() {
        let vectors = three(true);
        vectors.route(1, Some(7));
        assert!(!vectors.arm(1));
        assert!(vectors.message(1));
        assert_eq!(signalled(&vectors), [0; 3]);
    }

    #[test]
    fn masked_message_stays_pending() {
        let vectors = three(true);
        assert!(!vectors.message(1) && !vectors.message(1) && vectors.is_masked(1));
        assert!(vectors.arm(1) && !vectors.is_masked(1), "the device is to be told");
        vectors.clear_pending(1);
        assert!(vectors.message(1) && !vectors.arm(1));
        assert_eq!(signalled(&vectors), [0, 1, 0]);
        let unmaskable = three(false);
        assert!(unmaskable.message(1) && !unmaskable.is_masked(1) && !unmaskable.arm(1));
        assert!(!vectors.arm(9) && vectors.is_masked(9));
        vectors.clear_pending(9);
    }
}

/// A thread changes the route of its vector while the device sends messages.
#[cfg(loom)]
mod models {
    use crate::atomic::AtomicUsize;
    use crate::atomic::Ordering::{Acquire, Relaxed, Release};
    use crate::model::{EventFds, fails, holds};
    use crate::{Arc, thread};
    use crate::{Signal, Vectors};

    impl<S: Signal> Vectors<S> {
        /// [`Vectors::message`] without the check of the mask after the bit.
        fn message_without_second_check(&self, vector: u16) -> bool {
            let entry = &self.vectors[usize::from(vector)];
            let rings = entry.flag.should_wake();
            if rings {
                self.send(vector, entry)
            } else {
                entry.pending.store(true, Relaxed)
            }
            rings
        }

        /// [`Vectors::message`] without the fence between the bit and that check.
        fn message_without_fence(&self, vector: u16) -> bool {
            let entry = &self.vectors[usize::from(vector)];
            let rings = entry.flag.should_wake() || {
                entry.pending.store(true, Relaxed);
                entry.flag.is_armed()
            };
            if rings {
                self.send(vector, entry);
            }
            rings
        }
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        /// The check after the switch.
        Check,
        /// Arming after the switch: the vector was armed before.
        ArmAfter,
        /// Allowing the next notification where messages are posted: the flag alone is armed.
        Allow,
    }

    /// An eventfd of the model's.
    struct Fd(Arc<EventFds>, usize);

    impl Signal for Fd {
        fn signal(&self) {
            self.0.signal(self.1);
        }

        fn count(&self) -> Option<u64> {
            None
        }
    }

    const HOME: u16 = 0;
    const OWN: u16 = 1;
    const ENTRIES: usize = 2;

    /// The thread starts or stops posting, and waits until all entries have been found. It sleeps
    /// on the new route only. A notification of the descriptor is outstanding from before. Returns
    /// whether it was woken.
    fn switch(to_posted: bool, omit: Omit) -> bool {
        let fds = EventFds::new(2, 2);
        let vectors = Arc::new(Vectors::new([Fd(fds.clone(), 0), Fd(fds.clone(), 1)], true));
        let published = Arc::new(AtomicUsize::new(0));
        vectors.route(OWN, (!to_posted).then_some(HOME));
        _ = vectors.arm(OWN);
        let descriptor = vectors.posted(HOME).unwrap();
        assert!(descriptor.post(OWN) && descriptor.take(OWN));

        let device = {
            let (fds, vectors, published) = (fds.clone(), vectors.clone(), published.clone());
            thread::spawn(move || {
                for entry in 1..=ENTRIES {
                    published.store(entry, Release);
                    vectors.message(OWN);
                }
                fds.end();
            })
        };
        let arm = || match omit {
            Omit::Allow => vectors.flag(OWN).unwrap().arm(),
            _ => _ = vectors.arm(OWN),
        };
        if omit == Omit::ArmAfter {
            arm();
        }
        vectors.route(OWN, to_posted.then_some(HOME));
        if omit != Omit::ArmAfter {
            arm();
        }
        let look = || published.load(Acquire);
        let mut found = if omit == Omit::Check { 0 } else { look() };
        let mut woken = true;
        while woken && found < ENTRIES {
            if to_posted {
                if omit != Omit::ArmAfter {
                    arm();
                }
                if vectors.posted(HOME).unwrap().take(OWN) {
                    found = look();
                    continue;
                }
            }
            woken = fds.block(if to_posted { &[0] } else { &[1] }).is_ok();
            found = look();
        }
        fds.end();
        device.join().unwrap();
        woken
    }

    /// How the device announces an entry.
    type Tells = fn(&Vectors<Fd>, u16) -> bool;

    /// The device publishes and announces an entry, while the host unmasks and then only waits. A
    /// device that is notified of the unmasking was asleep. Returns whether a message arrived.
    fn unmask(tells: Tells) -> bool {
        let fds = EventFds::new(1, 2);
        let vectors = Arc::new(Vectors::new([Fd(fds.clone(), 0)], true));
        let device = {
            let (fds, vectors) = (fds.clone(), vectors.clone());
            thread::spawn(move || {
                tells(&vectors, HOME);
                fds.end();
            })
        };
        let pending = vectors.arm(HOME);
        let woken = fds.block(&[0]).is_ok();
        device.join().unwrap();
        woken
            || pending && !vectors.is_masked(HOME) && {
                vectors.clear_pending(HOME);
                vectors.message(HOME)
            }
    }

    #[test]
    fn crossing_message_survives_unmasking() {
        holds(3, || unmask(Vectors::message));
    }

    #[test]
    fn lost_pending_bit_is_caught() {
        fails(2, || unmask(Vectors::message_without_second_check));
        fails(2, || unmask(Vectors::message_without_fence));
    }

    #[test]
    fn delivery_switch_loses_no_message() {
        holds(3, || switch(true, Omit::Nothing));
        holds(3, || switch(false, Omit::Nothing));
    }

    #[test]
    fn missing_poll_after_switch_is_caught() {
        fails(2, || switch(true, Omit::Check));
        fails(2, || switch(false, Omit::Check));
    }

    #[test]
    fn armed_vector_signals_once_more() {
        fails(2, || switch(true, Omit::ArmAfter));
        fails(2, || switch(false, Omit::ArmAfter));
    }

    #[test]
    fn outstanding_notification_covers_posted_messages() {
        fails(2, || switch(true, Omit::Allow));
    }
}
