//! What the jobs' devices are, for the head of the results: whether a name is a path must be plain to see.

use reap::Device;
use serde_json::{Value, json};
use workload::plan::Plan;

use crate::bench::Named;

/// A line for each device: what it is, and what was found otherwise than one would expect.
pub fn lines(named: &[Named], devices: &[Device]) -> String {
    let line = |(named, device): (&Named, &Device)| {
        let notes: String = notes(device).iter().map(|note| format!("; {note}")).collect();
        format!("Device: {}{notes}\n", named.words)
    };
    named.iter().zip(devices).map(line).collect()
}

/// The same for scripts: `filename`, `uri`, `link` (`kernel` or `embedded`), `notes`.
pub fn json(named: &[Named], devices: &[Device], plan: &Plan) -> Value {
    let one = |((named, device), name): ((&Named, &Device), &Option<String>)| {
        let link = if device.embedded().is_some() { "embedded" } else { "kernel" };
        json!({ "filename": name, "uri": named.uri, "link": link, "notes": notes(device) })
    };
    named.iter().zip(devices).zip(&plan.targets).map(one).collect()
}

/// What was found when it was opened.
pub fn notes(device: &Device) -> Vec<String> {
    device.notes()
}
