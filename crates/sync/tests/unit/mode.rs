use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Interrupt,
    Poll,
    #[cfg_attr(not(loom), allow(dead_code))]
    Unfit,
}

impl From<Mode> for u64 {
    fn from(mode: Mode) -> u64 {
        mode as u64
    }
}

impl TryFrom<u64> for Mode {
    type Error = ();
    fn try_from(word: u64) -> Result<Mode, ()> {
        [Mode::Interrupt, Mode::Poll, Mode::Unfit]
            .into_iter()
            .find(|mode| *mode as u64 == word)
            .ok_or(())
    }
}

#[cfg(not(loom))]
#[test]
fn last_mode_is_adopted_once() {
    let cell = ModeCell::new(Mode::Interrupt);
    assert_eq!((cell.adopt(Mode::Interrupt), cell.is_adopted()), (None, true));
    cell.request(Mode::Poll);
    assert!(!cell.is_adopted());
    cell.request(Mode::Interrupt);
    assert_eq!(cell.adopt(Mode::Interrupt), None);
    cell.request(Mode::Poll);
    assert_eq!((cell.adopt(Mode::Interrupt), cell.is_adopted()), (Some(Mode::Poll), true));
    assert_eq!(cell.adopt(Mode::Poll), None);
    cell.request(Mode::Interrupt);
    assert_eq!(cell.requested(), Some(Mode::Interrupt));
    // Another owner begins, whatever was requested of the one before.
    assert_eq!(cell.begin(|| Mode::Poll), Mode::Poll);
    assert_eq!(
        (cell.requested(), cell.is_adopted(), cell.adopt(Mode::Poll)),
        (Some(Mode::Poll), true, None)
    );
    assert_eq!(cell.adopt(Mode::Interrupt), Some(Mode::Poll));
}

/// A mode requested while an owner begins is adopted later. An owner that began in it would never
/// find the cell settled.
#[cfg(not(loom))]
#[test]
fn owners_begin_in_force() {
    let cell = ModeCell::new(Mode::Interrupt);
    cell.begin(|| Mode::Unfit);
    assert!(cell.replace_request(Mode::Unfit, Mode::Poll));
    let begins = cell.in_force().unwrap();
    assert_eq!((begins, cell.is_adopted()), (Mode::Unfit, false));
    assert_eq!((cell.adopt(begins), cell.is_adopted()), (Some(Mode::Poll), true));
}

#[cfg(not(loom))]
#[test]
fn fallback_replaces_only_unfit_mode() {
    let cell = ModeCell::new(Mode::Poll);
    assert!(!cell.replace_request(Mode::Interrupt, Mode::Poll));
    assert!(cell.replace_request(Mode::Poll, Mode::Interrupt));
    assert_eq!(cell.requested(), Some(Mode::Interrupt));
}

/// A thread requests another mode while a command is in flight and the owner sleeps, or is about
/// to.
#[cfg(loom)]
mod models {
    use super::*;
    use crate::WakeFlag;
    use crate::atomic::AtomicBool;
    use crate::model::{EventFds, fails, holds};
    use crate::{Arc, thread};

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        /// Waking the owner after the request.
        Wake,
        /// The check for another mode between arming and blocking.
        LookAtMode,
        /// The check for entries between arming and blocking.
        LookAtQueue,
    }

    /// The owner ends when its command has completed *and* the change is in force.
    fn switch(from: Mode, to: Mode, omit: Omit) -> bool {
        let cell = Arc::new(ModeCell::new(from));
        let (own, vector) = (Arc::new(WakeFlag::new()), Arc::new(WakeFlag::new()));
        let posted = Arc::new(AtomicBool::new(false));
        let eventfds = EventFds::new(2, 3);
        let device = {
            let (vector, posted, eventfds) = (vector.clone(), posted.clone(), eventfds.clone());
            thread::spawn(move || {
                posted.store(true, Ordering::Release);
                if vector.should_wake() {
                    eventfds.signal(1);
                }
                eventfds.end();
            })
        };
        let asker = {
            let (cell, own, eventfds) = (cell.clone(), own.clone(), eventfds.clone());
            thread::spawn(move || {
                cell.request(to);
                if omit != Omit::Wake && own.claim_wake() {
                    eventfds.signal(0);
                }
                eventfds.end();
            })
        };

        let (mut mode, mut taken, mut woken) = (from, false, true);
        let pending = || posted.load(Ordering::Acquire);
        while woken {
            mode = cell.adopt(mode).unwrap_or(mode);
            taken |= pending();
            if taken && mode == to {
                break;
            }
            if mode == Mode::Poll {
                thread::yield_now();
                continue;
            }
            own.arm();
            vector.arm();
            let adopted = if omit == Omit::LookAtMode { None } else { cell.adopt(mode) };
            mode = adopted.unwrap_or(mode);
            let found = omit != Omit::LookAtQueue && !taken && pending();
            if adopted.is_none() && !found {
                woken = eventfds.block(&[0, 1]).is_ok();
            }
            own.disarm();
            vector.disarm();
        }
        eventfds.end();
        device.join().unwrap();
        asker.join().unwrap();
        woken && cell.is_adopted()
    }

    #[test]
    fn sleeper_learns_of_poll_mode() {
        holds(3, || switch(Mode::Interrupt, Mode::Poll, Omit::Nothing));
    }

    #[test]
    fn poller_switched_to_sleep_misses_none() {
        holds(3, || switch(Mode::Poll, Mode::Interrupt, Omit::Nothing));
    }

    #[test]
    fn missing_wake_up_is_caught() {
        fails(2, || switch(Mode::Interrupt, Mode::Poll, Omit::Wake));
    }

    #[test]
    fn missing_mode_check_is_caught() {
        fails(2, || switch(Mode::Interrupt, Mode::Poll, Omit::LookAtMode));
    }

    #[test]
    fn missing_poll_before_sleep_is_caught() {
        fails(2, || switch(Mode::Poll, Mode::Interrupt, Omit::LookAtQueue));
    }

    /// The controller thread replaces a mode that does not fit while the application requests one
    /// that does. Returns whether the latter stands.
    fn takes_back(fall_back: fn(&ModeCell<Mode>)) -> bool {
        let cell = Arc::new(ModeCell::new(Mode::Unfit));
        let application = {
            let cell = cell.clone();
            thread::spawn(move || cell.request(Mode::Poll))
        };
        fall_back(&cell);
        application.join().unwrap();
        cell.requested() == Some(Mode::Poll)
    }

    #[test]
    fn fallback_keeps_a_newer_mode() {
        holds(3, || takes_back(|cell| _ = cell.replace_request(Mode::Unfit, Mode::Interrupt)));
    }

    #[test]
    fn fallback_by_store_is_caught() {
        let store = |cell: &ModeCell<Mode>| {
            if cell.requested() == Some(Mode::Unfit) {
                cell.request(Mode::Interrupt);
            }
        };
        fails(2, move || takes_back(store));
    }

    /// A queue begins while the start mode of its device's queues changes. Returns whether it gets
    /// the new one.
    fn begins(begin: fn(&ModeCell<Mode>, &dyn Fn() -> Mode)) -> bool {
        let cell = Arc::new(ModeCell::new(Mode::Interrupt));
        let default = Arc::new(AtomicU64::new(Mode::Interrupt.into()));
        let application = {
            let (cell, default) = (cell.clone(), default.clone());
            thread::spawn(move || {
                default.store(Mode::Poll.into(), Ordering::Relaxed);
                cell.request(Mode::Poll);
            })
        };
        begin(&cell, &|| Mode::try_from(default.load(Ordering::Relaxed)).unwrap());
        application.join().unwrap();
        cell.requested() == Some(Mode::Poll)
    }

    #[test]
    fn new_queue_gets_new_mode() {
        holds(3, || begins(|cell, default| _ = cell.begin(default)));
    }

    #[test]
    fn start_by_store_is_caught() {
        let stores = |cell: &ModeCell<Mode>, default: &dyn Fn() -> Mode| {
            cell.request(default());
            cell.request(default());
        };
        fails(2, move || begins(stores));
    }
}
