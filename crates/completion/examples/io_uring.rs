//! `adaptive` in a event loop around a raw io_uring: when to poll the completion ring, when to
//! nap, and when to sleep.
//!
//!     cargo run --release -p reap-completion --example io_uring
//!
//! A ring has no interrupt mask: a sleep is a system call that waits for one completion, which
//! includes arming.

use std::error::Error;

use completion::{
    Batch, Cause, Class, Done, Mode, ModePolicy, Op, Plan, Policy, Seen, SleepCosts, Woke,
};
use hw::uring::{Cq, Enter, Entry, FileSlot, Options, Ring, Sq};

const DEPTH: u32 = 4;
const TOTAL: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (ring, mut sq, mut cq): (Ring, Sq, Cq) =
        Ring::new(&Options { files: 1, ..Options::default() })?;
    let path = std::env::temp_dir().join(format!("reap-io-uring-{}", std::process::id()));
    ring.register_file(FileSlot(0), std::fs::File::create_new(&path)?)?;
    std::fs::remove_file(&path)?;

    let class = Class::new(Op::Flush, 0);
    let mut policy = ModePolicy::new(Mode::ADAPTIVE, &SleepCosts::default(), None);
    let (mut seen, mut in_flight, mut done, mut sent_at) = (Seen::default(), 0, 0, hw::now());
    while done < TOTAL {
        let commands = DEPTH - in_flight;
        if commands > 0 {
            (0..commands).for_each(|_| {
                assert!(sq.push(Entry::fsync(FileSlot(0), true)), "the ring has room")
            });
            ring.enter(Enter { submit: commands, ..Enter::default() })?;
            in_flight += commands;
            sent_at = hw::now();
            policy
                .submitted(sent_at, &Batch { commands, urgent: 0, in_flight, class: Some(class) });
        }
        seen.in_flight = in_flight;
        // These report one step only.
        let (plan, slept) = (policy.next(hw::now(), &seen), seen.woke.is_some());
        seen = Seen::default();
        match plan {
            Plan::Poll { budget } => {
                // Completions that wait as task work are posted by a system call.
                ring.enter(Enter { run_tasks: true, ..Enter::default() })?;
                seen.found = (0..budget).map_while(|_| cq.pop()).count() as u32;
                cq.release();
                in_flight -= seen.found;
                done += u64::from(seen.found);
                if seen.found > 0 {
                    policy.completed(&[Done { class, age: hw::now() - sent_at, slept }]);
                }
            }
            Plan::Spin { until } => {
                while hw::now() < until && ring.cq_state() == hw::uring::CqState::None {
                    std::hint::spin_loop();
                }
                seen.pending = ring.cq_state() != hw::uring::CqState::None;
            }
            Plan::Nap { until, .. } => {
                hw::sleep_until(until);
                seen.woke = Some(Woke { cause: Cause::Timer, late: hw::now() - until });
            }
            Plan::Sleep { at_least, .. } => {
                ring.enter(Enter { wait_for: at_least, ..Enter::default() })?;
                seen.woke = Some(Woke::NOTIFIED);
            }
            Plan::Idle => {}
        }
    }
    let state = policy.state().ok_or("adaptive has a state")?;
    println!("{done} flushes: {state}");
    Ok(())
}
