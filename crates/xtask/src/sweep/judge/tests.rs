use proptest::prelude::*;

use super::*;

fn fare(cpu: f64, mean: f64, p99: f64, iops: f64) -> Fare {
    Fare { cpu, mean, p99, iops }
}

const OWN: Fare = Fare { cpu: 1_000.0, mean: 1_000.0, p99: 1_000.0, iops: 1_000.0 };

/// At each limit, and just beyond it.
#[test]
fn open_loop_dominated_from_limits() {
    let dominates = |cpu, mean, p99| fare(cpu, mean, p99, 1.0).dominates(&OWN, true);
    assert!(dominates(950.0, 1_050.0, 1_050.0));
    assert!(!dominates(950.001, 1_050.0, 1_050.0));
    assert!(!dominates(950.0, 1_050.001, 1_050.0));
    assert!(!dominates(950.0, 1_050.0, 1_050.001));
    assert!(dominates(1.0, 1.0, 1.0) && !dominates(2_000.0, 1.0, 1.0), "sooner, and at any price");
}

/// Latencies say nothing there, and I/Os per second nothing in an open loop.
#[test]
fn closed_loop_compares_throughput_and_cpu() {
    let dominates = |cpu, iops| fare(cpu, 9e9, 9e9, iops).dominates(&OWN, false);
    assert!(dominates(950.0, 990.0));
    assert!(!dominates(950.001, 990.0));
    assert!(!dominates(950.0, 989.999));
    assert!(dominates(1.0, 5_000.0));
}

#[test]
fn cheapest_dominating_mode_is_reported() {
    let (dear, cheap) = (fare(900.0, 1_000.0, 1_000.0, 1_000.0), fare(500.0, 1_000.0, 1_000.0, 1_000.0));
    let late = fare(10.0, 2_000.0, 1_000.0, 100.0);
    assert_eq!(judge(&OWN, &[dear, cheap, late], &[dear], true), Verdict::Dominated(1));
    assert_eq!(judge(&OWN, &[dear, late], &[late, cheap], true), Verdict::Dominated(3));
    assert_eq!(judge(&OWN, &[late], &[], false), Verdict::Neither);
}

/// 0.95 of the CPU of each that is as quick, and one has to be.
#[test]
fn dominating_cell_has_costlier_rivals() {
    let own = fare(950.0, 1_000.0, 1_000.0, 1_000.0);
    let as_quick = fare(1_000.0, 1_050.0, 1_050.0, 990.0);
    let late = fare(100.0, 1_051.0, 1_050.0, 989.0);
    for open in [true, false] {
        assert_eq!(judge(&own, &[as_quick, late], &[], open), Verdict::Dominating);
        assert_eq!(judge(&own, &[late], &[], open), Verdict::Neither, "nobody is as quick");
        let cheaper = Fare { cpu: 999.0, ..as_quick };
        assert_eq!(judge(&own, &[as_quick, cheaper], &[], open), Verdict::Neither);
        assert_eq!(judge(&own, &[as_quick], &[cheaper], open), Verdict::Dominating, "its own settings are no mode");
    }
}

#[test]
fn costly_knob_is_not_monotone() {
    let at = |mean, cpu| fare(cpu, mean, 1.0, 1.0);
    assert!(is_monotone(&[at(100.0, 900.0), at(200.0, 500.0), at(200.0, 500.0)]));
    assert!(is_monotone(&[at(103.0, 100.0), at(100.0, 103.0)]), "within 3 %");
    assert!(!is_monotone(&[at(103.1, 100.0), at(100.0, 100.0)]), "sooner at the cheaper setting");
    assert!(!is_monotone(&[at(100.0, 100.0), at(100.0, 103.1)]), "dearer there");
    assert!(!is_monotone(&[at(102.0, 9.0), at(101.0, 9.0), at(99.0, 9.0)]), "step by step within 3 %, and not in all");
    assert!(is_monotone(&[]) && is_monotone(&[OWN]));
}

fn any_fare() -> impl Strategy<Value = Fare> {
    let figure = || prop_oneof![Just(0.0), Just(950.0), Just(1_000.0), Just(1_050.0), 1.0..2_000.0];
    (figure(), figure(), figure(), figure()).prop_map(|(cpu, mean, p99, iops)| Fare { cpu, mean, p99, iops })
}

proptest! {
    #[test]
    fn dominance_is_irreflexive_and_antisymmetric(a in any_fare(), b in any_fare(), open: bool) {
        prop_assert!(!a.dominates(&a, open));
        prop_assert!(!(a.dominates(&b, open) && b.dominates(&a, open)));
        prop_assert_ne!(judge(&a, &[a], &[a], open), Verdict::Dominated(0));
    }

    /// By the definitions, whatever `judge` says.
    #[test]
    fn no_cell_is_both(own in any_fare(), modes in prop::collection::vec(any_fare(), 0..6), settings in prop::collection::vec(any_fare(), 0..4), open: bool) {
        let rivals: Vec<Fare> = modes.iter().chain(&settings).copied().collect();
        let dominated = rivals.iter().any(|rival| rival.dominates(&own, open));
        match judge(&own, &modes, &settings, open) {
            Verdict::Dominated(at) => {
                prop_assert!(dominated && rivals[at].dominates(&own, open));
                prop_assert!(rivals.iter().all(|rival| !rival.dominates(&own, open) || rivals[at].cpu <= rival.cpu));
            }
            Verdict::Dominating => {
                prop_assert!(!dominated);
                prop_assert!(modes.iter().all(|mode| !mode.is_as_quick(&own, open) || own.dominates(mode, open) || !own.is_as_quick(mode, open)));
            }
            Verdict::Neither => prop_assert!(!dominated),
        }
    }
}
