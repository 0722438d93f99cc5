use super::*;

/// Runs windows on a machine that completes `own` or `other` commands per window. Returns how
/// many windows used the other CPU, and how often it was tried.
fn play(placer: &mut Placer, windows: u32, own: u64, other: u64, waits: u64) -> (u32, u32) {
    let (mut moved, mut away, mut switches) = (false, 0, 0);
    for _ in 0..windows {
        let completed = if moved { other } else { own };
        away += u32::from(moved);
        let next = placer.window(completed, if moved { completed } else { waits }, 0);
        switches += u32::from(next && !moved);
        moved = next;
    }
    (away, switches)
}

#[test]
fn better_placement_is_kept() {
    let (away, tries) = play(&mut Placer::default(), 2_000, 250, 300, 0);
    assert_eq!((away, tries), (1_997, 2));
}

/// Polls find 64 entries each, and the thread sleeps in between.
#[test]
fn sleeping_threads_are_not_moved() {
    let mut placer = Placer::default();
    assert!(!(0..100).any(|_| placer.window(4_000, 60, 60)));
}

#[test]
fn failed_trials_become_rare() {
    for other in [100, 250, 257] {
        let (away, tries) = play(&mut Placer::default(), 1_900, 250, other, 0);
        assert!(away == 2 * tries && (1..=6).contains(&tries), "{other}: {away} {tries}");
    }
}

#[test]
fn waiting_threads_are_not_moved() {
    assert_eq!(play(&mut Placer::default(), 2_000, 250, 300, 10), (0, 0));
    assert_eq!(play(&mut Placer::default(), 2_000, 30, 300, 0), (0, 0));
}

#[test]
fn lower_load_moves_back() {
    let mut placer = Placer::default();
    play(&mut placer, 100, 250, 300, 0);
    let (away, _) = play(&mut placer, 1_000, 120, 120, 60);
    assert!(away <= 1, "{away}");
}
