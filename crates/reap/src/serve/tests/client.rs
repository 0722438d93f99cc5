//! The client: a guest's emulator and its NVMe driver, in as few lines as do.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use hw::EventFd;
use nvme::admin::{CreateCq, CreateSq};
use nvme::regs::{self, Aqa, Cc, Csts};
use nvme::{Cqe, QueueId, Sqe, Status, Vector, opcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use sync::shadow;
use vfio_user::{
    Capabilities, DmaMap, DmaUnmap, Flags, Header, IrqAction, IrqData, Received, Region,
    RegionAccess, Request, SetIrqs, Socket, Version, irq, region,
};

use super::lent::{Lent, RAM};
use super::running::{PATIENCE, Running};

/// Entries of each queue.
const ENTRIES: u32 = 8;
/// Where the queues are: submission, then completion, a page each; the admin pair first.
const QUEUES: u64 = 0x1_0000;

pub(super) fn memory(bytes: u64, sealed: bool) -> File {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .expect("a memory file");
    ftruncate(&file, bytes).expect("its size");
    if sealed {
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
    }
    file.into()
}

/// Where doorbells are kept in memory, and their EventIdx.
const BELLS: u64 = 0x2_0000;
const EVENTS: u64 = 0x2_1000;

/// A queue pair as its host knows it.
#[derive(Clone, Copy, Default)]
struct Pair {
    tail: u32,
    head: u32,
    taken: u32,
}

/// A doorbell in the guest's memory.
struct Words<'a> {
    guest: &'a Guest,
    at: u64,
}

impl Words<'_> {
    fn load(&self, base: u64) -> Result<u32, ()> {
        Ok(u32::from_ne_bytes(
            self.guest.read_ram(base + self.at, 4).try_into().expect("four bytes"),
        ))
    }
}

impl shadow::ShadowDoorbell for Words<'_> {
    type Fault = ();

    fn value(&self) -> Result<u32, ()> {
        self.load(BELLS)
    }

    fn set_value(&self, value: u32) -> Result<(), ()> {
        self.guest.write_ram(BELLS + self.at, &value.to_ne_bytes());
        Ok(())
    }

    fn event(&self) -> Result<u32, ()> {
        self.load(EVENTS)
    }

    fn set_event(&self, _: u32) -> Result<(), ()> {
        Err(())
    }
}

pub(super) struct Guest {
    socket: Socket,
    /// Its connection, to be shut down.
    stream: Arc<UnixStream>,
    ram: File,
    vectors: [EventFd; 2],
    taken: u64,
    pairs: [Pair; 2],
    asked: u16,
    cid: u16,
    /// From this queue on doorbells are kept in memory, if any are.
    shadows: Option<usize>,
    /// Doorbells that are mapped. What is written to the file the mapping has.
    pub(super) registers: Option<File>,
    /// Descriptors of the last answer.
    came: Vec<OwnedFd>,
    /// Doorbells written to the register by messages.
    pub(super) rung: u64,
    /// Memory that the server has no descriptor for.
    pub(super) lent: Lent,
    /// Where lists of pages are.
    pub(super) list: u64,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A child process that another test has just forked keeps a copy of the descriptor until it
        // runs its program: the server sees the end at once all the same.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Guest {
    /// A client that has said nothing yet, once the server takes it.
    pub(super) fn silent(server: &Running) -> Guest {
        Guest::on(server.connect(), true)
    }

    fn on(stream: UnixStream, sealed: bool) -> Guest {
        let vectors = [EventFd::new().expect("an eventfd"), EventFd::new().expect("an eventfd")];
        let stream = Arc::new(stream);
        let socket = Socket::new(Arc::clone(&stream), 1 << 20).expect("a socket");
        let (ram, pairs, lent) = (memory(RAM, sealed), [Pair::default(); 2], Lent::default());
        Guest {
            socket,
            stream,
            ram,
            vectors,
            taken: 0,
            pairs,
            asked: 0,
            cid: 0,
            shadows: None,
            registers: None,
            came: Vec::new(),
            rung: 0,
            lent,
            list: RAM - 4096,
        }
    }

    /// One that has its memory mapped and its interrupts set.
    pub(super) fn new(server: &Running, sealed: bool) -> Guest {
        Guest::come(server, 0, sealed, Capabilities::default())
    }

    /// The same, of a client that takes this many bytes in a message.
    pub(super) fn taking(server: &Running, most: u32) -> Guest {
        Guest::come(
            server,
            0,
            true,
            Capabilities { max_data_xfer_size: most.into(), ..Capabilities::default() },
        )
    }

    /// The same at one of several sockets.
    pub(super) fn new_at(server: &Running, path: usize) -> Guest {
        Guest::come(server, path, true, Capabilities::default())
    }

    /// The same on a connection that the server may still have to accept.
    pub(super) fn greeting(stream: UnixStream) -> Guest {
        let mut guest = Guest::on(stream, true);
        let version = Version { major: 0, minor: 0, capabilities: Capabilities::default() };
        assert!(guest.ask(&Request::Version(version), &[]).is_ok());
        guest.map_ram();
        guest.give_vectors();
        guest
    }

    fn come(server: &Running, path: usize, sealed: bool, capabilities: Capabilities) -> Guest {
        let begun = Instant::now();
        let mut guest = loop {
            // As long as the server has not seen that the client before is gone it sends this one
            // away.
            let mut guest = Guest::on(server.connect_at(path), sealed);
            let version = Version { major: 0, minor: 0, capabilities };
            match guest.try_ask(&Request::Version(version).to_bytes(1, Flags::REQUEST), &[]) {
                Some(answer) => {
                    assert!(answer.is_ok());
                    break guest;
                }
                None => assert!(begun.elapsed() < PATIENCE, "the server takes no client"),
            }
        };
        guest.map_ram();
        guest.give_vectors();
        guest
    }

    /// The answer's body, or its error; `None`: the connection has ended.
    fn try_ask(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Option<Result<Vec<u8>, Errno>> {
        let sent = self.socket.send(bytes, fds);
        sent.ok()?;
        let begun = Instant::now();
        loop {
            match self.socket.receive() {
                Ok(Received::Message(message)) if !message.header.flags.is_reply() => {
                    self.lend(&message.header, &message.body)
                }
                Ok(Received::Message(message)) => {
                    assert!(
                        message.header.flags.is_reply()
                            && bytes.starts_with(&message.header.id.to_ne_bytes())
                    );
                    self.came = message.fds;
                    let error = || Errno::from_raw_os_error(message.header.error as i32);
                    return Some(if message.header.flags.is_error() {
                        Err(error())
                    } else {
                        Ok(message.body)
                    });
                }
                Ok(Received::Nothing) => assert!(begun.elapsed() < PATIENCE, "no answer"),
                Ok(Received::End) | Err(_) => return None,
            }
            // What a full socket has not taken.
            _ = self.socket.flush();
            self.rest();
        }
    }

    /// Until the server says something, or for a moment. A thread that only gave way would come
    /// after all that spin, for each message of a transfer, and the server's patience has an end.
    fn rest(&self) {
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000 };
        _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&moment));
    }

    /// The server asks for memory.
    fn lend(&mut self, header: &Header, body: &[u8]) {
        for bytes in self.lent.hear(header, body) {
            // Not taken: the server has let this client go.
            _ = self.socket.send(&bytes, &[]);
            while matches!(self.socket.flush(), Ok(false)) {
                thread::yield_now();
            }
        }
    }

    /// Deals with what the server asks meanwhile.
    pub(super) fn serve(&mut self) {
        while let Ok(Received::Message(message)) = self.socket.receive() {
            assert!(!message.header.flags.is_reply(), "an answer to nothing");
            self.lend(&message.header, &message.body);
        }
        self.rest();
    }

    /// Until the server has closed the connection.
    pub(super) fn wait_closed(&mut self) {
        let begun = Instant::now();
        while !matches!(self.socket.receive(), Ok(Received::End) | Err(_)) {
            assert!(begun.elapsed() < PATIENCE, "the connection goes on");
            thread::yield_now();
        }
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.send(bytes, &[]).expect("sent");
    }

    pub(super) fn ask(
        &mut self,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, Errno> {
        self.asked += 1;
        let bytes = request.to_bytes(self.asked, Flags::REQUEST);
        self.try_ask(&bytes, fds).expect("a connection")
    }

    pub(super) fn ask_raw(&mut self, command: u16, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let header = Header { id: 999, command, size: 0, flags: Flags::REQUEST, error: 0 };
        self.try_ask(&header.with_body(body), &[]).expect("a connection")
    }

    pub(super) fn map_ram(&mut self) {
        let ram = self.ram.try_clone().expect("a descriptor");
        // In two ranges, as if something were between them.
        for (address, size) in [(0, 0x4_1000), (0x4_1000, RAM - 0x4_1000)] {
            let map = DmaMap { readable: true, writable: true, offset: address, address, size };
            assert_eq!(self.ask(&Request::DmaMap(map), &[ram.as_fd()]), Ok(Vec::new()));
        }
    }

    pub(super) fn unmap_ram(&mut self) {
        assert!(
            self.ask(
                &Request::DmaUnmap(DmaUnmap { all: false, bitmap: false, address: 0, size: RAM }),
                &[]
            )
            .is_ok()
        );
    }

    pub(super) fn give_vectors(&mut self) {
        let set = SetIrqs {
            index: irq::MSIX,
            start: 0,
            count: 2,
            action: IrqAction::Trigger,
            data: IrqData::Eventfds,
        };
        let fds = [0, 1].map(|n| self.vectors[n].try_clone().expect("a descriptor"));
        assert_eq!(
            self.ask(&Request::SetIrqs(set), &[fds[0].as_fd(), fds[1].as_fd()]),
            Ok(Vec::new())
        );
    }

    pub(super) fn register(&mut self, at: u32) -> u32 {
        let access = RegionAccess { offset: at.into(), region: region::BAR0, count: 4 };
        let body = self.ask(&Request::RegionRead(access), &[]).expect("read");
        u32::from_le_bytes(body[16..20].try_into().expect("a word"))
    }

    pub(super) fn set_register(&mut self, at: u32, value: u32) {
        let access = RegionAccess { offset: at.into(), region: region::BAR0, count: 4 };
        self.ask(&Request::RegionWrite(access, &value.to_le_bytes()), &[]).expect("written");
    }

    pub(super) fn config_write(&mut self, at: u64, data: &[u8]) {
        let access = RegionAccess { offset: at, region: region::CONFIG, count: data.len() as u32 };
        self.ask(&Request::RegionWrite(access, data), &[]).expect("written");
    }

    pub(super) fn csts(&mut self) -> Csts {
        Csts::from_bits(self.register(regs::CSTS))
    }

    pub(super) fn wait_for(&mut self, wanted: impl Fn(Csts) -> bool) {
        let begun = Instant::now();
        while !wanted(self.csts()) {
            assert!(begun.elapsed() < PATIENCE, "CSTS stays {:?}", self.csts());
        }
    }

    pub(super) fn write_ram(&self, at: u64, bytes: &[u8]) {
        self.ram.write_all_at(bytes, at).expect("written");
    }

    pub(super) fn read_ram(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read_exact_at(&mut bytes, at).expect("read");
        bytes
    }

    pub(super) fn forget_queues(&mut self) {
        (self.pairs, self.shadows) = ([Pair::default(); 2], None);
        self.write_ram(QUEUES, &[0; 0x4000]);
    }

    /// One whose controller is ready and has an I/O queue pair.
    pub(super) fn with_queues(server: &Running, sealed: bool) -> Guest {
        let mut guest = Guest::new(server, sealed);
        guest.enable();
        guest.make_queues();
        guest
    }

    /// The same at one of several sockets.
    pub(super) fn with_queues_at(server: &Running, path: usize) -> Guest {
        let mut guest = Guest::new_at(server, path);
        guest.enable();
        guest.make_queues();
        guest
    }

    pub(super) fn enable(&mut self) {
        let aqa = Aqa::new().with_asqs(ENTRIES as u16 - 1).with_acqs(ENTRIES as u16 - 1);
        self.set_register(regs::AQA, aqa.into_bits());
        self.set_register(regs::ASQ, QUEUES as u32);
        self.set_register(regs::ACQ, QUEUES as u32 + 0x1000);
        let cc = Cc::new().with_en(true).with_iosqes(Sqe::SIZE_LOG2).with_iocqes(Cqe::SIZE_LOG2);
        self.set_register(regs::CC, cc.into_bits());
        self.wait_for(|csts| csts.rdy());
    }

    pub(super) fn make_queues(&mut self) {
        let (queue, vector) = (QueueId(1), Some(Vector(1)));
        let cq =
            CreateCq { queue, entries: ENTRIES, addr: QUEUES + 0x3000, contiguous: true, vector };
        assert_eq!(self.admin(cq.to_sqe()), Status::SUCCESS);
        let mut sq = CreateSq::from_sqe(&Sqe {
            prp1: QUEUES + 0x2000,
            cdw10: (ENTRIES - 1) << 16 | 1,
            cdw11: 1 << 16 | 1,
            ..Sqe::default()
        })
        .to_sqe();
        sq.opcode = opcode::admin::CREATE_SQ;
        assert_eq!(self.admin(sq), Status::SUCCESS);
    }

    /// Asks for a second completion queue there.
    pub(super) fn queue_at(&mut self, addr: u64) -> Status {
        let cq =
            CreateCq { queue: QueueId(2), entries: ENTRIES, addr, contiguous: true, vector: None };
        self.admin(cq.to_sqe()).kind()
    }

    /// Stores an entry and rings.
    fn post(&mut self, queue: usize, sqe: Sqe) -> u16 {
        self.cid += 1;
        let sqe = Sqe { cid: self.cid, ..sqe };
        let bytes: Vec<u8> = sqe.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = QUEUES + 0x2000 * queue as u64 + u64::from(self.pairs[queue].tail) * 64;
        self.write_ram(at, &bytes);
        self.pairs[queue].tail = (self.pairs[queue].tail + 1) % ENTRIES;
        let tail = self.pairs[queue].tail;
        self.announce(queue, false, (tail + ENTRIES - 1) % ENTRIES, tail);
        self.cid
    }

    /// Moves a doorbell, where it is kept.
    fn announce(&mut self, queue: usize, completion: bool, old: u32, new: u32) {
        let at = 8 * queue as u64 + 4 * u64::from(completion);
        let in_memory = self.shadows.is_some_and(|first| queue >= first);
        if !in_memory || shadow::announce(&Words { guest: self, at }, old, new) == Ok(true) {
            self.ring(0x1000 + at as u32, new);
        }
    }

    /// Writes a doorbell's register, by the mapping or by a message.
    fn ring(&mut self, at: u32, value: u32) {
        if let Some(registers) = &self.registers {
            registers.write_all_at(&value.to_ne_bytes(), at.into()).expect("written");
            return;
        }
        self.rung += 1;
        self.set_register(at, value);
    }

    /// What can be mapped of BAR 0, and its descriptors, for an answer of this many bytes.
    pub(super) fn mappable(&mut self, room: u32) -> (Region, Vec<OwnedFd>) {
        let body =
            self.ask(&Request::RegionInfo { index: region::BAR0, room }, &[]).expect("an answer");
        (Region::from_reply(region::BAR0, &body).expect("a region"), std::mem::take(&mut self.came))
    }

    /// Doorbells are written there, as by a mapping, from now on.
    pub(super) fn map_doorbells(&mut self) {
        let (_, mut files) = self.mappable(Region::MAX_BYTES);
        self.registers = Some(files.pop().expect("a descriptor").into());
    }

    /// Doorbell Buffer Config with these buffers.
    pub(super) fn doorbell_buffers(&mut self, registers: u64, events: u64) -> Status {
        self.admin(Sqe {
            opcode: opcode::admin::DOORBELL_BUFFER_CONFIG,
            prp1: registers,
            prp2: events,
            ..Sqe::default()
        })
    }

    /// Doorbells from queue `first` on are kept in memory, as drivers do (1), or as the
    /// specification has it (0).
    pub(super) fn keep_doorbells(&mut self, first: usize) {
        self.write_ram(BELLS, &[0; 0x2000]);
        assert_eq!(self.doorbell_buffers(BELLS, EVENTS), Status::SUCCESS);
        self.shadows = Some(first);
    }

    /// Whether the controller offers that.
    pub(super) fn may_keep_doorbells(&mut self) -> bool {
        assert_eq!(self.identify(0x4_0000), Status::SUCCESS);
        self.read_ram(0x4_0000 + 257, 1)[0] & 1 != 0
    }

    /// Posts `count` reads at once, without waiting.
    pub(super) fn post_reads(&mut self, count: u32) {
        (0..count).for_each(|n| self.post_read(n.into(), 1, 0x8_0000));
    }

    /// Waits until the last completion says that every command so far was fetched.
    pub(super) fn wait_fetched(&mut self) {
        let begun = Instant::now();
        let last = (self.pairs[1].head + ENTRIES - 2) % ENTRIES;
        // The entry before the one that stays free.
        let phase = ((self.pairs[1].taken + ENTRIES - 2) / ENTRIES).is_multiple_of(2);
        loop {
            let bytes = self.read_ram(QUEUES + 0x3000 + u64::from(last) * 16, 16);
            let word =
                |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("a word"));
            if Cqe::from_words([word(0), word(1)]).phase() == phase {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no completion");
            thread::yield_now();
        }
    }

    /// Takes `count` completions, as they come.
    pub(super) fn take_reads(&mut self, count: u32) {
        (0..count).for_each(|_| assert_eq!(self.take(1).status(), Status::SUCCESS));
    }

    /// Takes the buffers away that doorbells are kept in.
    pub(super) fn unmap_doorbells(&mut self) {
        self.unmap_ram();
        let ram = self.ram.try_clone().expect("a descriptor");
        for (address, size) in [(0, BELLS), (BELLS + 0x2000, RAM - BELLS - 0x2000)] {
            let map = DmaMap { readable: true, writable: true, offset: address, address, size };
            assert_eq!(self.ask(&Request::DmaMap(map), &[ram.as_fd()]), Ok(Vec::new()));
        }
    }

    /// A doorbell for an entry that nobody has written.
    pub(super) fn ring_io(&mut self) {
        self.set_register(0x1008, 1);
    }

    /// The next entry of a completion queue, taken.
    fn take(&mut self, queue: usize) -> Cqe {
        let (pair, begun) = (self.pairs[queue], Instant::now());
        let phase = (pair.taken / ENTRIES).is_multiple_of(2);
        loop {
            let bytes = self
                .read_ram(QUEUES + 0x2000 * queue as u64 + 0x1000 + u64::from(pair.head) * 16, 16);
            let word =
                |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("a word"));
            let cqe = Cqe::from_words([word(0), word(1)]);
            if cqe.phase() == phase {
                let pair = &mut self.pairs[queue];
                (pair.head, pair.taken) = ((pair.head + 1) % ENTRIES, pair.taken + 1);
                let head = pair.head;
                self.announce(queue, true, (head + ENTRIES - 1) % ENTRIES, head);
                return cqe;
            }
            assert!(begun.elapsed() < PATIENCE, "no completion");
            self.serve();
        }
    }

    fn admin(&mut self, sqe: Sqe) -> Status {
        let cid = self.post(0, sqe);
        let cqe = self.take(0);
        assert_eq!(cqe.cid, cid);
        cqe.status()
    }

    /// Identify Controller, into this address.
    pub(super) fn identify(&mut self, to: u64) -> Status {
        self.admin(Sqe { opcode: opcode::admin::IDENTIFY, prp1: to, cdw10: 1, ..Sqe::default() })
    }

    fn io(&mut self, op: u8, lba: u64, blocks: u32, at: u64) -> u16 {
        // A second page directly, more by a list on the last page of memory.
        let list: Vec<u8> = (1..16).flat_map(|page| (at + page * 4096).to_le_bytes()).collect();
        if self.list < RAM {
            self.write_ram(self.list, &list)
        } else {
            self.lent.put(self.list, &list)
        }
        let prp2 = if blocks <= 16 { at + 4096 } else { self.list };
        self.post(
            1,
            Sqe {
                opcode: op,
                nsid: 1,
                prp1: at,
                prp2,
                cdw10: lba as u32,
                cdw12: blocks - 1,
                ..Sqe::default()
            },
        )
    }

    /// Does it and waits for its message; other messages may have come as well.
    fn done(&mut self, op: u8, lba: u64, blocks: u32, at: u64) -> Status {
        let before = self.messages();
        let cid = self.io(op, lba, blocks, at);
        self.wait_messages(before + 1);
        let cqe = self.take(1);
        assert_eq!(cqe.cid, cid);
        cqe.status()
    }

    pub(super) fn write(&mut self, lba: u64, blocks: u32, from: u64) -> Status {
        self.done(opcode::io::WRITE, lba, blocks, from)
    }

    pub(super) fn read(&mut self, lba: u64, blocks: u32, to: u64) -> Status {
        self.done(opcode::io::READ, lba, blocks, to)
    }

    /// A read whose completion nobody is told of.
    pub(super) fn read_quietly(&mut self, lba: u64, blocks: u32, to: u64) -> Status {
        let cid = self.io(opcode::io::READ, lba, blocks, to);
        // The entry is left unacknowledged: its message is still owed.
        let begun = Instant::now();
        let (pair, phase) = (self.pairs[1], (self.pairs[1].taken / ENTRIES).is_multiple_of(2));
        loop {
            let bytes = self.read_ram(QUEUES + 0x3000 + u64::from(pair.head) * 16, 16);
            let word =
                |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("a word"));
            let cqe = Cqe::from_words([word(0), word(1)]);
            if cqe.phase() == phase {
                assert_eq!(cqe.cid, cid);
                self.pairs[1].head = (pair.head + 1) % ENTRIES;
                self.pairs[1].taken += 1;
                return cqe.status();
            }
            assert!(begun.elapsed() < PATIENCE, "no completion");
            thread::yield_now();
        }
    }

    pub(super) fn post_read(&mut self, lba: u64, blocks: u32, to: u64) {
        self.io(opcode::io::READ, lba, blocks, to);
    }

    /// Aborts the command that was posted before the last one; whether its entry then says so.
    pub(super) fn abort_first_read(&mut self) -> bool {
        let cid = self.cid - 1;
        let abort =
            Sqe { opcode: opcode::admin::ABORT, cdw10: u32::from(cid) << 16 | 1, ..Sqe::default() };
        assert_eq!(self.admin(abort), Status::SUCCESS);
        let cqe = self.take(1);
        cqe.cid == cid && cqe.status().kind() == Status::ABORT_REQUESTED
    }

    /// Messages of the I/O queue's vector so far.
    pub(super) fn messages(&mut self) -> u64 {
        self.taken += self.vectors[1].drain();
        self.taken
    }

    pub(super) fn wait_messages(&mut self, count: u64) {
        let begun = Instant::now();
        while self.messages() < count {
            assert!(begun.elapsed() < PATIENCE, "no message");
            self.serve();
        }
    }
}
