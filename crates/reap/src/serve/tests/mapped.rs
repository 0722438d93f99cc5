//! Doorbells that the client maps.

use std::os::unix::fs::FileExt;

use nvme::{Status, regs};
use vfio_user::{Area, Region};

use super::super::ServeEvent;
use super::NULL;
use super::client::Guest;
use super::running::Running;

const MAPPED: &str = "mem:16M?profile=null&doorbells=mapped";

fn mapped(server: &Running) -> Guest {
    let mut guest = Guest::new(server, true);
    guest.map_doorbells();
    guest.enable();
    guest.make_queues();
    guest
}

/// In its memory or in registers: what is mapped needs no message, and what is in neither has no
/// other way.
#[test]
fn a_mapped_doorbell_is_no_message() {
    for (uri, shadow) in [
        (MAPPED, false),
        (MAPPED, true),
        ("mem:16M?profile=optane&doorbells=mapped&shadow=no", false),
    ] {
        let server = Running::new(uri, None);
        let mut guest = mapped(&server);
        if shadow {
            guest.keep_doorbells(1);
        }
        for n in 0..200u32 {
            let count = n % 7 + 1;
            guest.post_reads(count);
            guest.take_reads(count);
        }
        drop(guest);
        let told = server.stop();
        assert!(told.contains(&ServeEvent::Polls), "{told:?}");
        assert!(
            matches!(told.last(), Some(ServeEvent::Detached { doorbells: 0, commands, .. }) if *commands > 700),
            "{told:?}"
        );
    }
}

#[test]
fn unmapped_doorbells_are_messages() {
    let server = Running::new(MAPPED, None);
    let mut guest = Guest::with_queues(&server, false);
    (0..20).for_each(|n| assert_eq!(guest.read(n % 16, 1, 0xc_0000), Status::SUCCESS));
    // And what one of both ways has said the other has.
    guest.map_doorbells();
    assert_eq!(guest.read(0, 1, 0xc_0000), Status::SUCCESS);
    let registers = guest.registers.take().expect("mapped");
    assert_eq!(guest.read(0, 1, 0xc_0000), Status::SUCCESS);
    let mut tail = [0; 4];
    registers.read_exact_at(&mut tail, 0x1008).expect("read");
    assert_eq!(u32::from_ne_bytes(tail), guest.register(0x1008));
}

#[test]
fn mapped_doorbells_are_opt_in() {
    let server = Running::new(NULL, None);
    let mut guest = Guest::new(&server, true);
    let (region, files) = guest.mappable(Region::MAX_BYTES);
    assert!(region.areas.is_empty() && files.is_empty());
    drop(guest);
    assert!(!server.stop().contains(&ServeEvent::Polls));
    let server = Running::new(MAPPED, None);
    let mut guest = Guest::new(&server, true);
    let (_, files) = guest.mappable(32);
    assert!(files.is_empty(), "a descriptor without a part");
    let (region, files) = guest.mappable(Region::MAX_BYTES);
    assert_eq!(
        (region.areas, region.readable, region.writable),
        (vec![Area { offset: 0x1000, bytes: 0x1000 }], true, true)
    );
    assert_eq!(files.len(), 1);
}

/// Any bytes may stand there at any time: the controller goes on, or fails until it is reset.
#[test]
fn nonsense_costs_a_reset_at_most() {
    let server = Running::new(MAPPED, None);
    let mut guest = mapped(&server);
    let registers = guest.registers.as_ref().expect("mapped").try_clone().expect("a descriptor");
    for seed in 0..40u32 {
        let noise: Vec<u8> =
            (0..0x1000u32).map(|n| ((n ^ seed).wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        registers.write_all_at(&noise, 0x1000).expect("written");
        // Small numbers are places in rings.
        registers
            .write_all_at(&[seed.to_ne_bytes(), (seed / 3).to_ne_bytes()].concat(), 0x1008)
            .expect("written");
        assert_ne!(guest.register(regs::VS), u32::MAX);
    }
    assert!(
        registers.set_len(0).is_err() && registers.set_len(1 << 20).is_err(),
        "its length stays"
    );
    guest.set_register(regs::CC, 0);
    guest.wait_for(|csts| !csts.rdy());
    guest.forget_queues();
    guest.enable();
    guest.make_queues();
    assert_eq!(guest.read(0, 1, 0xc_0000), Status::SUCCESS);
}

/// Who has gone may have kept the descriptor.
#[test]
fn each_client_has_own_doorbells() {
    let server = Running::new(MAPPED, None);
    let mut guest = mapped(&server);
    assert_eq!(guest.read(0, 1, 0xc_0000), Status::SUCCESS);
    let kept = guest.registers.take().expect("mapped");
    drop(guest);
    let mut guest = mapped(&server);
    for n in 0..50u64 {
        kept.write_all_at(&[7; 32], 0x1000).expect("written");
        assert_eq!(guest.read(n % 16, 1, 0xc_0000), Status::SUCCESS);
    }
    assert!(guest.register(0x1008) < 8);
}
