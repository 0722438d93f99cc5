//! Ctrl-C: the first ends the jobs and prints their results, the second ends the program.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output::say;

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// A flag that the first SIGINT or SIGTERM sets. Another one ends the program.
pub fn on_signal() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and passes the shutdown by.
        flag::register_conditional_shutdown(signal, INTERRUPTED, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Says that the results are those of a part: `after` so much of how much.
pub fn tell(after: impl Display) {
    say(format_args!("note: stopped by a signal after {after}"));
}
