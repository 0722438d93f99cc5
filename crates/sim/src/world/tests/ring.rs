//! Reap's ring of io_uring's, as the link `kernel:` has one.

use super::*;

fn with(engine: Engine, mode: &str, job: workload::Job, change: impl Fn(&mut Costs)) -> Outcome {
    let mut scenario = Scenario { host: Host::Kernel, ..Scenario::new(super::mode(mode), Profile::optane(), job) };
    scenario.jobs[0].engine = engine;
    change(&mut scenario.machine.costs);
    scenario.run().unwrap_or_else(|error| panic!("{mode}: {error}"))
}

/// Of each price, where it is paid: what doubling it adds, in prices per I/O.
#[test]
fn ring_costs_fall_where_due() {
    type Price = fn(&mut RingCosts) -> &mut Nanos;
    const PRICES: [(&str, Price); 9] = [
        ("enter", |ring| &mut ring.enter),
        ("submit", |ring| &mut ring.submit),
        ("fused", |ring| &mut ring.fused),
        ("wait", |ring| &mut ring.wait),
        ("queue", |ring| &mut ring.queue),
        ("run", |ring| &mut ring.run),
        ("event", |ring| &mut ring.event),
        ("take", |ring| &mut ring.take),
        ("iopoll", |ring| &mut ring.iopoll),
    ];
    // A command at a time: each is one call, which submits and waits.
    let paid = |mode, price: Price| {
        let at = |more: u64| with(Engine::Reap, mode, closed_loop(1, 2_000), |costs| *price(&mut costs.kernel) += Nanos(more));
        ((at(1_000).cpu_ns_per_io() - at(0).cpu_ns_per_io()) / 1_000.0 * 10.0).round() / 10.0
    };
    for (name, price) in PRICES {
        let by_interrupt = if ["wait", "iopoll"].contains(&name) { 0.0 } else { 1.0 };
        assert_eq!(paid("interrupt", price), by_interrupt, "{name} by interrupt");
        // The thread spins in the kernel, whatever that costs; what is paid after the completion shows in the time that all takes.
        if ["queue", "run", "wait"].contains(&name) {
            assert_eq!(paid("poll", price), 0.0, "{name} by polling");
        }
    }
    let latency = |more| with(Engine::Reap, "poll", closed_loop(1, 2_000), |costs| costs.kernel.iopoll += Nanos(more)).read_latency().mean;
    assert!((latency(1_000) - latency(0) - 1_000.0).abs() < 50.0, "a pass is under way when the entry comes");
}

/// A batch is one call and one run of its task work, however many there are in it.
#[test]
fn batch_shares_its_system_call() {
    let ring = |depth| with(Engine::Reap, "interrupt", workload::Job { complete_min: depth, ..closed_loop(depth, 4_000) }, |_| {});
    let (one, many) = (ring(1), ring(32));
    assert!(many.syscalls * 31 < one.syscalls, "{} {}", many.syscalls, one.syscalls);
    assert!(many.cpu_ns_per_io() * 2.0 < one.cpu_ns_per_io(), "{} {}", many.cpu_ns_per_io(), one.cpu_ns_per_io());
}
