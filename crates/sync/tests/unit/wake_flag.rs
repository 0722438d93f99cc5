use super::*;

#[cfg(not(loom))]
mod unit {
    use super::*;

    #[test]
    fn flag_is_disarmed_until_armed() {
        let flag = WakeFlag::new();
        assert!(!flag.should_wake() && !flag.claim_wake());
        flag.arm();
        assert!(flag.should_wake() && flag.should_wake() && flag.is_armed());
        flag.disarm();
        assert!(!flag.should_wake());
    }

    #[test]
    fn one_signal_per_sleep() {
        let flag = WakeFlag::new();
        flag.arm();
        assert!(flag.claim_wake());
        assert!(!flag.claim_wake());
    }
}

/// A sleeper (arm, check, sleep) against a waker (publish, fence, read the flag).
#[cfg(loom)]
mod models {
    use super::*;
    use crate::atomic::AtomicU64;
    use crate::model::{EventFds, fails, holds};
    use crate::{Arc, thread};

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        SleepersFence,
        SecondLook,
        TellersFence,
    }

    /// Publishes `entries` entries one by one, and signals after each if it `rings`.
    fn teller(
        entries: u64,
        flag: &Arc<WakeFlag>,
        published: &Arc<AtomicU64>,
        eventfds: &Arc<EventFds>,
        rings: impl Fn(&WakeFlag) -> bool + 'static,
    ) -> thread::JoinHandle<()> {
        let (flag, published, eventfds) = (flag.clone(), published.clone(), eventfds.clone());
        thread::spawn(move || {
            for entry in 1..=entries {
                published.store(entry, Ordering::Release);
                if rings(&flag) {
                    eventfds.signal(0);
                }
            }
            eventfds.end();
        })
    }

    /// One sleeper waits for `entries` entries that another thread publishes one by one. The
    /// sleeper masks while awake.
    fn arm_look_sleep(entries: u64, once: bool, omit: Omit) -> bool {
        let flag = Arc::new(WakeFlag::new());
        let published = Arc::new(AtomicU64::new(0));
        let eventfds = EventFds::new(1, 2);

        let rings = move |flag: &WakeFlag| match omit {
            Omit::TellersFence => flag.is_armed(),
            _ if once => flag.claim_wake(),
            _ => flag.should_wake(),
        };
        let teller = teller(entries, &flag, &published, &eventfds, rings);

        let seen = || published.load(Ordering::Acquire) == entries;
        let mut woken = true;
        while woken && !seen() {
            match omit {
                Omit::SleepersFence => flag.set_armed(),
                _ => flag.arm(),
            }
            if omit == Omit::SecondLook || !seen() {
                woken = eventfds.block(&[0]).is_ok();
            }
            flag.disarm();
        }
        eventfds.end();
        teller.join().unwrap();
        woken
    }

    /// The same, but the sleeper leaves the flag armed after its first sleep, checks, and blocks
    /// again without another check. After the second sleep it masks, and `forgets` it.
    fn stays_armed(entries: u64, forgets: bool) -> bool {
        let flag = Arc::new(WakeFlag::new());
        let published = Arc::new(AtomicU64::new(0));
        let eventfds = EventFds::new(1, 2);

        let teller = teller(entries, &flag, &published, &eventfds, WakeFlag::should_wake);

        let seen = || published.load(Ordering::Acquire) == entries;
        let (mut woken, mut kept, mut sleeps) = (true, false, 0);
        while woken && !seen() {
            if !kept {
                flag.arm();
            }
            if kept || !seen() {
                woken = eventfds.block(&[0]).is_ok();
            }
            sleeps += 1;
            if sleeps == 1 {
                kept = true;
            } else {
                flag.disarm();
                kept = forgets;
            }
        }
        eventfds.end();
        teller.join().unwrap();
        woken
    }

    #[test]
    fn staying_armed_loses_no_wake_up() {
        holds(3, || stays_armed(3, false));
    }

    #[test]
    fn masking_while_armed_is_caught() {
        fails(3, || stays_armed(3, true));
    }

    #[test]
    fn no_wake_up_is_lost() {
        holds(3, || arm_look_sleep(2, false, Omit::Nothing));
    }

    #[test]
    fn single_signal_loses_no_wake_up() {
        holds(3, || arm_look_sleep(2, true, Omit::Nothing));
    }

    #[test]
    fn missing_sleeper_fence_is_caught() {
        fails(3, || arm_look_sleep(1, false, Omit::SleepersFence));
    }

    #[test]
    fn missing_waker_fence_is_caught() {
        fails(3, || arm_look_sleep(1, false, Omit::TellersFence));
    }

    #[test]
    fn missing_second_check_is_caught() {
        fails(3, || arm_look_sleep(1, false, Omit::SecondLook));
    }
}
