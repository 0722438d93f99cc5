#[cfg(not(loom))]
mod unit {
    use proptest::prelude::*;

    use super::super::*;

    const A: WaiterId = WaiterId(0);
    const B: WaiterId = WaiterId(1);
    const C: WaiterId = WaiterId(2);

    #[test]
    fn the_first_owns_and_hands_on_in_the_order_of_arrival() {
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
    fn an_heir_that_leaves_before_it_wakes_hands_on() {
        let role = NotificationRole::new(3);
        assert!(role.try_take(A) && !role.try_take(B) && !role.try_take(C));
        assert_eq!(role.release(A), Some(B));
        assert_eq!(role.release(B), Some(C));
    }

    #[test]
    fn one_that_only_waits_is_struck_off() {
        let role = NotificationRole::new(2);
        assert!(role.try_take(A) && !role.try_take(B));
        assert_eq!(role.release(B), None);
        assert_eq!(role.release(A), None);
    }

    /// How a release may go wrong.
    #[derive(Clone, Copy)]
    enum Twin {
        Sound,
        /// The owner leaves without handing on.
        Abandons,
    }

    /// While any thread is registered exactly one of them owns the role, and the one that is named owns it.
    fn one_owner(steps: &[(bool, u32)], twin: Twin) -> Result<(), String> {
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
                    return Err(format!("{me:?} was told {owns}"));
                }
            } else {
                registered.retain(|other| *other != me);
                let abandons = matches!(twin, Twin::Abandons) && role.owner() == Some(me);
                let heir = if abandons { None } else { role.release(me) };
                if heir.is_some() && heir != role.owner() {
                    return Err(format!("{heir:?} was named but does not own the role"));
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
            prop_assert_eq!(one_owner(&steps, Twin::Sound), Ok(()));
        }
    }

    #[test]
    fn an_owner_that_abandons_the_role_is_noticed() {
        assert!(one_owner(&[(true, 0), (true, 1), (false, 0)], Twin::Abandons).is_err());
    }
}

/// Two threads that share a queue, each with one command in flight, sleep until theirs has completed.
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

    /// A submitter takes one of two entries and leaves, while the one who waits for the other goes to sleep.
    fn passer_with_a_budget(omit: Omit) -> bool {
        Queue::play_letting_be(Mode::INTERRUPT, &[1, 0], omit, |queue| {
            queue.check(1, 1);
            Ok(())
        })
    }

    #[test]
    fn both_are_told() {
        holds(2, || two_sleepers(Mode::INTERRUPT, Omit::Nothing));
    }

    #[test]
    fn both_are_told_where_they_mask() {
        holds(2, || two_sleepers(Mode::IRQ_POLL, Omit::Nothing));
    }

    #[test]
    fn an_owner_that_leaves_without_handing_on_strands_the_other() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::HandOn));
    }

    #[test]
    fn an_heir_that_is_not_woken_sleeps_on() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::WakeHeir));
    }

    #[test]
    fn a_bell_armed_after_registering_misses_the_hand_over() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::ArmFirst));
    }

    #[test]
    fn without_waking_whose_entry_was_taken_it_sleeps_on() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::WakeWhoseEntry));
    }

    #[test]
    fn without_the_look_for_mail_it_sleeps_on() {
        fails(2, || two_sleepers(Mode::INTERRUPT, Omit::Mail));
    }

    #[test]
    fn a_passer_that_leaves_entries_behind_wakes_the_owner() {
        holds(2, || passer_with_a_budget(Omit::Nothing));
    }

    #[test]
    fn without_waking_the_owner_they_are_left() {
        fails(2, || passer_with_a_budget(Omit::WakeOwner));
    }

    #[test]
    fn a_taker_from_a_drain_thread_is_told_by_itself() {
        holds(2, || Queue::play_dismissal(true, Omit::Nothing));
    }

    #[test]
    fn without_a_look_after_the_end_an_entry_of_before_is_left() {
        fails(2, || Queue::play_dismissal(true, Omit::LookAfterEnd));
    }

    #[test]
    fn nobody_arms_what_it_masks() {
        holds(2, || Queue::play_dismissal(false, Omit::Nothing));
    }

    #[test]
    fn without_waiting_for_the_end_the_drain_thread_arms_the_vector_behind_its_back() {
        fails(2, || Queue::play_dismissal(false, Omit::Join));
    }
    #[test]
    fn a_drain_thread_that_does_not_ask_before_it_blocks_never_ends() {
        fails(2, || Queue::play_dismissal(true, Omit::Wanted));
    }
}
