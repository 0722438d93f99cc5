use super::*;

#[cfg(not(loom))]
mod unit {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn full_inbox_returns_the_rest() {
        let inbox = Inbox::new(2);
        assert_eq!(inbox.push_all([1, 2, 3, 4]), Some(3));
        assert_eq!(inbox.push(5), Err(5));
        assert_eq!(inbox.pop(), Some(1));
        assert_eq!(inbox.push(6), Ok(()));
        let mut taken = Vec::new();
        assert_eq!((inbox.take(1, &mut taken), inbox.is_empty()), (1, false));
        assert_eq!((inbox.take(9, &mut taken), inbox.is_empty()), (1, true));
        assert_eq!((taken, inbox.pop(), inbox.take(1, &mut Vec::new())), (vec![2, 6], None, 0));
    }

    #[test]
    fn nothing_is_allocated_after_the_start() {
        let inbox = Inbox::new(32);
        let before = lock(&inbox.items).capacity();
        for round in 0..100u32 {
            assert_eq!(inbox.push_all(0..32), None);
            assert_eq!(inbox.take(round as usize % 33, &mut Vec::new()), round as usize % 33);
            while inbox.pop().is_some() {}
        }
        assert_eq!(lock(&inbox.items).capacity(), before);
    }

    proptest! {
        #[test]
        fn it_is_a_bounded_queue(capacity in 1..5usize, steps in prop::collection::vec((0..3u8, 0..6usize), 0..60)) {
            let (inbox, mut naive, mut next) = (Inbox::new(capacity), VecDeque::new(), 0);
            for (step, count) in steps {
                match step {
                    0 => {
                        let fits = count.min(capacity - naive.len());
                        naive.extend(next..next + fits);
                        let refused = inbox.push_all(next..next + count);
                        prop_assert_eq!(refused, (fits < count).then_some(next + fits));
                        next += count;
                    }
                    1 => prop_assert_eq!(inbox.pop(), naive.pop_front()),
                    _ => {
                        let mut taken = Vec::new();
                        inbox.take(count, &mut taken);
                        prop_assert_eq!(taken, naive.drain(..count.min(naive.len())).collect::<Vec<_>>());
                    }
                }
                prop_assert_eq!(inbox.is_empty(), naive.is_empty());
            }
        }
    }
}

/// Two threads push completions for a third, which sleeps between them.
#[cfg(loom)]
mod models {
    use super::*;
    use crate::WakeFlag;
    use crate::model::{EventFds, fails, holds};
    use crate::{Arc, thread};

    #[derive(Clone, Copy, PartialEq)]
    enum Omit {
        Nothing,
        /// The producers signal before they push.
        PushFirst,
        /// The owner's check between arming and blocking.
        SecondLook,
        /// The owner's fence between arming and checking.
        Fence,
    }

    const PRODUCERS: u32 = 2;

    fn producers_and_a_sleeping_owner(omit: Omit) -> bool {
        let inbox = Arc::new(Inbox::new(PRODUCERS as usize));
        let flag = Arc::new(WakeFlag::new());
        let eventfds = EventFds::new(1, 1 + PRODUCERS as usize);
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|token| {
                let (inbox, flag, eventfds) = (inbox.clone(), flag.clone(), eventfds.clone());
                thread::spawn(move || {
                    let early = omit == Omit::PushFirst && flag.claim_wake();
                    assert_eq!(inbox.push(token), Ok(()));
                    if early || omit != Omit::PushFirst && flag.claim_wake() {
                        eventfds.signal(0);
                    }
                    eventfds.end();
                })
            })
            .collect();

        let mut tokens = Vec::new();
        let mut woken = true;
        while woken && tokens.len() < PRODUCERS as usize {
            match omit {
                Omit::Fence => flag.set_armed(),
                _ => flag.arm(),
            }
            if omit == Omit::SecondLook || inbox.is_empty() {
                woken = eventfds.block(&[0]).is_ok();
            }
            flag.disarm();
            inbox.take(usize::MAX, &mut tokens);
        }
        eventfds.end();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        tokens.sort_unstable();
        woken && tokens == [0, 1]
    }

    #[test]
    fn each_completion_arrives_once() {
        holds(3, || producers_and_a_sleeping_owner(Omit::Nothing));
    }

    #[test]
    fn signal_before_push_is_caught() {
        fails(2, || producers_and_a_sleeping_owner(Omit::PushFirst));
    }

    #[test]
    fn missing_second_check_is_caught() {
        fails(2, || producers_and_a_sleeping_owner(Omit::SecondLook));
    }

    #[test]
    fn missing_fence_is_caught() {
        fails(2, || producers_and_a_sleeping_owner(Omit::Fence));
    }
}
