//! What a policy that comes after another one knows.

use super::closed::Loop;
use super::*;
use crate::policy::{Rule, of};
use crate::{Mode, ModePolicy};

/// What was learnt before `modes` is what is asked for after them, before anything is sent.
fn holds_after(modes: &[Mode]) -> (u16, u16) {
    let mut closed = Loop::new(LatencyPrice::default(), 64, true);
    closed.run(20_000);
    let learnt = closed.policy.holds();
    let mut policy = ModePolicy { rule: Rule::Adaptive(Box::new(closed.policy)), ..of(Mode::ADAPTIVE) };
    for &mode in modes {
        policy = ModePolicy::new(mode, &MACHINE, Some(policy));
    }
    let Rule::Adaptive(policy) = policy.rule else { panic!("{:?}", policy.mode()) };
    (learnt, policy.holds())
}

#[test]
fn what_was_learnt_outlives_other_modes() {
    for modes in [&[Mode::ADAPTIVE][..], &[Mode::VIC, Mode::ADAPTIVE], &[Mode::POLL, Mode::INTERRUPT, Mode::ADAPTIVE]] {
        let (learnt, kept) = holds_after(modes);
        assert!(learnt >= 2 && learnt == kept, "{learnt} {kept}");
    }
}

#[test]
fn price_change_keeps_measurements() {
    let mut earlier = policy(LatencyPrice::default());
    let woke = Woke { cause: Cause::Timer, late: Nanos(50_000) };
    (0..1_000).for_each(|_| {
        earlier.price.took(true, Some(Nanos(20_000)), woke, Nanos(100_000));
    });
    let late = earlier.price.late;
    let mut later = policy(LatencyPrice::per_mille(1_000));
    later.inherit(earlier);
    assert_eq!((later.price.lambda, later.price.late), (1.0, late));
    assert!(late > MACHINE.late);
}
