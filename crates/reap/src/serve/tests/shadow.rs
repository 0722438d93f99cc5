//! Doorbells that the client keeps in its memory.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nvme::Status;
use vfio_user::{DmaMap, Request};

use super::super::ServeEvent;
use super::NULL;
use super::client::{Guest, memory};
use super::lent::RAM;
use super::running::Running;

/// Of each read two doorbells are moved. Both are messages where they are registers. In memory a
/// head is one once a lap, as nobody waits for it.
#[test]
fn unneeded_eventidx_updates_are_skipped() {
    const READS: u64 = 200;
    for (uri, sealed) in [
        ("mem:16M?profile=optane", true),
        ("mem:16M?profile=null", false),
        ("mem:16M?profile=optane&doorbells=late", true),
    ] {
        let server = Running::new(uri, None);
        let mut guest = Guest::with_queues(&server, sealed);
        assert!(guest.may_keep_doorbells());
        let before = guest.rung;
        (0..READS).for_each(|n| assert_eq!(guest.read(n % 16, 1, 0xc_0000), Status::SUCCESS));
        assert_eq!(guest.rung - before, 2 * READS, "{uri}");
        guest.keep_doorbells(1);
        let before = guest.rung;
        (0..READS).for_each(|n| assert_eq!(guest.read(n % 16, 1, 0xc_0000), Status::SUCCESS));
        assert!(guest.rung - before <= READS + READS / 8 + 1, "{uri}: {}", guest.rung - before);
        let rung = guest.rung;
        drop(guest);
        let told = server.stop();
        assert!(
            matches!(told.last(), Some(ServeEvent::Detached { doorbells, .. }) if *doorbells == rung),
            "{told:?}, {rung}"
        );
    }
}

/// The server sleeps and wakes in between as it likes: whatever it misses is never completed. As
/// many rounds as ten seconds allow: each waits for the server's turn of the CPU.
#[test]
fn shadow_doorbells_miss_no_command() {
    for sealed in [true, false] {
        let server = Running::new("mem:16M?profile=null", None);
        let mut guest = Guest::with_queues(&server, sealed);
        guest.keep_doorbells(1);
        let begun = Instant::now();
        for n in (0..4000u32).take_while(|_| begun.elapsed() < Duration::from_secs(10)) {
            let count = n % 7 + 1;
            guest.post_reads(count);
            guest.take_reads(count);
            (0..n % 97).for_each(|_| std::hint::spin_loop());
        }
    }
}

/// Commands wait for room among completions; the server sleeps until the head tells of some.
#[test]
fn full_cq_resumes_after_reaping() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::with_queues(&server, true);
    guest.keep_doorbells(1);
    for _ in 0..50 {
        let before = guest.messages();
        guest.post_reads(7);
        guest.wait_messages(before + 1);
        guest.wait_fetched();
        guest.post_reads(5);
        guest.take_reads(12);
    }
}

#[test]
fn admin_queue_may_use_shadow_doorbells() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::new(&server, true);
    guest.enable();
    guest.identify(0x4_0000);
    guest.keep_doorbells(0);
    guest.make_queues();
    for _ in 0..50 {
        assert_eq!(guest.identify(0x4_0000), Status::SUCCESS);
        assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
    }
}

#[test]
fn invalid_shadow_buffers_are_refused() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::new(&server, true);
    guest.enable();
    let file = memory(0x1000, true);
    let map = DmaMap { readable: true, writable: false, offset: 0, address: RAM, size: 0x1000 };
    assert_eq!(guest.ask(&Request::DmaMap(map), &[file.as_fd()]), Ok(Vec::new()));
    let (one, other) = (0x2_0000, 0x2_1000);
    for (registers, events) in [
        (one + 4, other),
        (one, other + 2048),
        (one, one),
        (0x4000_0000, other),
        (one, 0x4000_0000),
        (one, RAM),
    ] {
        assert_eq!(
            guest.doorbell_buffers(registers, events).kind(),
            Status::INVALID_FIELD,
            "{registers:#x}, {events:#x}"
        );
    }
    // Of doorbells that have not been rung the controller writes EventIdx alone.
    assert_eq!(guest.doorbell_buffers(RAM, other), Status::SUCCESS);
    guest.set_register(nvme::regs::CC, 0);
    guest.wait_for(|csts| !csts.rdy());
    guest.forget_queues();
    guest.enable();
    guest.make_queues();
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
}

#[test]
fn a_reset_ends_it() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::new(&server, true);
    for _ in 0..3 {
        guest.enable();
        guest.make_queues();
        assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
        guest.keep_doorbells(1);
        assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
        guest.set_register(nvme::regs::CC, 0);
        guest.wait_for(|csts| !csts.rdy());
        guest.forget_queues();
    }
}

#[test]
fn unmapped_shadow_buffers_are_fatal() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::with_queues(&server, true);
    guest.keep_doorbells(1);
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
    guest.unmap_doorbells();
    guest.wait_for(|csts| csts.cfs());
    guest.set_register(nvme::regs::CC, 0);
    guest.wait_for(|csts| !csts.rdy());
    guest.forget_queues();
    guest.enable();
    guest.make_queues();
    assert_eq!(guest.read(0, 1, 0x4_0000), Status::SUCCESS);
    drop(guest);
    assert!(server.stop().contains(&ServeEvent::QueueLost));
}

#[test]
fn shadow_no_offers_none() {
    let server = Running::new("mem:16M?profile=null&shadow=no", None);
    let mut guest = Guest::new(&server, true);
    guest.enable();
    assert!(!guest.may_keep_doorbells());
    assert_eq!(guest.doorbell_buffers(0x2_0000, 0x2_1000).kind(), Status::INVALID_OPCODE);
}

/// For `docs/serve.md`: how many messages the doorbells of an I/O cost. It judges nothing.
#[test]
#[ignore = "a measurement"]
fn doorbell_messages() {
    const ROUNDS: u32 = 20_000;
    println!("| profile | depth | registers | in memory |\n| --- | --- | --- | --- |");
    for (profile, depth) in
        ["null", "optane"].into_iter().flat_map(|profile| [1, 4, 7].map(|depth| (profile, depth)))
    {
        let messages = ["no", "yes"].map(|shadow| {
            let server = Running::new(&format!("mem:16M?profile={profile}&shadow={shadow}"), None);
            let mut guest = Guest::with_queues(&server, true);
            if shadow == "yes" {
                guest.keep_doorbells(1);
            }
            let before = guest.rung;
            for _ in 0..ROUNDS / depth {
                guest.post_reads(depth);
                guest.take_reads(depth);
            }
            (guest.rung - before) as f64 / f64::from(ROUNDS / depth * depth)
        });
        println!("| `{profile}` | {depth} | {:.2} | {:.2} |", messages[0], messages[1]);
    }
}
