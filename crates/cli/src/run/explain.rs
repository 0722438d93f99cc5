//! `reap run --explain`: what the mode decided, how often, and why.

use completion::Mode;

use crate::bench::Counted;

/// A line for each kind of decision, for the results of one job.
pub fn lines(mode: Mode, counted: &Counted) -> Vec<(String, String)> {
    let Some(decisions) = counted.decisions else {
        let why = if mode.is_custom() {
            format!("{mode} is a policy of this program's own, whose decisions nobody counts; only adaptive's are")
        } else {
            format!("{mode} has one rule and decides nothing; only adaptive does")
        };
        return vec![("decisions".into(), why)];
    };
    // A wait that is cut short and goes on another way is a spin, and then a nap: shares are of what was done, which adds up.
    let all = decisions.spun + decisions.napped + decisions.slept;
    let of = |n: u64| if all == 0 { String::new() } else { format!(" ({:.1}%)", 100.0 * n as f64 / all as f64) };
    let host = &counted.host;
    let line = |name: &str, text: String| (name.to_owned(), text);
    vec![
        line("looked", format!("{} times, {} of them in vain, {} after a commit", host.looks, host.empty_looks, host.submit_checks)),
        line("waited", format!("{} times, with nothing to take and commands in flight; in these waits it", decisions.waits)),
        line("spun", format!("{}{}: that cost less than a nap or a sleep", decisions.spun, of(decisions.spun))),
        line("napped", format!("{}{}: on a timer until several, or the first, were expected", decisions.napped, of(decisions.napped))),
        line("slept", format!("{}{}: until told, which cost less", decisions.slept, of(decisions.slept))),
        line("gathered", format!("in {} of the naps: they were for several completions at once", decisions.gathered)),
        line("explored", format!("in {} of the waits: looked all the way, to learn", decisions.explored)),
        line("gave way", format!("{}: somebody else wanted the CPU, or the thread left", decisions.gave_way)),
        line("missed", format!("{}: found long after their time, of which nothing had told", decisions.missed_notifications)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use completion::Decisions;

    #[test]
    fn shares_add_up() {
        let decisions =
            Decisions { waits: 35_554, spun: 20_762, napped: 14_865, slept: 37, gathered: 14_864, explored: 441, ..Decisions::default() };
        let lines = lines(Mode::ADAPTIVE, &Counted { decisions: Some(decisions), ..Counted::default() });
        let share = |text: &str| text.split_once('(')?.1.split_once('%')?.0.parse::<f64>().ok();
        let shares: Vec<f64> = lines.iter().filter_map(|(_, text)| share(text)).collect();
        assert_eq!(shares.len(), 3, "{lines:?}");
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 0.2, "{lines:?}");
    }
}
