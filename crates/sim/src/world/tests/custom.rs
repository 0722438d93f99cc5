//! Policies that a program brings and that break their contract: whatever they do, their own queues' figures pay for it alone.

use std::sync::LazyLock;

use completion::{Batch, Check, CustomPolicy, Delivery, Facts, Placement, Plan, Seen, WEIGHT};

use super::laws::holds;
use super::masks::unmasked;
use super::*;
use crate::habits::LAWFUL;

/// What a policy does that its contract forbids, from its twentieth answer on where it looks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    NeverLooks,
    Rests,
    SpinsUntilBefore,
    NapsUntilBefore,
    SleepsUntilBefore,
    NapsForEver,
    LooksAlways,
}

const FAULTS: [Fault; 7] = [
    Fault::NeverLooks,
    Fault::Rests,
    Fault::SpinsUntilBefore,
    Fault::NapsUntilBefore,
    Fault::SleepsUntilBefore,
    Fault::NapsForEver,
    Fault::LooksAlways,
];

#[derive(Clone, Debug)]
struct Broken {
    fault: Fault,
    asked: u32,
}

impl CustomPolicy for Broken {
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.asked += 1;
        let known = (seen.pending || seen.woke.is_some()) && !seen.lock_busy;
        let before = Nanos(now.0.saturating_sub(1));
        match self.fault {
            Fault::NeverLooks if self.asked > 20 => Plan::sleep(Nanos::MAX),
            Fault::LooksAlways if seen.in_flight > 0 => Plan::Look { budget: u32::MAX },
            _ if known => Plan::Look { budget: WEIGHT },
            Fault::Rests if self.asked > 20 => Plan::Rest,
            _ if seen.in_flight == 0 => Plan::Rest,
            Fault::SpinsUntilBefore => Plan::Spin { until: before },
            Fault::NapsUntilBefore => Plan::Nap { until: before },
            Fault::SleepsUntilBefore => Plan::Sleep { until: before, at_least: u32::MAX },
            Fault::NapsForEver => Plan::Nap { until: Nanos::MAX },
            _ => Plan::sleep(Nanos::MAX),
        }
    }

    fn submitted(&mut self, _: Nanos, _: &Batch) -> Check {
        Check::TryLook { budget: 0 }
    }
}

fn registered(name: &str, facts: Facts) -> [(Mode, Fault); FAULTS.len()] {
    FAULTS.map(|fault| {
        let name = format!("{name}-{}", fault as u8);
        (Mode::register(&name, facts, move |_| Box::new(Broken { fault, asked: 0 })).unwrap(), fault)
    })
}

/// Each fault under facts of every kind, but the one that finds everything a second late: these runs end after two.
static BROKEN: LazyLock<Vec<Mode>> = LazyLock::new(|| {
    let facts = [
        ("masked", Facts { checks: true, ..Facts::MASKED }),
        ("unmasked", Facts::UNMASKED),
        ("posted", Facts { delivery: Delivery::Posted, records: false, ..Facts::UNMASKED }),
        ("elsewhere", Facts { placement: Placement::DrainThread, ..Facts::UNMASKED }),
    ];
    facts
        .into_iter()
        .flat_map(|(name, facts)| registered(name, facts))
        .filter(|(_, fault)| *fault != Fault::NapsForEver)
        .map(|(mode, _)| mode)
        .collect()
});

/// In place of one mode in two, the one to begin with always, a policy that breaks its contract.
fn broken(scenario: Scenario) -> Scenario {
    let pick = |n: usize| BROKEN[(scenario.seed as usize).wrapping_add(n * 7) % BROKEN.len()];
    let switches = scenario.switches.iter().enumerate();
    let switches = switches.map(|(n, &(at, mode))| (at, if n % 2 == 0 { mode } else { pick(n) })).collect();
    Scenario { mode: pick(0), switches, ..scenario }
}

/// Everything completes once, no wake-up is lost and no drain exceeds its budget, whichever way a policy is broken.
#[test]
fn broken_policies_keep_invariants() {
    holds(400, LAWFUL, any_scenario().prop_map(broken)).unwrap();
    holds(150, LAWFUL, any_machine().prop_map(broken)).unwrap();
    holds(50, LAWFUL, any_burst().prop_map(broken)).unwrap();
    holds(150, LAWFUL, any_scenario().prop_map(broken).prop_map(unmasked)).unwrap();
}
