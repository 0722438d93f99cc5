//! What it costs to wake a thread that sleeps in an io_uring: by an eventfd that its ring polls, and by a message from another ring
//! (IORING_OP_MSG_RING). `cargo run --release -p reap-hw --example wakes`
//!
//! The sleeper owns its ring, as a `LocalQueue` does. The waker calls once for each wake-up, while the other sleeps.

use std::error::Error;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;

use hw::EventFd;
use hw::uring::{Cqe, Enter, Entry, Kept, Options, Ring, Sq};
use units::Nanos;

/// Wake-ups of one round, and rounds of each way.
const WAKES: u64 = 5_000;
const ROUNDS: usize = 9;

/// Until the sleeper is asleep again.
const PAUSE: Nanos = Nanos::from_micros(30);

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:>10} {:>22} {:>22} {:>14}", "by", "waker, CPU ns a wake", "sleeper, CPU ns a wake", "calls, waker");
    let mut ways = [("eventfd", Vec::new()), ("message", Vec::new())];
    for _ in 0..ROUNDS {
        for (by, (_, costs)) in ways.iter_mut().enumerate() {
            costs.push(round(by == 1)?);
        }
    }
    for (name, mut costs) in ways {
        let calls = costs[0].2;
        costs.sort_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1)));
        let (waker, sleeper, _) = costs[ROUNDS / 2];
        println!("{name:>10} {waker:>22.0} {sleeper:>22.0} {calls:>14.2}");
    }
    Ok(())
}

/// The waker's ring, and the sleeper's as it names it.
struct Sender {
    ring: Ring,
    sq: Sq,
    to: Kept,
}

impl Sender {
    fn send(&mut self) {
        if self.sq.push(Entry::message(self.to, 1, 0).quiet()).is_ok() {
            let submit = self.sq.publish();
            _ = self.ring.enter(Enter { submit, ..Enter::default() });
        }
    }
}

/// CPU time of the waker and of the sleeper, and the waker's system calls, for each wake-up.
fn round(by_message: bool) -> Result<(f64, f64, f64), Box<dyn Error>> {
    let (event, woken) = (EventFd::new()?, AtomicU64::new(0));
    let (tell, told) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (event, woken) = (&event, &woken);
        let sleeper = scope.spawn(move || -> Result<Nanos, String> {
            let options = Options { entries: 8, owner: true, ..Options::default() };
            let (ring, mut sq, mut cq) = Ring::new(&options).map_err(|e| e.to_string())?;
            let fd = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|e| e.to_string());
            let kept = ring.keep(fd(event.as_fd())?);
            sq.push(Entry::poll(kept, true).user_data(1)).map_err(|refused| refused.why.to_string())?;
            let submit = sq.publish();
            ring.enter(Enter { submit, run_tasks: true, ..Enter::default() }).map_err(|e| e.to_string())?;
            tell.send(fd(ring.as_fd())?).map_err(|e| e.to_string())?;
            let began = hw::thread_cpu();
            let mut seen = 0;
            while seen < WAKES {
                ring.enter(Enter { wait_for: 1, ..Enter::default() }).map_err(|e| e.to_string())?;
                seen += cq.take(&mut [Cqe::default(); 4]) as u64;
                woken.store(seen, Release);
            }
            Ok(hw::thread_cpu() - began)
        });
        let theirs = told.recv()?;
        let (ring, sq, _cq) = Ring::new(&Options { entries: 8, ..Options::default() })?;
        let to = ring.keep(theirs);
        let mut sender = Sender { ring, sq, to };
        let (mut spent, before) = (0, sender.ring.enters());
        for wake in 0..WAKES {
            while woken.load(Acquire) < wake {
                thread::yield_now();
            }
            let asleep = hw::now() + PAUSE;
            while hw::now() < asleep {
                std::hint::spin_loop();
            }
            let began = hw::thread_cpu();
            match by_message {
                true => sender.send(),
                false => event.signal(),
            }
            spent += (hw::thread_cpu() - began).0;
        }
        let sleeper = sleeper.join().map_err(|_| "the sleeper has panicked")??;
        let calls = if by_message { sender.ring.enters() - before } else { WAKES };
        Ok((spent as f64 / WAKES as f64, sleeper.0 as f64 / WAKES as f64, calls as f64 / WAKES as f64))
    })
}
