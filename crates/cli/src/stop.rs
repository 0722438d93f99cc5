//! SIGINT and SIGTERM: the first one stops the jobs and prints their results, the second one exits.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use reap::Device;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

use crate::output::say;

/// The exit status of a program that a signal killed, as shells show it, is this plus the number of
/// the signal.
const SIGNALLED: i32 = 128;

/// The last signal that stopped a command; 0: none.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Installs signal handlers: the first SIGINT or SIGTERM sets the flag that is returned, the second
/// one exits.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: at the first signal the conditional shutdown still finds the flag
        // unset.
        flag::register_conditional_shutdown(signal, SIGNALLED + signal, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// As [`flag`], for commands that normally end without a signal: after a signal [`status`] returns
/// 130 or 143.
pub fn on_signal() -> io::Result<Arc<AtomicBool>> {
    record_signals()?;
    flag()
}

/// Makes [`status`] report a SIGINT or SIGTERM.
pub fn record_signals() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register_usize(signal, SIGNAL.clone(), signal as usize)?;
    }
    Ok(())
}

/// The exit status of a command that a signal stopped, 130 for Ctrl-C; `None` without a signal.
pub fn status() -> Option<u8> {
    let signal = SIGNAL.load(Relaxed);
    (signal != 0).then_some((SIGNALLED as usize + signal) as u8)
}

/// As long as this value exists, a signal also makes devices fail pending requests.
pub struct Reach {
    signals: Handle,
    thread: Option<JoinHandle<()>>,
}

/// After a signal, fails requests of `devices` that would be retried or wait for a path: job
/// threads check `stop` only between completions. Prints a note if stopping takes long.
pub fn reach(stop: &Arc<AtomicBool>, devices: &[Device]) -> io::Result<Reach> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let (stop, devices, ended) = (stop.clone(), devices.to_vec(), handle.clone());
    let thread = thread::Builder::new().name("reap-stop".into()).spawn(move || {
        // A signal before this thread started has set the flag.
        if !stop.load(Relaxed) && signals.forever().next().is_none() {
            return;
        }
        // Job threads notice the stop flag only when a wait ends, so end the waits.
        devices.iter().for_each(Device::fail_pending);
        // Stopping usually takes less, and then needs no note.
        thread::park_timeout(Duration::from_millis(500));
        if !ended.is_closed() {
            let left: u32 = devices.iter().map(Device::in_flight).sum();
            say(format_args!(
                "note: stopping, waiting for I/Os in flight: {left}; another Ctrl-C exits at once"
            ));
        }
    })?;
    Ok(Reach { signals: handle, thread: Some(thread) })
}

impl Drop for Reach {
    fn drop(&mut self) {
        self.signals.close();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}
