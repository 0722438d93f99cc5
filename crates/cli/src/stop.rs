//! Ctrl-C: the first ends the jobs and prints their results, the second ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

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
