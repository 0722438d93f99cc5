use super::*;

#[cfg(not(loom))]
mod unit {
    use super::*;

    #[test]
    fn one_notification_until_the_next() {
        let posted = Posted::new();
        assert!(!posted.any() && posted.post(3) && posted.any());
        assert!(!posted.post(3) && !posted.post(200));
        assert!(posted.take(3) && posted.take(200) && !posted.take(3) && !posted.take(4));
        assert!(!posted.post(4), "the notification is still outstanding");
        posted.allow();
        assert!(posted.take(4));
        assert!(posted.post(5));
    }

    #[test]
    fn vector_without_bit_notifies_itself() {
        let posted = Posted::new();
        assert!(posted.post(Posted::BITS) && posted.post(u16::MAX));
        assert!(!posted.take(Posted::BITS));
    }
}

/// Two vectors post into one descriptor, one thread takes.
#[cfg(loom)]
mod models {
    use super::*;
    use crate::WakeFlag;
    use crate::model::{EventFds, fails, holds};
    use crate::{Arc, thread};

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        TakersFence,
        LastLook,
        PostersFence,
    }

    const VECTORS: u16 = 2;

    struct Shared {
        posted: Posted,
        queues: [AtomicU64; VECTORS as usize],
    }

    /// The thread waits until `each` entries have been found on every queue. It polls a queue only
    /// if its bit is set.
    fn demultiplex(each: u64, rounds: u32, omit: Omit) -> bool {
        let shared = Arc::new(Shared { posted: Posted::new(), queues: Default::default() });
        let eventfds = EventFds::new(1, 1 + usize::from(VECTORS));
        let device = |vector: u16| {
            let (shared, eventfds) = (shared.clone(), eventfds.clone());
            thread::spawn(move || {
                for entry in 1..=each {
                    shared.queues[usize::from(vector)].store(entry, Ordering::Release);
                    let notifies = match omit {
                        Omit::PostersFence => {
                            shared.posted.pending[0].fetch_or(1 << vector, Ordering::Release);
                            shared.posted.claim_notification()
                        }
                        _ => shared.posted.post(vector),
                    };
                    if notifies {
                        eventfds.signal(0);
                    }
                }
                eventfds.end();
            })
        };
        let devices = [device(0), device(1)];
        let mut found = [0; VECTORS as usize];
        let mut take = || {
            let mut any = false;
            for vector in 0..VECTORS {
                if shared.posted.take(vector) {
                    found[usize::from(vector)] =
                        shared.queues[usize::from(vector)].load(Ordering::Acquire);
                    any = true;
                }
            }
            (any, found.iter().all(|&n| n == each))
        };
        let mut woken = true;
        let mut done = false;
        while woken && !done {
            for _ in 0..rounds {
                let (any, all) = take();
                done |= all;
                if !any {
                    break;
                }
            }
            match omit {
                Omit::TakersFence => shared.posted.set_allowed(),
                _ => shared.posted.allow(),
            }
            let (any, all) = if omit == Omit::LastLook { (false, done) } else { take() };
            done |= all;
            if !done && !any {
                woken = eventfds.block(&[0]).is_ok();
            }
        }
        eventfds.end();
        devices.into_iter().for_each(|device| device.join().unwrap());
        woken
    }

    #[test]
    fn no_posted_message_is_missed() {
        holds(2, || demultiplex(1, 1, Omit::Nothing));
    }

    #[test]
    fn missing_check_after_allowing_is_caught() {
        fails(2, || demultiplex(1, 1, Omit::LastLook));
    }

    #[test]
    fn missing_taker_fence_is_caught() {
        fails(2, || demultiplex(1, 1, Omit::TakersFence));
    }

    #[test]
    fn missing_poster_fence_is_caught() {
        fails(2, || demultiplex(1, 1, Omit::PostersFence));
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Neglect {
        Nothing,
        PassingOn,
        ArmingFirst,
    }

    /// Another thread receives the notification, and wakes the thread that takes the bits by its
    /// flag.
    fn passed_on(neglect: Neglect) -> bool {
        let shared = Arc::new((Posted::new(), WakeFlag::new(), AtomicU64::new(0)));
        let eventfds = EventFds::new(2, 3);
        let device = {
            let (shared, eventfds) = (shared.clone(), eventfds.clone());
            thread::spawn(move || {
                shared.2.store(1, Ordering::Release);
                if shared.0.post(1) {
                    eventfds.signal(0);
                }
                eventfds.end();
            })
        };
        let between = {
            let (shared, eventfds) = (shared.clone(), eventfds.clone());
            thread::spawn(move || {
                while eventfds.block(&[0]).is_ok() {
                    // Its fence is not needed here: the poster's comes before what is read.
                    if neglect != Neglect::PassingOn && shared.0.any() && shared.1.should_wake() {
                        eventfds.signal(1);
                    }
                }
                eventfds.end();
            })
        };
        let took = || shared.0.take(1) && shared.2.load(Ordering::Acquire) == 1;
        let mut woken = true;
        loop {
            if neglect != Neglect::ArmingFirst {
                shared.1.arm();
            }
            shared.0.allow();
            let done = took();
            if neglect == Neglect::ArmingFirst {
                shared.1.arm();
            }
            if done || !woken {
                break;
            }
            woken = eventfds.block(&[1]).is_ok();
            shared.1.disarm();
            if woken && took() {
                break;
            }
        }
        eventfds.end();
        [device, between].into_iter().for_each(|thread| thread.join().unwrap());
        woken
    }

    #[test]
    fn passed_notification_is_not_missed() {
        holds(2, || passed_on(Neglect::Nothing));
    }

    #[test]
    fn unpassed_notification_is_caught() {
        fails(2, || passed_on(Neglect::PassingOn));
    }

    #[test]
    fn late_arming_is_caught() {
        fails(2, || passed_on(Neglect::ArmingFirst));
    }
}
