//! The line that says how far a run is, on a terminal.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::Progress;

/// Between two looks.
pub const EVERY: Duration = Duration::from_millis(250);

/// IOPS, MB/s and ETA of the threads of a stage. Invisible where stderr is no terminal.
pub struct Bar {
    bar: ProgressBar,
    began: Instant,
    last: (Instant, u64, u64),
}

impl Bar {
    /// Of stage `stage` of `stages`, counted from 1.
    pub fn new(stage: u32, stages: u32) -> Bar {
        let bar = ProgressBar::new(1_000_000);
        // The template is a constant: it parses.
        if let Ok(style) = ProgressStyle::with_template("{prefix}[{bar:24}] {percent:>3}%  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        if stages > 1 {
            bar.set_prefix(format!("stage {stage}/{stages} "));
        }
        let now = Instant::now();
        Bar { bar, began: now, last: (now, 0, 0) }
    }

    /// Shows what the threads have told.
    pub fn show<'a>(&mut self, threads: impl Iterator<Item = &'a Progress>) {
        if self.bar.is_hidden() {
            return;
        }
        let (mut ios, mut bytes, mut done, mut count, mut least) = (0, 0, 0, 0, u64::MAX);
        for thread in threads {
            ios += thread.ios.load(Relaxed);
            bytes += thread.bytes.load(Relaxed);
            let millionths = thread.millionths.load(Relaxed);
            (done, least) = (done + millionths, least.min(millionths));
            count += 1;
        }
        let done = done / u64::max(count, 1);
        let now = Instant::now();
        let (then, ios_then, bytes_then) = std::mem::replace(&mut self.last, (now, ios, bytes));
        let seconds = (now - then).as_secs_f64().max(1e-3);
        // What is forgotten at the end of the ramp makes a count fall: nothing is known of that stretch.
        let per_second = |to: u64, from: u64| to.saturating_sub(from) as f64 / seconds;
        self.bar.set_position(done);
        self.bar.set_message(format!(
            "{:.1}k IOPS  {:.0} MB/s  ETA {}",
            per_second(ios, ios_then) / 1e3,
            per_second(bytes, bytes_then) / 1e6,
            // The stage ends with the last of its threads.
            eta(self.began.elapsed(), if count == 0 { 0 } else { least })
        ));
    }

    /// Takes the line away.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// What is left if it goes on like this.
fn eta(elapsed: Duration, millionths: u64) -> String {
    match millionths {
        0 => "unknown".to_owned(),
        done => {
            let left = elapsed.as_secs_f64() * (1e6 / done as f64 - 1.0).max(0.0);
            format!("{:02}m:{:02}s", left as u64 / 60, left as u64 % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        assert_eq!(eta(Duration::from_secs(30), 250_000), "01m:30s");
        assert_eq!(eta(Duration::from_secs(30), 1_000_000), "00m:00s");
        assert_eq!(eta(Duration::from_secs(30), 0), "unknown");
    }
}
