//! Memory without a descriptor: a controller reaches it by messages to its client.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nvme::regs::{self, Aqa, Cc, Csts};
use nvme::{Cqe, Sqe, Status, opcode};
use vfio_user::{Client, DmaMap, DmaRequest, RegionAccess, Request, region};

use super::super::ServeEvent;
use super::client::{Guest, memory};
use super::lent::{LENT, Manner, RAM};
use super::running::Running;

const DEVICE: &str = "mem:16M?profile=optane";
const REFUSED: Status = Status::DATA_TRANSFER_ERROR;

/// Where it is.
const THERE: DmaMap =
    DmaMap { readable: true, writable: true, offset: 0, address: RAM, size: LENT };

/// A guest, ready, that lends memory in this manner.
fn lending(mut guest: Guest, manner: Manner) -> Guest {
    guest.enable();
    guest.make_queues();
    assert_eq!(guest.ask(&Request::DmaMap(THERE), &[]), Ok(Vec::new()));
    guest.lent.manner = manner;
    guest
}

fn refusals(told: &[ServeEvent]) -> usize {
    told.iter().filter(|event| **event == ServeEvent::GivesNoMemory).count()
}

/// Data, lists of pages and what the admin queue answers, in messages of any size, also where a
/// transfer has only some of its pages there.
#[test]
fn commands_point_to_it() {
    for most in [1 << 20, 1000, 100] {
        let server = Running::new(DEVICE, None);
        let mut guest = lending(Guest::taking(&server, most), Manner::Honest);
        let data: Vec<u8> = (0..16384u32).map(|n| (n % 249) as u8).collect();
        for list in [RAM - 4096, RAM + 0x3_0000] {
            guest.list = list;
            guest.lent.put(RAM + 0x1000, &data);
            assert_eq!(guest.write(0, 32, RAM + 0x1000), Status::SUCCESS);
            assert_eq!(guest.read(0, 32, RAM + 0x1_0000), Status::SUCCESS);
            assert_eq!(guest.lent.get(RAM + 0x1_0000, data.len()), data);
            guest.lent.bytes.fill(0);
        }
        assert_eq!(guest.read(0, 32, RAM - 0x2000), Status::SUCCESS);
        assert_eq!(
            [&guest.read_ram(RAM - 0x2000, 0x2000), guest.lent.get(RAM, 0x2000)].concat(),
            data
        );
        assert_eq!(guest.identify(RAM + 0x2_0000), Status::SUCCESS);
        assert_eq!(guest.identify(0x4_0000), Status::SUCCESS);
        assert_eq!(guest.lent.get(RAM + 0x2_0000, 4096), guest.read_ram(0x4_0000, 4096));
        assert!(guest.lent.most <= most.into() && guest.lent.asked > 0);
        drop(guest);
        assert_eq!(refusals(&server.stop()), 0);
    }
}

/// What has a descriptor needs no message, and the controller reads what it may only read.
#[test]
fn memory_descriptors_spare_messages() {
    let server = Running::new(DEVICE, None);
    let mut guest = lending(Guest::new(&server, true), Manner::Honest);
    let file = memory(0x1000, true);
    file.write_all_at(&[7; 512], 0).expect("written");
    let map = DmaMap {
        readable: true,
        writable: false,
        offset: 0,
        address: RAM + 0x10_0000,
        size: 0x1000,
    };
    assert_eq!(guest.ask(&Request::DmaMap(map), &[file.as_fd()]), Ok(Vec::new()));
    assert_eq!(guest.write(3, 1, RAM + 0x10_0000), Status::SUCCESS);
    assert_eq!(guest.read(3, 1, RAM + 0x10_0000).kind(), REFUSED);
    assert_eq!(guest.read(3, 1, 0x8_0000), Status::SUCCESS);
    assert_eq!(guest.read_ram(0x8_0000, 512), [7; 512]);
    // What is not mapped at all is not asked for, nor what the controller may not write to.
    assert_eq!(guest.read(3, 1, RAM + 0x4000_0000).kind(), REFUSED);
    assert_eq!(guest.lent.asked, 0);
}

/// Each costs that command an error, and none the client or another command.
#[test]
fn answers_that_are_none() {
    for manner in [
        Manner::Refuses,
        Manner::Short,
        Manner::Long,
        Manner::Elsewhere,
        Manner::Qemu,
        Manner::Flood,
    ] {
        let server = Running::new(DEVICE, None);
        let mut guest = lending(Guest::new(&server, true), manner);
        guest.lent.bytes.fill(9);
        assert_eq!(guest.read(0, 1, RAM).kind(), REFUSED, "{manner:?}");
        assert_eq!(guest.write(0, 1, RAM).kind(), REFUSED, "{manner:?}");
        assert!(guest.lent.bytes.iter().all(|byte| *byte == 9), "{manner:?}");
        // Who answers wrongly is not asked again; who refuses may think better of it.
        assert_eq!(guest.lent.asked, if manner == Manner::Refuses { 2 } else { 1 }, "{manner:?}");
        assert_eq!(
            (guest.read(0, 1, 0x8_0000), guest.read_ram(0x8_0000, 512)),
            (Status::SUCCESS, vec![0; 512])
        );
        guest.lent.manner = Manner::Honest;
        assert_eq!(
            guest.read(0, 1, RAM).kind() == Status::SUCCESS,
            manner == Manner::Refuses,
            "{manner:?}"
        );
        drop(guest);
        assert_eq!(refusals(&server.stop()), usize::from(manner != Manner::Refuses), "{manner:?}");
    }
}

/// Once it is known to answer, a client may still refuse, or begin to answer nonsense.
#[test]
fn a_client_that_changes_its_manner() {
    for manner in [Manner::Refuses, Manner::Short, Manner::Long, Manner::Elsewhere] {
        let server = Running::new(DEVICE, None);
        let mut guest = lending(Guest::new(&server, true), Manner::Honest);
        assert_eq!(guest.read(0, 1, RAM), Status::SUCCESS);
        guest.lent.manner = manner;
        assert_eq!(guest.write(0, 1, RAM).kind(), REFUSED, "{manner:?}");
        assert_eq!(guest.read(0, 1, RAM).kind(), REFUSED, "{manner:?}");
        assert_eq!(guest.read(0, 1, 0x8_0000), Status::SUCCESS);
    }
}

/// It is waited for once. An answer that comes late is passed over, and one more is an answer to
/// nothing.
#[test]
fn a_client_that_never_answers() {
    let server = Running::new(DEVICE, None);
    let mut guest = lending(Guest::new(&server, true), Manner::Never);
    (0..10).for_each(|_| assert_eq!(guest.read(0, 1, RAM).kind(), REFUSED));
    assert_eq!(guest.lent.asked, 1);
    let late = guest.lent.answer.clone();
    guest.send_raw(&late);
    assert_eq!(guest.read(0, 1, 0x8_0000), Status::SUCCESS);
    guest.send_raw(&late);
    drop(guest);
    // The next client is asked anew.
    let mut guest = lending(Guest::new(&server, true), Manner::Honest);
    assert_eq!(guest.read(0, 1, RAM), Status::SUCCESS);
    drop(guest);
    let told = server.stop();
    assert_eq!(refusals(&told), 1, "{told:?}");
    assert!(
        told.iter().any(|event| matches!(event, ServeEvent::Detached { why: Some(_), .. })),
        "{told:?}"
    );
}

/// What answers no question ends the connection, while one is open as at any other time; and so
/// does a client that goes meanwhile.
#[test]
fn connections_that_end_meanwhile() {
    for manner in [Manner::OtherId, Manner::OtherCommand, Manner::Huge, Manner::Never] {
        let server = Running::new(DEVICE, None);
        let mut guest = lending(Guest::new(&server, true), manner);
        guest.post_read(0, 1, RAM);
        while guest.lent.asked == 0 {
            guest.serve();
        }
        if manner != Manner::Never {
            guest.wait_closed();
        }
        drop(guest);
        let mut guest = lending(Guest::new(&server, true), Manner::Honest);
        assert_eq!(guest.read(0, 1, RAM), Status::SUCCESS, "{manner:?}");
        drop(guest);
        let told = server.stop();
        let let_go = told
            .iter()
            .filter(|event| matches!(event, ServeEvent::Detached { why: Some(_), .. }))
            .count();
        assert_eq!(let_go, usize::from(manner != Manner::Never), "{told:?}");
    }
}

/// Requests that come before the answer are carried out after it, in their order, and none is left
/// lying.
#[test]
fn requests_that_come_before_the_answer() {
    for device in [DEVICE, "mem:16M?profile=optane&doorbells=mapped"] {
        let server = Running::new(device, None);
        let mut guest = lending(Guest::new(&server, true), Manner::Busy);
        for _ in 0..5 {
            let (before, asked) = (guest.messages(), guest.lent.asked);
            guest.post_read(0, 1, RAM);
            // The command's own message, and one that the client tries with each answer: nothing
            // else wakes the server meanwhile.
            while guest.lent.asked < asked + 1 + u64::from(asked == 0) {
                guest.serve();
            }
            guest.wait_messages(before + 1 + guest.lent.asked - asked);
            guest.take_reads(1);
            let word = RegionAccess { offset: 0, region: region::BAR4, count: 4 };
            let table = guest.ask(&Request::RegionRead(word), &[]).expect("read");
            assert_eq!(table[16..], 299u32.to_le_bytes());
        }
    }
}

/// A queue lies in memory that has a descriptor: one that does not is refused, and nothing is
/// asked.
#[test]
fn queues_do_not_lie_there() {
    let server = Running::new(DEVICE, None);
    let mut guest = lending(Guest::new(&server, true), Manner::Honest);
    assert_eq!(guest.doorbell_buffers(RAM, RAM + 0x1000).kind(), Status::INVALID_FIELD);
    assert_eq!(guest.queue_at(RAM), REFUSED);
    assert_eq!(guest.lent.asked, 0);
    assert_eq!(guest.read(0, 1, 0x8_0000), Status::SUCCESS);
}

/// Identify Controller, into memory that has a descriptor and into memory that has none.
#[test]
fn the_projects_own_client_answers() {
    let server = Running::new(DEVICE, None);
    let client = Client::new(server.connect(), Duration::from_secs(60)).expect("a client");
    let (ram, lent) = (memory(RAM, true), Arc::new(Mutex::new(vec![0; LENT as usize])));
    client.map(0, RAM, ram.as_fd(), 0).expect("mapped");
    client.call(&Request::DmaMap(THERE), &[]).expect("mapped");
    let own = lent.clone();
    client.serve_memory(Arc::new(move |ask: &DmaRequest<'_>| {
        let at = (ask.range().0 - RAM) as usize;
        let mut own = own.lock().expect("a lock");
        match *ask {
            DmaRequest::Read { count, .. } => own.get(at..at + count as usize).map(<[u8]>::to_vec),
            DmaRequest::Write { data, .. } => own
                .get_mut(at..at + data.len())
                .map(|bytes| bytes.copy_from_slice(data))
                .map(|()| Vec::new()),
        }
    }));
    let set = |at: u32, value: u32| {
        client.write(region::BAR0, at.into(), &value.to_le_bytes()).expect("written")
    };
    set(regs::AQA, Aqa::new().with_asqs(7).with_acqs(7).into_bits());
    set(regs::ASQ, 0x1000);
    set(regs::ACQ, 0x2000);
    set(
        regs::CC,
        Cc::new().with_en(true).with_iosqes(Sqe::SIZE_LOG2).with_iocqes(Cqe::SIZE_LOG2).into_bits(),
    );
    let ready = || {
        let mut csts = [0; 4];
        client.read(region::BAR0, regs::CSTS.into(), &mut csts).expect("read");
        Csts::from_bits(u32::from_le_bytes(csts)).rdy()
    };
    while !ready() {
        thread::yield_now();
    }
    for (n, to) in [0x4000, RAM + 0x1000].into_iter().enumerate() {
        let sqe = Sqe { opcode: opcode::admin::IDENTIFY, prp1: to, cdw10: 1, ..Sqe::default() };
        let bytes: Vec<u8> = sqe.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        ram.write_all_at(&bytes, 0x1000 + 64 * n as u64).expect("written");
        set(0x1000, n as u32 + 1);
        let mut entry = [0; 16];
        while entry[14] & 1 == 0 {
            thread::yield_now();
            ram.read_exact_at(&mut entry, 0x2000 + 16 * n as u64).expect("read");
        }
        let words =
            [0, 8].map(|at| u64::from_le_bytes(entry[at..at + 8].try_into().expect("a word")));
        assert_eq!(Cqe::from_words(words).status(), Status::SUCCESS);
    }
    let mut page = vec![0; 4096];
    ram.read_exact_at(&mut page, 0x4000).expect("read");
    assert_eq!(lent.lock().expect("a lock")[0x1000..0x2000], page);
    assert!(page.iter().any(|byte| *byte != 0));
}
