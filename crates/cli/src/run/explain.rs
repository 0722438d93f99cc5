//! `reap run --explain`: what the mode decided, how often, and why.

use completion::Mode;

use crate::bench::Counted;

/// A line for each kind of decision, for the results of one job.
pub fn lines(mode: Mode, counted: &Counted) -> Vec<(String, String)> {
    let Some(decisions) = counted.decisions else {
        return vec![("decisions".into(), format!("{mode} has one rule and decides nothing; only adaptive does"))];
    };
    let of = |n: u64, all: u64| if all == 0 { String::new() } else { format!(" ({:.1}%)", 100.0 * n as f64 / all as f64) };
    let host = &counted.host;
    let line = |name: &str, text: String| (name.to_owned(), text);
    vec![
        line("looked", format!("{} times, {} of them in vain, {} after a commit", host.looks, host.empty_looks, host.submit_checks)),
        line("waited", format!("{} times, with nothing to take and commands in flight; in these waits it", decisions.waits)),
        line("spun", format!("{}{}: that cost less than a nap or a sleep", decisions.spun, of(decisions.spun, decisions.waits))),
        line(
            "napped",
            format!("{}{}: on a timer until several, or the first, were expected", decisions.napped, of(decisions.napped, decisions.waits)),
        ),
        line("slept", format!("{}{}: until told, which cost less", decisions.slept, of(decisions.slept, decisions.waits))),
        line("gathered", format!("{}{}: napped for several at once", decisions.gathered, of(decisions.gathered, decisions.waits))),
        line("explored", format!("{}{}: looked all the way, to learn", decisions.explored, of(decisions.explored, decisions.waits))),
        line("gave way", format!("{}: somebody else wanted the CPU, or the thread left", decisions.gave_way)),
        line("missed", format!("{}: found long after their time, of which nothing had told", decisions.missed_notifications)),
    ]
}
