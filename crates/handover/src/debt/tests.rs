use super::*;

#[cfg(not(loom))]
mod unit {
    use super::*;

    #[test]
    fn a_sender_that_stops_with_a_debt_wakes_the_sleeper_or_stays() {
        let (debt, bell) = (Debt::new(), Bell::new());
        bell.arm();
        assert!(!debt.owes());
        assert_eq!((debt.leave(Some(&bell)), debt.leave(None)), (Leave::Free, Leave::Free));
        debt.note(true);
        assert!(debt.owes());
        assert_eq!(debt.leave(None), Leave::Stay);
        // Two debtors: one signal.
        assert_eq!((debt.leave(Some(&bell)), debt.leave(Some(&bell))), (Leave::Signal, Leave::Free));
    }

    #[test]
    fn what_is_settled_meanwhile_wakes_nobody() {
        let (debt, bell) = (Debt::new(), Bell::new());
        bell.arm();
        debt.note(true);
        debt.note(false);
        assert_eq!((debt.leave(Some(&bell)), debt.leave(None)), (Leave::Free, Leave::Free));
        assert!(bell.is_armed());
    }

    #[test]
    fn a_sleeper_that_is_awake_asks_by_itself() {
        let (debt, bell) = (Debt::new(), Bell::new());
        debt.note(true);
        assert_eq!(debt.leave(Some(&bell)), Leave::Free);
        bell.arm();
        assert!(debt.owes());
    }
}

/// A lane of bytes whose far end takes none until it makes room, and answers when it has got all.
#[cfg(loom)]
mod models {
    use super::*;
    use crate::model::{EventFds, LostWakeUp, fails, holds};
    use crate::sync::atomic::AtomicUsize;
    use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release};
    use crate::sync::thread::JoinHandle;
    use crate::sync::{Arc, Mutex, lock, thread};
    use crate::{LookRole, SleeperId};

    /// A step that a broken twin leaves out.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Omit {
        Nothing,
        /// The debtor's ring.
        Ring,
        /// The fence in it.
        DebtorsFence,
        /// The sleeper's fence.
        SleepersFence,
        /// Asking after arming: the sleeper asks before.
        AskAfterArming,
        /// Asking at all.
        Ask,
        /// Releasing the role before asking: the owner that leaves asks while it still has it.
        ReleaseFirst,
        /// Staying, where nobody sleeps.
        Stay,
    }

    /// Threads of the host, by number; each blocks on the descriptor of its number.
    const HOSTS: usize = 2;
    const READABLE: usize = HOSTS;
    const WRITABLE: usize = HOSTS + 1;
    const ARRIVED: usize = HOSTS + 2;
    const OWN: [&[usize]; HOSTS] = [&[0], &[1]];
    const READING: [&[usize]; HOSTS] = [&[0, READABLE], &[1, READABLE]];
    const OWING: [&[usize]; HOSTS] = [&[0, READABLE, WRITABLE], &[1, READABLE, WRITABLE]];

    struct Lane {
        /// What is unsent, under the send lock.
        unsent: Mutex<usize>,
        debt: Debt,
        role: LookRole,
        bells: [Bell; HOSTS],
        /// What the socket takes now, whether it has ever taken anything, and what it has taken.
        room: AtomicUsize,
        writable: AtomicUsize,
        arrived: AtomicUsize,
        /// The answer to everything.
        answered: AtomicUsize,
        fds: Arc<EventFds>,
        omit: Omit,
    }

    impl Lane {
        fn new(threads: usize, omit: Omit) -> Arc<Lane> {
            Arc::new(Lane {
                unsent: Mutex::new(0),
                debt: Debt::new(),
                role: LookRole::new(HOSTS),
                bells: Default::default(),
                room: AtomicUsize::new(0),
                writable: AtomicUsize::new(0),
                arrived: AtomicUsize::new(0),
                answered: AtomicUsize::new(0),
                fds: EventFds::new(HOSTS + 3, threads),
                omit,
            })
        }

        fn spawn(lane: &Arc<Lane>, part: impl FnOnce(&Lane) -> Result<(), LostWakeUp> + 'static) -> JoinHandle<bool> {
            let lane = lane.clone();
            thread::spawn(move || {
                let told = part(&lane).is_ok();
                lane.fds.end();
                told
            })
        }

        /// The far end: makes room for so many bytes, and answers when it has got them.
        fn far_end(&self, bytes: usize) -> Result<(), LostWakeUp> {
            self.room.fetch_add(bytes, AcqRel);
            self.writable.store(1, Release);
            self.fds.signal(WRITABLE);
            while self.arrived.load(Acquire) < bytes {
                self.fds.block(&[ARRIVED])?;
            }
            self.answered.store(1, Release);
            self.fds.signal(READABLE);
            Ok(())
        }

        /// Host: blocks. A socket that takes bytes is writable for all who wait for that, not for the first alone.
        fn block(&self, fds: &'static [usize]) -> Result<(), LostWakeUp> {
            self.fds.block(fds)?;
            if fds.contains(&WRITABLE) && self.writable.load(Acquire) == 1 {
                self.fds.signal(WRITABLE);
            }
            Ok(())
        }

        /// Host: commits so many bytes, and sends what the socket takes of all that is unsent.
        fn send(&self, more: usize) {
            let mut unsent = lock(&self.unsent);
            *unsent += more;
            let taken = self.room.load(Acquire).min(*unsent);
            if taken > 0 {
                self.room.fetch_sub(taken, AcqRel);
                *unsent -= taken;
                self.arrived.fetch_add(taken, AcqRel);
                self.fds.signal(ARRIVED);
            }
            self.debt.note(*unsent > 0);
        }

        /// Host: what it does about what is unsent when it stops. `sleeper`: who sleeps on the lane.
        fn leave(&self, sleeper: Option<usize>) -> Leave {
            let bell = sleeper.map(|host| &self.bells[host]);
            match (self.omit, bell) {
                (Omit::Ring, Some(_)) => Leave::Free,
                (Omit::DebtorsFence, Some(bell)) if self.debt.owes() && bell.is_armed() => Leave::Signal,
                (Omit::DebtorsFence, Some(_)) => Leave::Free,
                _ => self.debt.leave(bell),
            }
        }

        /// Host: stops. On a lane with a role the sleeper is the owner of the moment.
        fn stop(&self, sleeper: impl Fn() -> Option<usize>) -> Result<(), LostWakeUp> {
            loop {
                let sleeper = sleeper();
                match (self.leave(sleeper), sleeper) {
                    (Leave::Signal, Some(host)) => self.fds.signal(host),
                    (Leave::Stay, _) if self.omit != Omit::Stay => {
                        self.block(&[WRITABLE])?;
                        self.send(0);
                        continue;
                    }
                    _ => {}
                }
                return Ok(());
            }
        }

        fn owner(&self) -> Option<usize> {
            self.role.owner().map(|owner| owner.0 as usize)
        }

        /// Host: one sleep on the lane, unless the answer is there; `owner` of the lane's notifications or not.
        fn sleep(&self, me: usize, owner: impl FnOnce() -> bool) -> Result<(), LostWakeUp> {
            let early = self.debt.owes();
            match self.omit {
                Omit::SleepersFence => self.bells[me].set_armed(),
                _ => self.bells[me].arm(),
            }
            let owner = owner();
            let owes = match self.omit {
                Omit::AskAfterArming => early,
                Omit::Ask => false,
                _ => self.debt.owes(),
            };
            if self.answered.load(Acquire) == 0 {
                self.block(if !owner {
                    OWN[me]
                } else if owes {
                    OWING[me]
                } else {
                    READING[me]
                })?;
            }
            self.bells[me].mask();
            if owner && self.debt.owes() {
                self.send(0);
            }
            Ok(())
        }
    }

    /// Host 0 alone sleeps on the lane, until the answer is there; others commit a byte each and go their ways.
    fn debtors(others: usize, omit: Omit) -> bool {
        let lane = Lane::new(2 + others, omit);
        let far = Lane::spawn(&lane, move |lane| lane.far_end(others));
        let threads: Vec<_> = (0..others)
            .map(|_| {
                Lane::spawn(&lane, |lane| {
                    lane.send(1);
                    lane.stop(|| Some(0))
                })
            })
            .collect();
        let mut told = true;
        while told && lane.answered.load(Acquire) == 0 {
            told = lane.sleep(0, || true).is_ok();
        }
        lane.fds.end();
        threads.into_iter().fold(far.join().unwrap() && told, |told, thread| thread.join().unwrap() && told)
    }

    /// Host 0 has the role, is awake and leaves; another thread commits a byte meanwhile, and leaves too.
    fn leaver(omit: Omit) -> bool {
        let lane = Lane::new(3, omit);
        assert!(lane.role.try_take(SleeperId(0)));
        let far = Lane::spawn(&lane, |lane| lane.far_end(1));
        let debtor = Lane::spawn(&lane, |lane| {
            lane.send(1);
            lane.stop(|| lane.owner())
        });
        let told = if omit == Omit::ReleaseFirst {
            let told = lane.stop(|| lane.owner());
            lane.role.release(SleeperId(0));
            told
        } else {
            lane.role.release(SleeperId(0));
            lane.stop(|| lane.owner())
        };
        lane.fds.end();
        [far.join().unwrap(), debtor.join().unwrap(), told.is_ok()].into_iter().all(|told| told)
    }

    /// Host 1 sleeps without the role until the answer is there. Host 0, which has the role, commits a byte, hands on, and leaves.
    fn heir(omit: Omit) -> bool {
        let lane = Lane::new(3, omit);
        assert!(lane.role.try_take(SleeperId(0)));
        let far = Lane::spawn(&lane, |lane| lane.far_end(1));
        let heir = Lane::spawn(&lane, |lane| {
            while lane.answered.load(Acquire) == 0 {
                lane.sleep(1, || lane.role.try_take(SleeperId(1)))?;
            }
            lane.role.release(SleeperId(1));
            lane.stop(|| lane.owner())
        });
        lane.send(1);
        let named = lane.role.release(SleeperId(0));
        if let Some(heir) = named
            && lane.bells[heir.0 as usize].ring_once()
        {
            lane.fds.signal(heir.0 as usize);
        }
        let told = lane.stop(|| lane.owner());
        lane.fds.end();
        [far.join().unwrap(), heir.join().unwrap(), told.is_ok()].into_iter().all(|told| told)
    }

    #[test]
    fn no_debt_is_left_to_a_sleeper_that_does_not_know() {
        holds(3, || debtors(1, Omit::Nothing));
    }

    #[test]
    fn two_debtors_are_settled_by_one_sleeper() {
        holds(1, || debtors(2, Omit::Nothing));
    }

    #[test]
    fn a_debtor_that_does_not_ring_leaves_it_unsent() {
        fails(2, || debtors(1, Omit::Ring));
    }

    #[test]
    fn without_the_debtors_fence_it_is_left_unsent() {
        fails(2, || debtors(1, Omit::DebtorsFence));
    }

    #[test]
    fn without_the_sleepers_fence_it_is_left_unsent() {
        fails(2, || debtors(1, Omit::SleepersFence));
    }

    #[test]
    fn a_sleeper_that_asks_before_it_arms_misses_it() {
        fails(2, || debtors(1, Omit::AskAfterArming));
    }

    #[test]
    fn a_sleeper_that_does_not_ask_waits_for_ever() {
        fails(2, || debtors(1, Omit::Ask));
    }

    #[test]
    fn the_last_to_leave_settles() {
        holds(2, || leaver(Omit::Nothing));
    }

    #[test]
    fn an_owner_that_asks_before_it_releases_the_role_leaves_it_to_nobody() {
        fails(2, || leaver(Omit::ReleaseFirst));
    }

    #[test]
    fn a_debtor_that_does_not_stay_leaves_it_to_nobody() {
        fails(2, || leaver(Omit::Stay));
    }

    #[test]
    fn the_debt_goes_with_the_role() {
        holds(2, || heir(Omit::Nothing));
    }

    #[test]
    fn an_heir_that_does_not_ask_does_not_settle() {
        fails(2, || heir(Omit::Ask));
    }
}
