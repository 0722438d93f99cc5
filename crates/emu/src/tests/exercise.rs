//! A host that sends random commands and checks the completions.

use std::collections::HashSet;

use nvme::{Cid, Nsid, QueueId, Sqe, Vector};
use units::Nanos;

use super::{Host, Pair, TestPort, mem, random_below, read, write};
use crate::{Config, Port};

/// A random command: mostly valid, sometimes invalid, sometimes random bits.
fn any_command(roll: &mut impl FnMut(u64) -> u64, buffer: u64) -> Sqe {
    match roll(8) {
        0..3 => read(roll(2100), 1 + roll(16) as u32, buffer, 8192),
        3..5 => write(roll(2100), 1 + roll(16) as u32, buffer, 8192),
        5 => nvme::io::flush(Nsid(roll(4) as u32)),
        6 => {
            let mut sqe = read(roll(2100), 1 + roll(300) as u32, buffer + roll(3) * 4, 4096);
            sqe.prp2 = [buffer, buffer + 8, 0x10, u64::MAX][roll(4) as usize];
            sqe
        }
        _ => Sqe::from_words(std::array::from_fn(|_| roll(u64::MAX) & roll(u64::MAX))),
    }
}

/// Sends commands of every kind over two submission queues that share a completion queue, and
/// checks the completions: each command completes exactly once, and no entry is overwritten. `Err`
/// describes a violation.
pub(crate) fn exercise(
    config: Config,
    entries: u32,
    cq_entries: u32,
    wrap: impl FnOnce(TestPort) -> TestPort,
) -> Result<(), String> {
    let seed = config.seed;
    let mut host = Host::with_port(
        config,
        vec![mem(1 << 20, 512), mem(1 << 20, 4096)],
        TestPort::new(16 << 20),
        wrap,
    )
    .ready();
    let mut roll = random_below(seed);
    let mut pairs = [host.pair_with(1, 1, entries, cq_entries, Some(Vector(1)))];
    let shared = host.sharing(2, &pairs[0], entries);
    let buffer = host.page(80);
    let mut pending = HashSet::new();
    let mut second = shared;
    for round in 0..120 {
        for _ in 0..roll(12) {
            let pair = if roll(2) == 0 { &mut pairs[0] } else { &mut second };
            // A host keeps at most as many commands outstanding as the queue holds.
            if pending.iter().filter(|&&(sq, _)| sq == pair.id.0).count() as u32 >= entries - 1 {
                continue;
            }
            let cid = host.cid();
            pending.insert((pair.id.0, cid.0));
            let sqe = any_command(&mut roll, buffer);
            host.post(pair, sqe, cid);
        }
        host.ring(&pairs[0]);
        host.ring(&second);
        if round == 119 {
            // Let all commands complete; a small completion queue needs many rounds.
            for _ in 0..100 {
                host.run_until(host.now + Nanos::from_secs(1));
                take(&mut host, &mut pairs[0], usize::MAX, &mut pending)?;
            }
            break;
        }
        if roll(16) == 0
            && let Some(&(sq, cid)) = pending.iter().min()
        {
            let abort = nvme::admin::Abort { sq: QueueId(sq), cid: Cid(cid) };
            host.admin(abort.to_sqe());
        }
        host.run_until(host.now + Nanos(roll(60_000)));
        take(&mut host, &mut pairs[0], roll(20) as usize, &mut pending)?;
    }
    match pending.iter().min() {
        None => Ok(()),
        Some((sq, cid)) => Err(format!(
            "{} commands never completed, the first {cid} of queue {sq}",
            pending.len()
        )),
    }
}

fn take<P: Port>(
    host: &mut Host<P>,
    pair: &mut Pair,
    budget: usize,
    pending: &mut HashSet<(u16, u16)>,
) -> Result<(), String> {
    if host.port.bar.overrun.get() {
        return Err("the completion queue was overrun".into());
    }
    for cqe in host.reap(pair, budget) {
        if !pending.remove(&(cqe.sq_id, cqe.cid)) {
            return Err(format!(
                "command {} of queue {} completed, and is not outstanding",
                cqe.cid, cqe.sq_id
            ));
        }
    }
    Ok(())
}
