use super::*;

fn hardware(
    finished: u64,
    doorbells: u64,
    messages: u64,
    vector_finished: u64,
) -> HardwareCounters {
    let mut counters = HardwareCounters::default();
    counters.finished = finished;
    counters.sq_doorbells = doorbells;
    counters.cq_doorbells = doorbells;
    counters.messages = messages;
    counters.vector_finished = vector_finished;
    counters
}

fn device(messages: u64, notify: u64) -> DeviceCounters {
    let mut counters = DeviceCounters::default();
    counters.messages = messages;
    counters.notify = Nanos(notify);
    counters
}

fn ios(ios: u64) -> Completed {
    Completed { ios, flushes: 0 }
}

#[test]
fn own_queue_counts_fully() {
    let mut counted = Counted::default();
    counted.add_target(
        ios(100),
        (hardware(10, 5, 7, 10), device(7, 700)),
        (hardware(110, 25, 47, 110), device(47, 4_700)),
    );
    assert_eq!(
        (counted.sq_doorbells, counted.cq_doorbells, counted.messages, counted.notify_ns),
        (20.0, 20.0, 40.0, 4_000.0)
    );
}

#[test]
fn shared_queue_counts_by_share() {
    let (mut mine, mut theirs) = (Counted::default(), Counted::default());
    let (from, to) = (
        (HardwareCounters::default(), DeviceCounters::default()),
        (hardware(400, 40, 80, 800), device(160, 16_000)),
    );
    mine.add_target(ios(100), from, to);
    theirs.add_target(ios(300), from, to);
    assert_eq!((mine.sq_doorbells, theirs.sq_doorbells), (10.0, 30.0));
    // The vector serves another queue as well, whose I/Os are neither's.
    assert_eq!((mine.messages, theirs.messages), (10.0, 30.0));
    assert_eq!((mine.notify_ns, theirs.notify_ns), (1_000.0, 3_000.0));
}

#[test]
fn flushes_share_queue_counts() {
    let mut counted = Counted { cpu: Nanos(4_000), ..Counted::default() };
    let (from, to) = (
        (HardwareCounters::default(), DeviceCounters::default()),
        (hardware(100, 50, 50, 100), device(50, 500)),
    );
    counted.add_target(Completed { ios: 20, flushes: 20 }, from, to);
    assert_eq!((counted.ios, counted.cpu_ns_per_io()), (20, Some(200.0)));
    assert_eq!((counted.sq_doorbells, counted.messages), (20.0, 20.0));
}

#[test]
fn nothing_done_costs_nothing() {
    let mut counted = Counted::default();
    counted.add_target(ios(0), Default::default(), (hardware(0, 3, 3, 0), device(0, 0)));
    assert_eq!(
        (counted.messages, counted.cpu_ns_per_io(), counted.completions_per_wakeup()),
        (0.0, None, None)
    );
}

/// The device counts system calls, and each thread has the part of them that its queue has of the
/// doorbells.
#[test]
fn system_calls_are_shared_by_doorbells() {
    let device = |doorbells, calls| {
        let mut counters = DeviceCounters::default();
        counters.sq_doorbells = doorbells;
        counters.system_calls = Some(calls);
        counters
    };
    let mut counted = Counted::default();
    counted.add_target(
        ios(100),
        (hardware(0, 0, 0, 0), device(10, 50)),
        (hardware(100, 25, 0, 100), device(110, 350)),
    );
    assert_eq!((counted.sq_doorbells, counted.system_calls), (25.0, Some(75.0)));
    counted.merge(&counted.clone());
    assert_eq!((counted.system_calls, Counted::default().system_calls), (Some(150.0), None));
}

#[test]
fn other_threads_are_charged_per_io() {
    let thread = |cpu, process, ios| Counted {
        cpu: Nanos(cpu),
        process: Nanos(process),
        ios,
        ..Counted::default()
    };
    let mut threads = [thread(1_000, 9_000, 300), thread(2_000, 10_000, 100)];
    // Of 10000 they had 3000, and the thread that shows the progress had 3000.
    charge_kernel_workers(threads.iter_mut(), Nanos(3_000));
    assert_eq!(threads.map(|thread| thread.cpu.0), [1_000 + 3_000, 2_000 + 1_000]);
    // Nothing is paid back, and nothing is divided by no I/O.
    charge_kernel_workers(threads.iter_mut(), Nanos(50_000));
    assert_eq!(threads.map(|thread| thread.cpu.0), [4_000, 3_000]);
    let mut idle = [thread(0, 500, 0)];
    charge_kernel_workers(idle.iter_mut(), Nanos::ZERO);
    assert_eq!(idle[0].cpu, Nanos::ZERO);
}

#[test]
fn stretches_add_up_path_by_path() {
    let path = |ios, in_flight, lat_ns, state: &str| PathStats {
        ios,
        in_flight,
        lat_ns,
        state: state.into(),
        ..PathStats::default()
    };
    let first = [path(100, 1.0, 10, "optimized"), path(0, 0.0, 0, "lost")];
    let second = [path(300, 3.0, 30, "optimized"), path(50, 1.0, 90, "optimized")];
    let sum = merge_spans(&[&first, &second]);
    assert_eq!(sum, [path(400, 2.0, 25, "optimized"), path(50, 0.5, 90, "optimized")]);
    assert!(merge_spans(&[]).is_empty());
}
