//! `--histograms`: what wake-ups brought, drawn as `reap trace` draws the kernel's queues.

use std::fmt::Write;

use reap::Wakeups;
use trace::histogram::{Linear, Log2};
use workload::Job;
use workload::plan::Plan;

use super::ended::Ended;

/// Two histograms for each entry of the report.
pub fn draw(jobs: &[Job], plan: &Plan, ended: &[Ended]) -> String {
    let mut entries: Vec<(&str, Wakeups)> = Vec::new();
    for (thread, end) in plan.threads.iter().zip(ended) {
        if thread.report == entries.len() {
            entries.push((&jobs[thread.job].name, Wakeups::default()));
        }
        if let Some((_, wakeups)) = entries.get_mut(thread.report) {
            wakeups.merge(&end.ran.wakeups);
        }
    }
    let mut text = String::new();
    for (name, wakeups) in &entries {
        _ = write!(text, "\n{}", one(name, wakeups));
    }
    text
}

fn one(name: &str, wakeups: &Wakeups) -> String {
    let (completions, delay) = (&wakeups.completions, &wakeups.delay);
    let per_wakeup = Linear::from_parts(&completions.counts, completions.sum, completions.max);
    let first_look = Log2::from_parts(&delay.counts, delay.sum, delay.max);
    if first_look.is_empty() {
        return format!("{name}: no notification woke the thread\n");
    }
    format!(
        "{name}: completions per wake-up by a notification ({} wake-ups, mean {:.1})\n{}\n{name}: from the notification to the first look\n{}",
        per_wakeup.total(),
        per_wakeup.mean().unwrap_or(0.0),
        per_wakeup.draw("completions"),
        first_look.draw("usecs")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_never_slept_says_so() {
        assert_eq!(one("job", &Wakeups::default()), "job: no notification woke the thread\n");
    }
}
