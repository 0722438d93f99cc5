//! Ctrl-C: the first ends the jobs and prints their results, the second ends the program.

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

/// What a shell adds to the number of the signal that ended a program, as the status that it reports.
const SIGNALLED: i32 = 128;

/// The last signal that cut a command's work short; 0: none did.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// A flag that the first SIGINT or SIGTERM sets. Another one ends the program.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and passes the shutdown by.
        flag::register_conditional_shutdown(signal, SIGNALLED + signal, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// The same for a command that does not end with a signal by its nature: its [`status`] says that there was one.
pub fn on_signal() -> io::Result<Arc<AtomicBool>> {
    note()?;
    flag()
}

/// Has [`status`] say that there was a SIGINT or SIGTERM.
pub fn note() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register_usize(signal, SIGNAL.clone(), signal as usize)?;
    }
    Ok(())
}

/// The status of a command that a signal stopped: 130 for Ctrl-C, as that of a program which it ends. `None`: none did.
pub fn status() -> Option<u8> {
    let signal = SIGNAL.load(Relaxed);
    (signal != 0).then_some((SIGNALLED as usize + signal) as u8)
}

/// For as long as it lives, a stop reaches devices as well.
pub struct Reach {
    signals: Handle,
    thread: Option<JoinHandle<()>>,
}

/// Once there is a signal, nothing that `devices` are asked for is tried again or waits for a path: those who wait for it see `stop`
/// only when it has ended. What still takes its time is told of.
pub fn reach(stop: &Arc<AtomicBool>, devices: &[Device]) -> io::Result<Reach> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let (stop, devices, ended) = (stop.clone(), devices.to_vec(), handle.clone());
    let thread = thread::Builder::new().name("reap-stop".into()).spawn(move || {
        // One that came earlier has left the flag.
        if !stop.load(Relaxed) && signals.forever().next().is_none() {
            return;
        }
        devices.iter().for_each(Device::fail_pending);
        // A stop that takes longer prints a line.
        thread::park_timeout(Duration::from_millis(500));
        if !ended.is_closed() {
            let left: u32 = devices.iter().map(Device::in_flight).sum();
            say(format_args!("note: stopping, and waiting for what is in flight (I/Os: {left}); another Ctrl-C ends the program"));
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
