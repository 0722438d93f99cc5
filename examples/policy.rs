//! A completion policy of one's own, with the whole command `reap`: spin for as long as a sleep
//! costs, then sleep. `cargo run --release --example policy -p reap-nvme-cli -- compare --modes
//! poll,interrupt,patient`

use std::process::ExitCode;

use reap::policy::{Facts, Plan, Policy, Seen, SleepCosts, WEIGHT};
use reap::{Mode, Nanos};

/// Spins no longer than it would pay for the sleep that it may be spared.
#[derive(Debug)]
struct Patient {
    patience: Nanos,
    since: Option<Nanos>,
}

impl Policy for Patient {
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        if (seen.pending || seen.woke.is_some()) && !seen.lock_busy {
            self.since = None;
            return Plan::Poll { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            return Plan::Idle;
        }
        let until = *self.since.get_or_insert(now) + self.patience;
        if until <= now || seen.leaving || seen.cpu_wanted {
            return Plan::sleep(Nanos::MAX);
        }
        Plan::Spin { until }
    }
}

fn patient(machine: &SleepCosts) -> Patient {
    Patient { patience: machine.cpu, since: None }
}

/// The whole command, with one mode more.
pub fn main() -> ExitCode {
    let facts = Facts { weighs_sleeps: true, ..Facts::MASKED };
    cli::main_with([Mode::register("patient", facts, |machine| Box::new(patient(machine)))])
}

#[test]
fn it_keeps_the_laws() {
    reap::policy::testing::keeps_all(|| Box::new(patient(&SleepCosts::default()))).unwrap();
}
