//! Policies of a program's own that broke their contract while the command ran: what it has measured of them is in part `interrupt`'s.

use completion::{Breach, Mode};
use serde_json::{Map, Value};

use crate::rows::Results;
use crate::rows::json::{REASONS, VALID};

/// A sentence for each such policy.
pub fn all() -> Vec<String> {
    Mode::registered().into_iter().filter_map(|mode| Some(sentence(mode, &mode.dismissals()?))).collect()
}

/// What results say before anything else; `None`: no policy was dismissed.
pub fn banner() -> Option<String> {
    all().first().map(|why| format!("These figures decide nothing: {why}."))
}

/// The same as JSON, beside the results; nothing where no policy was dismissed.
pub fn json() -> Map<String, Value> {
    match all() {
        none if none.is_empty() => Map::new(),
        reasons => Map::from_iter([(VALID.to_owned(), false.into()), (REASONS.to_owned(), reasons.into())]),
    }
}

/// Results of a simulation say so.
pub fn mark(results: &mut Results) {
    results.banner = banner();
    results.extra.extend(json());
}

fn sentence(mode: Mode, (times, why): &(u64, Breach)) -> String {
    let queues = if *times == 1 { "a queue".to_owned() } else { format!("{times} queues") };
    format!("policy '{mode}' broke its contract on {queues}, and interrupt went on there: its figures are not its own; {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dismissal_is_told_with_its_reason() {
        let once = sentence(Mode::POLL, &(1, Breach::Rests));
        assert!(once.contains("'poll'") && once.contains(" a queue,") && once.ends_with(&Breach::Rests.to_string()), "{once}");
        assert!(sentence(Mode::POLL, &(3, Breach::Rests)).contains(" 3 queues,"));
    }
}
