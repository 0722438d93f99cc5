//! Something that runs in a forked child.

use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Runs `work` in a forked child, which tells what came of it by the signal that it ends with:
/// nothing of the parent's runs there at the end. Whether it was well. A child that takes a minute
/// hangs.
pub fn in_fork(work: impl FnOnce() -> bool) -> bool {
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let signal = if work() { Signal::USR1 } else { Signal::USR2 };
            _ = kill_process(getpid(), signal);
            std::process::abort();
        }
        fork::Fork::Parent(child) => {
            let child = Pid::from_raw(child).unwrap();
            for _ in 0..6_000 {
                if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
                    println!("the child: {status:?}");
                    return status.terminating_signal() == Some(Signal::USR1.as_raw());
                }
                thread::sleep(Duration::from_millis(10));
            }
            _ = kill_process(child, Signal::KILL);
            panic!("the child hangs");
        }
    }
}
