#[cfg(not(loom))]
mod unit {
    use proptest::prelude::*;

    use super::super::*;

    const A: WaiterId = WaiterId(0);
    const B: WaiterId = WaiterId(1);
    const C: WaiterId = WaiterId(2);

    #[test]
    fn role_passes_in_arrival_order() {
        let role = NotificationRole::new(3);
        assert!(role.try_take(A));
        assert!(!role.try_take(B));
        assert!(!role.try_take(C));
        assert!(!role.try_take(B));
        assert_eq!(role.release(A), Some(B));
        assert_eq!(role.owner(), Some(B));
        assert!(role.try_take(B));
        assert_eq!(role.release(B), Some(C));
        assert_eq!(role.release(C), None);
        assert_eq!(role.owner(), None);
    }

    #[test]
    fn leaving_heir_passes_the_role() {
        let role = NotificationRole::new(3);
        assert!(role.try_take(A) && !role.try_take(B) && !role.try_take(C));
        assert_eq!(role.release(A), Some(B));
        assert_eq!(role.release(B), Some(C));
    }

    #[test]
    fn leaving_waiter_is_removed() {
        let role = NotificationRole::new(2);
        assert!(role.try_take(A) && !role.try_take(B));
        assert_eq!(role.release(B), None);
        assert_eq!(role.release(A), None);
    }

    /// How a release may go wrong.
    #[derive(Clone, Copy)]
    enum Mutant {
        Sound,
        /// The owner leaves without handing on.
        Abandons,
    }

    /// While any thread is registered exactly one of them owns the role, and the one that is named
    /// owns it.
    fn one_owner(steps: &[(bool, u32)], mutant: Mutant) -> Result<(), String> {
        let role = NotificationRole::new(8);
        let mut registered = Vec::new();
        for &(sleeps, id) in steps {
            let me = WaiterId(id);
            if sleeps {
                let owns = role.try_take(me);
                if !registered.contains(&me) {
                    registered.push(me);
                }
                if owns != (role.owner() == Some(me)) {
                    return Err(format!("{me:?} was woken {owns}"));
                }
            } else {
                registered.retain(|other| *other != me);
                let abandons = matches!(mutant, Mutant::Abandons) && role.owner() == Some(me);
                let successor = if abandons { None } else { role.release(me) };
                if successor.is_some() && successor != role.owner() {
                    return Err(format!("{successor:?} was named but does not own the role"));
                }
            }
            match role.owner() {
                None if registered.is_empty() => {}
                Some(owner) if registered.contains(&owner) => {}
                owner => return Err(format!("{owner:?} owns the role of {registered:?}")),
            }
        }
        Ok(())
    }

    fn steps() -> impl Strategy<Value = Vec<(bool, u32)>> {
        prop::collection::vec((any::<bool>(), 0..5u32), 1..40)
    }

    proptest! {
        #[test]
        fn while_anybody_sleeps_exactly_one_owns(steps in steps()) {
            prop_assert_eq!(one_owner(&steps, Mutant::Sound), Ok(()));
        }
    }

    #[test]
    fn abandoned_role_is_noticed() {
        assert!(one_owner(&[(true, 0), (true, 1), (false, 0)], Mutant::Abandons).is_err());
    }
}

/// Two threads that share a queue, each with one command in flight, sleep until theirs has
/// completed.
#[cfg(loom)]
mod models {
    use completion::Mode;

    use crate::model::{Omit, Queue, fails, holds};

    fn two_sleepers(mode: Mode, omit: Omit) -> bool {
        let other = if mode == Mode::INTERRUPT {
            |queue: &Queue| queue.wait(1, Mode::INTERRUPT)
        } else {
            |queue: &Queue| queue.wait(1, Mode::IRQ_POLL)
        };
        Queue::play(mode, &[0, 1], omit, other)
    }

    /// A submitter takes one of two entries and leaves, while the thread that waits for the other
    /// goes to sleep.
    fn passer_with_a_budget(omit: Omit) -> bool {
        Queue::play_ignoring_locked(Mode::INTERRUPT, &[1, 0], omit, |queue| {
            queue.check(1, 1);
            Ok(())
        })
    }

    #[test]
    fn both_sleepers_are_woken() {
        holds(2, || two_sleepers(Mode::INTERRUPT, Omit::Nothing));
    }

    #[test]
    fn both_masking_sleepers_are_woken() {
        holds(2, || two_sleepers(Mode::IRQ_POLL, Omit::Nothing));
    }

    #[test]
    fn leaving_without_hand_over_is_caught() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::HandOffRole));
    }

    #[test]
    fn unwoken_heir_is_caught() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::WakeHeir));
    }

    #[test]
    fn arming_after_registering_is_caught() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::ArmFirst));
    }

    #[test]
    fn unwoken_entry_owner_is_caught() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::WakeWhoseEntry));
    }

    #[test]
    fn missing_inbox_check_is_caught() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::Mail));
    }

    #[test]
    fn leftover_entries_wake_the_owner() {
        holds(2, || passer_with_a_budget(Omit::Nothing));
    }

    #[test]
    fn unwoken_role_owner_is_caught() {
        fails(2, || passer_with_a_budget(Omit::WakeOwner));
    }

    #[test]
    fn drain_thread_hands_over_the_role() {
        holds(2, || Queue::play_dismissal(true, Omit::Nothing));
    }

    #[test]
    fn missing_poll_after_end_is_caught() {
        fails(2, || Queue::play_dismissal(true, Omit::LookAfterEnd));
    }

    #[test]
    fn no_thread_rearms_masked_vector() {
        holds(2, || Queue::play_dismissal(false, Omit::Nothing));
    }

    #[test]
    fn not_joining_drain_thread_is_caught() {
        fails(2, || Queue::play_dismissal(false, Omit::Join));
    }
    #[test]
    fn drain_thread_without_check_is_caught() {
        fails(2, || Queue::play_dismissal(true, Omit::Wanted));
    }
}
