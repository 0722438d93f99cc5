//! What the modes do to a whole stack, as far as it can be counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use completion::Mode;
use reap::{Device, EventKind, Group, Nanos, OpenOptions, Queue, Request};
use tracing::span;

use crate::happened::{happened, is_told};

/// A device of 8 queues; what its commands take is the URI's profile's.
fn open(profile: &str, options: OpenOptions) -> Device {
    Device::open_with(&format!("mem:64M?profile={profile}&queues=8&vectors=9"), &options).unwrap()
}

/// Keeps `depth` reads in flight until `ios` are done. How many of them succeeded.
fn read(queue: &Queue, ios: usize, depth: usize, urgent: bool) -> usize {
    let ns = queue.namespaces()[0];
    let (mut begun, mut ended, mut good) = (0, 0, 0);
    let mut out = Vec::with_capacity(depth);
    while ended < ios {
        let more = (ios - begun).min(depth - (begun - ended));
        let one = |n: usize| {
            let request = Request::read(&ns, (n as u64 * 8) % 8_192, queue.buffer(4096).unwrap());
            if urgent { request.urgent() } else { request }
        };
        queue.submit((begun..begun + more).map(one)).map_err(|(why, _)| why).unwrap();
        begun += more;
        queue.wait(1, None).unwrap();
        queue.reap(&mut out);
        ended += out.len();
        good += out.drain(..).filter(|done| done.result.is_ok()).count();
    }
    good
}

/// Nobody had to wait for a time-out: no wake-up was lost.
fn nothing_was_late(device: &Device) {
    let health = device.health();
    assert_eq!((health.aborts, &health.dead), (0, &None), "{health:?}");
}

/// Waits until what is counted of messages is this. A device sends a message after its entry, which
/// a thread may take before.
fn until_counted(what: u64, counted: impl Fn() -> u64) {
    let limit = reap::Instant::now() + std::time::Duration::from_secs(60);
    while counted() != what {
        assert!(
            reap::Instant::now() < limit && counted() <= what,
            "{} are counted, and not {what}",
            counted()
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn mode(name: &str) -> Mode {
    name.parse().unwrap()
}

/// Waits until `what` is true of the device's health, for 10,000 rounds at most.
fn until(device: &Device, queue: &Queue, what: impl Fn(&reap::Health) -> bool) -> reap::Health {
    until_at(32, device, queue, what)
}

/// The same with this many in flight.
fn until_at(
    depth: usize,
    device: &Device,
    queue: &Queue,
    what: impl Fn(&reap::Health) -> bool,
) -> reap::Health {
    for _ in 0..10_000 {
        let health = device.health();
        if what(&health) {
            return health;
        }
        read(queue, 64, depth, false);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("still {:?}", device.health());
}

#[test]
fn drain_thread_cpu_time_is_counted() {
    for (software, name) in [(1, "threaded"), (3, "threaded"), (3, "threaded+submit-check")] {
        let options =
            OpenOptions::new().software_queues(software).hardware_queues(1).mode(mode(name));
        let device = open("optane", options);
        let queues: Vec<Queue> = (0..software).map(|_| device.queue().unwrap()).collect();
        std::thread::scope(|scope| {
            for queue in queues {
                scope.spawn(move || {
                    assert_eq!(read(&queue, 2_000, 8, false), 2_000);
                    let own = queue.counters().entries;
                    if name == "threaded" {
                        assert_eq!(own, 0, "the drain thread alone takes entries");
                    }
                    assert!(queue.hardware_counters().drain_cpu > Nanos::ZERO);
                    // And when the queue's own thread takes them again, there is none left.
                    queue.set_mode(Mode::POLL);
                    assert_eq!(read(&queue, 500, 8, false), 500);
                    assert!(queue.counters().entries > own);
                });
            }
        });
        nothing_was_late(&device);
    }
}

#[test]
fn posted_group_shares_notifications() {
    let options = OpenOptions::new().software_queues(4).hardware_queues(4).mode(Mode::POSTED);
    let device = open("optane", options);
    let group = Group::new((0..4).map(|_| device.queue().unwrap()).collect()).unwrap();
    let mut out = Vec::with_capacity(64);
    for round in 0..50 {
        for queue in group.queues() {
            let ns = queue.namespaces()[0];
            let batch = (0..8).map(|i| Request::read(&ns, i * 8, queue.buffer(4096).unwrap()));
            queue.submit(batch).map_err(|(why, _)| why).unwrap();
        }
        // The thread is away: what is posted meanwhile is one notification.
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(group.wait(32, None).unwrap(), 32, "round {round}");
        group.queues().iter().for_each(|queue| _ = queue.reap(&mut out));
        assert_eq!(out.drain(..).filter(|done| done.result.is_ok()).count(), 32);
    }
    nothing_was_late(&device);
    assert!(device.counts_messages());
    // A message for each entry, as ever.
    until_counted(50 * 32, || device.counters().messages);
    let counters = device.counters();
    assert!(counters.notifications < counters.messages, "{counters:?}");
}

#[test]
fn coalescing_is_set_and_cleared() {
    let device = open("optane", OpenOptions::new().mode(Mode::COALESCE));
    let queue = device.queue().unwrap();
    let health = until(&device, &queue, |health| health.coalescing.is_some());
    assert_eq!((health.coalescing, health.coalescing_refused), (Some((8, 100)), false));
    let before = queue.hardware_counters();
    assert_eq!(read(&queue, 2_000, 64, false), 2_000);
    let messages = queue.hardware_counters().messages - before.messages;
    assert!(messages < 1_000, "{messages} messages for 2000 entries");

    // A reset forgets the setting, and the moderator sets it again.
    device.reset();
    until(&device, &queue, |health| health.resets == 1);
    until(&device, &queue, |health| health.coalescing == Some((8, 100)));
    for name in ["vic", "dim"] {
        device.set_mode(mode(name));
        assert_eq!(read(&queue, 500, 32, false), 500, "{name}");
    }
    device.set_mode(Mode::INTERRUPT);
    until(&device, &queue, |health| health.coalescing.is_none());
    nothing_was_late(&device);
}

#[test]
fn refused_coalescing_falls_back_to_interrupts() {
    for name in ["coalesce", "vic", "dim"] {
        let device = open("cloud", OpenOptions::new().mode(mode(name)));
        let queue = device.queue().unwrap();
        if name == "coalesce" {
            // A queue that comes after the refusal hears of it a little later.
            until(&device, &queue, |health| {
                health.coalescing_refused && queue.mode() == Mode::INTERRUPT
            });
            assert_eq!(device.events().next(None).unwrap().kind, EventKind::CoalescingRefused);
        }
        assert_eq!(read(&queue, 100, 8, false), 100);
    }
}

/// However often a queue looks, it knows what it was told of its caller until it is told otherwise.
#[test]
fn full_output_keeps_its_mode_note() {
    let device = open("optane", OpenOptions::new().mode(Mode::ADAPTIVE));
    let queue = device.queue().unwrap();
    let due = Some(reap::Instant::now());
    queue.set_next_due(due);
    assert_eq!(read(&queue, 100, 8, false), 100);
    assert_eq!(queue.next_due(), due);
    queue.set_next_due(None);
    assert_eq!((read(&queue, 100, 8, false), queue.next_due()), (100, None));
}

#[test]
fn adaptive_never_delays_urgent_commands() {
    let options = OpenOptions::new().mode("adaptive?delay-exponent=0".parse().unwrap());
    let device = open("tlc", options);
    let queue = device.queue().unwrap();
    assert!(queue.adaptive_state().is_some());
    assert_eq!(read(&queue, 2_000, 32, true), 2_000);
    let decisions = queue.adaptive_state().unwrap().decisions;
    assert!(decisions.waits > 0, "{decisions:?}");
    assert_eq!(decisions.gathered, 0, "{decisions:?}");
    queue.set_mode(Mode::POLL);
    assert_eq!(read(&queue, 10, 1, false), 10);
    assert_eq!(queue.adaptive_state(), None);
}

/// Counts the changes of action that are logged on its thread.
struct Changes(Arc<AtomicU64>);

impl tracing::Subscriber for Changes {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.fields().field("before").is_some() && metadata.fields().field("why").is_some()
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn changes_of_action_are_logged() {
    let (counter, mut changed) = (Arc::new(AtomicU64::new(0)), 0);
    tracing::subscriber::with_default(Changes(counter.clone()), || {
        let cheapest = "adaptive?delay-exponent=0";
        let device = open("tlc", OpenOptions::new().mode(mode(cheapest)));
        let queue = device.queue().unwrap();
        // For latency alone it spins; for CPU time alone it does not.
        for name in [cheapest, "adaptive?delay-exponent=inf"] {
            queue.set_mode(mode(name));
            assert_eq!(read(&queue, 500, 4, false), 500);
            changed += queue.adaptive_state().unwrap().decisions.changed;
        }
    });
    assert_eq!((changed > 0, counter.load(Ordering::Relaxed)), (true, changed));
}

/// What no mask holds back costs all its messages, and is counted; a lane that is only polled sends
/// none. Modes that have the device hold messages back are others.
#[test]
fn without_masks_every_completion_interrupts() {
    for mode in Mode::ALL.into_iter().filter(|mode| mode.moderation().is_none()) {
        let device = open("optane&masks=no", OpenOptions::new().mode(mode));
        let queue = device.queue().unwrap();
        assert_eq!(read(&queue, 1_000, 16, false), 1_000, "{mode}");
        until_counted(queue.hardware_counters().vector_finished, || {
            queue.hardware_counters().messages
        });
        let counted = queue.hardware_counters();
        assert_eq!(counted.finished, 1_000, "{mode}");
        let polls = matches!(mode.to_string().as_str(), "poll" | "hybrid-mean" | "hybrid-min");
        assert_eq!(counted.messages == 0, polls, "{mode}: {counted:?}");
        nothing_was_late(&device);
    }
}

/// New commands take the other lane, those that are out stay where they are, and none is forgotten
/// there.
#[test]
fn mode_switch_drains_the_old_queue() {
    let device = open("tlc&masks=no", OpenOptions::default());
    let queue = device.queue().unwrap();
    let ns = queue.namespaces()[0];
    let mut out = Vec::with_capacity(64);
    for round in 0..100 {
        let (from, to) = if round % 2 == 0 {
            (Mode::POLL, Mode::INTERRUPT)
        } else {
            (Mode::INTERRUPT, Mode::POLL)
        };
        let before = queue.hardware_counters();
        for mode in [from, to] {
            queue.set_mode(mode);
            // It is adopted with the next plan.
            queue
                .wait_or_idle(
                    usize::MAX,
                    Some(reap::Instant::now() + std::time::Duration::from_nanos(1_000)),
                )
                .unwrap();
            let batch = (0..8).map(|i| Request::read(&ns, i * 8, queue.buffer(4096).unwrap()));
            queue.submit(batch).map_err(|(why, _)| why).unwrap();
        }
        queue.wait(16, None).unwrap();
        queue.reap(&mut out);
        assert_eq!(out.drain(..).filter(|done| done.result.is_ok()).count(), 16, "round {round}");
        // Those of the batch in interrupt.
        until_counted(before.messages + 8, || queue.hardware_counters().messages);
    }
    nothing_was_late(&device);
}

#[test]
fn missing_poll_queues_are_reported() {
    assert_eq!(happened(&Device::open("mem:1M?profile=null&masks=no").unwrap()), []);
    let device = Device::open("mem:1M?profile=null&masks=no&queues=1").unwrap();
    assert!(
        is_told(&device, "1 of 1 hardware queues have no poll queue"),
        "{:?}",
        happened(&device)
    );
}
