//! Scenarios and price lists, with the jobs in them.

use sim::file::{read, read_costs};
use workload::fio::Nothing;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read("fuzz.toml", text, &Nothing) {
        Ok(file) => assert!(
            !file.scenario.jobs.is_empty() && !file.scenario.devices.is_empty() && file.seeds > 0
        ),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match read_costs("fuzz.toml", text) {
        Ok(costs) => drop(format!("{costs:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
