//! `adaptive` in an event loop around a raw io_uring: when to poll the completion ring, when to nap,
//! and when to sleep.
//!
//!     cargo run --release -p reap-completion --example io_uring
//!
//! A ring has no interrupt mask: a sleep is a system call that waits for one completion, which
//! includes arming and the check after it.

use std::error::Error;
use std::os::fd::AsRawFd;
use std::time::Instant;

use completion::{
    Batch, Cause, Class, Done, Mode, ModePolicy, Nanos, Op, Plan, Policy, Seen, SleepCosts, Woke,
};
use io_uring::{IoUring, opcode, types};

const DEPTH: u32 = 4;
const TOTAL: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut ring = IoUring::new(DEPTH)?;
    let path = std::env::temp_dir().join(format!("reap-io-uring-{}", std::process::id()));
    let file = std::fs::File::create_new(&path)?;
    std::fs::remove_file(&path)?;
    let origin = Instant::now();
    let now = || Nanos::from(origin.elapsed());

    let class = Class::new(Op::Flush, 0);
    let mut policy = ModePolicy::new(Mode::ADAPTIVE, &SleepCosts::default(), None);
    let (mut seen, mut in_flight, mut done) = (Seen::default(), 0, 0);
    while done < TOTAL {
        let commands = DEPTH - in_flight;
        if commands > 0 {
            let sent = now();
            let flush = opcode::Fsync::new(types::Fd(file.as_raw_fd())).build().user_data(sent.0);
            for _ in 0..commands {
                // SAFETY: the command has no buffer, and the file outlives the ring's last command.
                unsafe { ring.submission().push(&flush)? };
            }
            ring.submit()?;
            in_flight += commands;
            policy.submitted(sent, &Batch { commands, urgent: 0, in_flight, class: Some(class) });
        }
        seen.in_flight = in_flight;
        let (plan, slept) = (policy.next(now(), &seen), seen.woke.is_some());
        seen = Seen::default();
        match plan {
            Plan::Poll { budget } => {
                let (polled, mut last) = (now(), None);
                for cqe in ring.completion().take(budget as usize) {
                    seen.found += 1;
                    last = Some(Done { class, age: polled - Nanos(cqe.user_data()), slept });
                }
                in_flight -= seen.found;
                done += u64::from(seen.found);
                // `Facts::records` of `adaptive`: the last completion of a poll.
                policy.completed(last.as_slice());
            }
            Plan::Spin { until } => {
                while !seen.pending && now() < until {
                    std::hint::spin_loop();
                    seen.pending = !ring.completion().is_empty();
                }
            }
            Plan::Nap { until, .. } => {
                std::thread::sleep((until - now()).into());
                seen.woke = Some(Woke { cause: Cause::Timer, late: now() - until });
            }
            Plan::Sleep { at_least, .. } => {
                ring.submit_and_wait(at_least as usize)?;
                seen.woke = Some(Woke::NOTIFIED);
            }
            Plan::Idle => {}
        }
    }
    println!("{done} flushes: {}", policy.state().ok_or("adaptive has a state")?);
    Ok(())
}
