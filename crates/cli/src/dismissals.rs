//! Policies of a program's own that broke their contract while the command ran: what it has measured of them is in part `interrupt`'s.

use completion::{Breach, Mode};

/// A sentence for each such policy.
pub fn all() -> Vec<String> {
    Mode::registered().into_iter().filter_map(|mode| Some(sentence(mode, &mode.dismissals()?))).collect()
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
