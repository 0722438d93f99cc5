//! `suspend`: how long it stays masked.

use super::*;

fn plans(policy: &mut ModePolicy, found: u32, times: usize) -> Vec<Plan> {
    (0..times)
        .map(|_| policy.next(Nanos(1), &Seen { found, in_flight: 5, ..Seen::default() }))
        .collect()
}

#[test]
fn suspend_masks_until_polls_fail() {
    let mut policy = of(Mode::SUSPEND);
    let naps =
        |plans: &[Plan]| plans.iter().take_while(|plan| matches!(plan, Plan::Nap { .. })).count();
    let quiet = plans(&mut policy, 0, 12);
    assert_eq!(naps(&quiet), 10);
    assert!(quiet[10..].iter().all(|plan| matches!(plan, Plan::Sleep { .. })));
    plans(&mut policy, 1, 1);
    assert_eq!(naps(&plans(&mut policy, 0, 12)), 9);
}
