//! A scripted controller: correct by default, faulty where a test says so.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use nvme::admin::{Abort, CreateCq, CreateSq, Identify, SetFeatures, cns};
use nvme::features::{NumberOfQueues, fid};
use nvme::identify::{
    self, DescriptorList, ExtendedFormat, LbaFormat, NamespaceList, NvmNamespace,
};
use nvme::opcode::admin;
use nvme::regs::{self, Aqa, Cap, Cc, Csts, Version};
use nvme::{Cqe, Nsid, Page, QueueId, Registers, Sqe, Status, Text};
use units::Nanos;

use super::{Far, MemCq, MemDoorbells, MemSq, Slots};
use crate::QueueSizes;

/// Registers shared by both sides.
#[derive(Clone, Debug, Default)]
pub struct MemRegisters(Rc<RefCell<HashMap<u32, u32>>>);

impl Registers for MemRegisters {
    fn read32(&self, offset: u32) -> u32 {
        self.0.borrow().get(&offset).copied().unwrap_or(0)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.0.borrow_mut().insert(offset, value);
    }
}

/// The host's memory: rings and pages by address.
#[derive(Clone, Debug, Default)]
pub struct Memory(Rc<RefCell<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    next: u64,
    sqs: HashMap<u64, MemSq>,
    cqs: HashMap<u64, MemCq>,
    pages: HashMap<u64, Vec<u8>>,
}

impl Memory {
    fn address(&self) -> u64 {
        self.0.borrow_mut().next += 4096;
        self.0.borrow().next
    }

    pub fn rings(&self, sizes: QueueSizes) -> (u64, u64, MemSq, MemCq) {
        let (sq_at, cq_at, sq, cq) = (
            self.address(),
            self.address(),
            Slots::new(sizes.sq_entries),
            Slots::new(sizes.cq_entries),
        );
        self.0.borrow_mut().sqs.insert(sq_at, sq.clone());
        self.0.borrow_mut().cqs.insert(cq_at, cq.clone());
        (sq_at, cq_at, sq, cq)
    }

    pub fn page(&self) -> u64 {
        self.address()
    }

    pub fn read(&self, address: u64) -> Vec<u8> {
        self.0.borrow().pages.get(&address).cloned().unwrap_or_default()
    }

    /// Writes the start of a page.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.0.borrow_mut().pages.insert(address, bytes.to_vec());
    }

    /// The submission queue at an address.
    pub fn sq(&self, address: u64) -> Option<MemSq> {
        self.0.borrow().sqs.get(&address).cloned()
    }

    /// The completion queue at an address.
    pub fn cq(&self, address: u64) -> Option<MemCq> {
        self.0.borrow().cqs.get(&address).cloned()
    }
}

/// The controller's data and faults.
#[derive(Clone, Debug)]
pub struct Script {
    pub cap: Cap,
    pub version: Version,
    pub identify: identify::Controller,
    /// The reply to CNS 06h.
    pub command_set: identify::NvmController,
    pub namespaces: Vec<(Nsid, identify::IdentifyNamespace, DescriptorList)>,
    /// Extended LBA formats of a namespace.
    pub extended: HashMap<Nsid, ExtendedFormat>,
    /// I/O queues of each type granted.
    pub queues: u32,
    /// From CC.EN to CSTS.RDY; `MAX` is never.
    pub ready_after: Nanos,
    pub stop_after: Nanos,
    pub shutdown_after: Nanos,
    /// Admin commands (opcode, and CNS of Identify or FID of Set Features) that get this status, or
    /// no reply.
    pub refuse: HashMap<(u8, u8), Status>,
    pub silent: Vec<(u8, u8)>,
    /// Admin commands completed with a CID that was never posted.
    pub astray: Vec<(u8, u8)>,
    /// Delay of each admin reply.
    pub thinks: Nanos,
    /// An Identify of an inactive namespace is a page of zeroes.
    pub inactive_is_zeroes: bool,
    /// Replaces the reply to CNS 02h.
    pub list: Option<NamespaceList>,
}

impl Default for Script {
    fn default() -> Script {
        let mut identify = identify::Controller::default();
        (identify.mn, identify.sn) = (Text::ascii("Scripted"), Text::ascii("1"));
        (identify.sqes, identify.cqes, identify.mdts) = (0x66, 0x44, 5);
        (identify.acl, identify.aerl, identify.nn) = (1, 3, 8);
        identify.cntrltype = identify::Controller::TYPE_IO;
        let namespaces = [(1, 9), (3, 12)]
            .map(|(id, log2)| (Nsid(id), namespace(1 << 20, log2), DescriptorList::default()));
        Script {
            cap: Cap::new().with_mqes(63).with_to(2).with_css(Cap::CSS_NVM).with_cqr(true),
            version: Version::V2_1,
            identify,
            command_set: identify::NvmController::default(),
            namespaces: namespaces.into(),
            extended: HashMap::new(),
            queues: 4,
            ready_after: Nanos::from_micros(300),
            stop_after: Nanos::from_micros(200),
            shutdown_after: Nanos::from_micros(500),
            refuse: HashMap::new(),
            silent: Vec::new(),
            astray: Vec::new(),
            thinks: Nanos::ZERO,
            inactive_is_zeroes: false,
            list: None,
        }
    }
}

pub fn namespace(blocks: u64, log2: u8) -> identify::IdentifyNamespace {
    let mut namespace = identify::IdentifyNamespace::default();
    (namespace.nsze, namespace.ncap) = (blocks, blocks);
    namespace.lbaf[0] = LbaFormat::new().with_lbads(log2);
    namespace
}

#[derive(Debug)]
pub struct Controller {
    pub script: Script,
    pub registers: MemRegisters,
    pub memory: Memory,
    pub doorbells: MemDoorbells,
    /// I/O commands fetched and not completed.
    pub held: Vec<(QueueId, Sqe)>,
    /// I/O commands are fetched, and never completed by `step`.
    pub io_silent: bool,
    /// All admin commands, in order: opcode, and CNS or FID.
    pub asked: Vec<(u8, u8)>,
    /// Data written, by namespace and first block.
    disk: HashMap<(u32, u32), Vec<u8>>,
    cq_memory: HashMap<QueueId, (u32, MemCq)>,
    queues: HashMap<QueueId, Far>,
    was: Cc,
    /// EN has changed, but CSTS has not.
    changing: bool,
    /// It was running when it was removed.
    ran: bool,
    until: Nanos,
    /// A delayed admin command, and its time.
    thinking: Option<(Sqe, Nanos)>,
}

impl Controller {
    pub fn new(script: Script) -> Controller {
        let registers = MemRegisters(Rc::default());
        registers.write64(regs::CAP, script.cap.into_bits());
        registers.write32(regs::VS, script.version.into_bits());
        Controller {
            script,
            registers,
            memory: Memory::default(),
            doorbells: MemDoorbells::new(8),
            held: Vec::new(),
            io_silent: false,
            asked: Vec::new(),
            disk: HashMap::new(),
            cq_memory: HashMap::new(),
            queues: HashMap::new(),
            was: Cc::new(),
            changing: false,
            ran: false,
            until: Nanos::ZERO,
            thinking: None,
        }
    }

    pub fn csts(&self) -> Csts {
        Csts::from_bits(self.registers.read32(regs::CSTS))
    }

    /// Whether it is running, or was when it was removed.
    pub fn runs(&self) -> bool {
        if self.csts().is_gone() { self.ran } else { self.csts().rdy() }
    }

    fn set(&self, csts: Csts) {
        self.registers.write32(regs::CSTS, csts.into_bits());
    }

    /// Fails: it does nothing until a reset.
    pub fn break_down(&mut self) {
        self.set(self.csts().with_cfs(true));
    }

    /// Removed: every read is all ones, for good.
    pub fn remove(&mut self) {
        self.ran = self.runs();
        for register in [regs::CAP, regs::CAP + 4, regs::VS, regs::CC, regs::CSTS] {
            self.registers.write32(register, u32::MAX);
        }
    }

    /// Reinserted: it reports a failure.
    pub fn restore_path(&mut self) {
        self.registers.write64(regs::CAP, self.script.cap.into_bits());
        self.registers.write32(regs::VS, self.script.version.into_bits());
        self.registers.write32(regs::CC, self.was.into_bits());
        self.set(Csts::new().with_rdy(self.was.en()).with_cfs(self.was.en()));
    }

    /// From now on it obeys CC.EN = 0, even an earlier one.
    pub fn answer_the_stop(&mut self, after: Nanos) {
        self.script.stop_after = after;
        if !self.was.en() && self.csts().rdy() {
            self.until = after;
        }
    }

    pub fn step(&mut self, now: Nanos) {
        if self.csts().is_gone() {
            return;
        }
        let cc = Cc::from_bits(self.registers.read32(regs::CC));
        if cc.en() != self.was.en() {
            self.until =
                now + if cc.en() { self.script.ready_after } else { self.script.stop_after };
            self.changing = true;
            if cc.en() && self.csts().cfs() && !self.csts().rdy() {
                self.set(Csts::new());
            }
        } else if cc.shn() != self.was.shn() && cc.shn() != Cc::SHN_NONE {
            self.until = now + self.script.shutdown_after;
        }
        self.was = cc;
        if !cc.en() && !self.csts().rdy() {
            // Its function may have been reset.
            self.forget();
        }
        if now >= self.until && self.until < Nanos::MAX {
            let changing = std::mem::take(&mut self.changing);
            if cc.en() && !self.csts().rdy() {
                if !self.csts().cfs() {
                    self.enable();
                }
            } else if !cc.en() && (changing || self.csts().rdy()) {
                self.stop();
            } else if cc.en() && cc.shn() != Cc::SHN_NONE {
                self.set(self.csts().with_shst(Csts::SHST_COMPLETE));
            }
        }
        if self.csts().rdy() && !self.csts().cfs() {
            self.admin(now);
            self.io();
        }
    }

    fn enable(&mut self) {
        let aqa = Aqa::from_bits(self.registers.read32(regs::AQA));
        let (asq, acq) = (self.registers.read64(regs::ASQ), self.registers.read64(regs::ACQ));
        let sizes =
            QueueSizes { sq_entries: aqa.sq_entries(), cq_entries: aqa.cq_entries(), tags: 1 };
        let contents = self.memory.0.borrow();
        let mut device = Far::new(
            QueueId::ADMIN,
            sizes,
            contents.sqs[&asq].clone(),
            contents.cqs[&acq].clone(),
            self.doorbells.clone(),
        );
        device.reset();
        drop(contents);
        self.queues.insert(QueueId::ADMIN, device);
        self.set(Csts::new().with_rdy(true));
    }

    fn stop(&mut self) {
        self.forget();
        self.set(Csts::new());
    }

    fn forget(&mut self) {
        self.queues.clear();
        self.held.clear();
        self.thinking = None;
    }

    /// The next admin command due for a reply.
    fn next_admin(&mut self, now: Nanos) -> Option<Sqe> {
        if self.thinking.is_none() {
            let sqe = self.queues.get_mut(&QueueId::ADMIN)?.fetch()?;
            self.thinking = Some((sqe, now + self.script.thinks));
        }
        self.thinking.take_if(|(_, until)| *until <= now).map(|(sqe, _)| sqe)
    }

    fn admin(&mut self, now: Nanos) {
        while let Some(sqe) = self.next_admin(now) {
            let key = match sqe.opcode {
                admin::IDENTIFY | admin::SET_FEATURES => (sqe.opcode, sqe.cdw10 as u8),
                opcode => (opcode, 0),
            };
            self.asked.push(key);
            if self.script.silent.contains(&key) || key.0 == admin::ASYNC_EVENT_REQUEST {
                continue;
            }
            let (status, result) = match self.script.refuse.get(&key) {
                Some(&status) => (status, 0),
                None => self.execute(&sqe),
            };
            let cid = if self.script.astray.contains(&key) { sqe.cid ^ 0x7000 } else { sqe.cid };
            if let Some(device) = self.queues.get_mut(&QueueId::ADMIN) {
                device.post(Cqe { result, ..device.entry(cid) }, status);
            }
        }
    }

    fn execute(&mut self, sqe: &Sqe) -> (Status, u32) {
        let mut result = 0;
        let status = match sqe.opcode {
            admin::IDENTIFY => match self.page(&Identify::from_sqe(sqe)) {
                Some(page) => {
                    self.memory.0.borrow_mut().pages.insert(sqe.prp1, page);
                    Status::SUCCESS
                }
                None => Status::INVALID_FIELD,
            },
            admin::SET_FEATURES if SetFeatures::from_sqe(sqe).fid == fid::NUMBER_OF_QUEUES => {
                result = NumberOfQueues::of(self.script.queues, self.script.queues).into_bits();
                Status::SUCCESS
            }
            admin::CREATE_CQ => {
                let create = CreateCq::from_sqe(sqe);
                let memory = self.memory.0.borrow().cqs.get(&create.addr).cloned();
                memory.map_or(Status::INVALID_FIELD, |memory| {
                    self.cq_memory.insert(create.queue, (create.entries, memory));
                    Status::SUCCESS
                })
            }
            admin::CREATE_SQ => self.create_sq(&CreateSq::from_sqe(sqe)),
            admin::ABORT => {
                let abort = Abort::from_sqe(sqe);
                let held = self
                    .held
                    .iter()
                    .position(|(queue, sqe)| *queue == abort.sq && sqe.cid() == abort.cid);
                result = held.map_or(Abort::NOT_ABORTED, |n| {
                    self.complete(n, Status::ABORT_REQUESTED);
                    Abort::ABORTED
                });
                Status::SUCCESS
            }
            _ => Status::SUCCESS,
        };
        (status, result)
    }

    fn page(&self, identify: &Identify) -> Option<Vec<u8>> {
        let find = || self.script.namespaces.iter().find(|(nsid, ..)| *nsid == identify.nsid);
        Some(match identify.cns {
            cns::CONTROLLER => self.script.identify.as_page().into(),
            cns::COMMAND_SET_CONTROLLER => self.script.command_set.as_page().into(),
            cns::ACTIVE_NAMESPACES => {
                let above = self
                    .script
                    .namespaces
                    .iter()
                    .map(|(nsid, ..)| *nsid)
                    .filter(|nsid| *nsid > identify.nsid);
                self.script
                    .list
                    .clone()
                    .unwrap_or_else(|| NamespaceList::of(above))
                    .as_page()
                    .into()
            }
            cns::NAMESPACE if self.script.inactive_is_zeroes && find().is_none() => {
                identify::IdentifyNamespace::default().as_page().into()
            }
            cns::NAMESPACE => find()?.1.as_page().into(),
            cns::COMMAND_SET_NAMESPACE => {
                let mut page = NvmNamespace::default();
                page.elbaf.fill(self.script.extended.get(&find()?.0).copied().unwrap_or_default());
                page.as_page().into()
            }
            cns::NAMESPACE_DESCRIPTORS => find()?.2.as_page().into(),
            _ => return None,
        })
    }

    fn create_sq(&mut self, create: &CreateSq) -> Status {
        let sq = self.memory.0.borrow().sqs.get(&create.addr).cloned();
        let (Some(sq), Some((cq_entries, cq))) = (sq, self.cq_memory.get(&create.cq).cloned())
        else {
            return Status::INVALID_FIELD;
        };
        let sizes = QueueSizes { sq_entries: create.entries, cq_entries, tags: 1 };
        let mut device = Far::new(create.queue, sizes, sq, cq, self.doorbells.clone());
        device.reset();
        self.queues.insert(create.queue, device);
        Status::SUCCESS
    }

    fn io(&mut self) {
        for (&id, device) in &mut self.queues {
            if id != QueueId::ADMIN {
                self.held.extend(std::iter::from_fn(|| device.fetch()).map(|sqe| (id, sqe)));
            }
        }
        while !self.io_silent && !self.held.is_empty() {
            self.move_data(self.held[0].1);
            self.complete(0, Status::SUCCESS);
        }
    }

    fn move_data(&mut self, sqe: Sqe) {
        let at = (sqe.nsid, sqe.cdw10);
        match sqe.opcode {
            nvme::opcode::io::WRITE => _ = self.disk.insert(at, self.memory.read(sqe.prp1)),
            nvme::opcode::io::READ => {
                self.memory.write(sqe.prp1, self.disk.get(&at).map_or(&[], |data| data))
            }
            _ => {}
        }
    }

    /// Completes the n-th command in flight.
    pub fn complete(&mut self, n: usize, status: Status) {
        let (queue, sqe) = self.held.remove(n);
        self.post(queue, sqe.cid, status);
    }

    /// Posts an entry for any CID, if there is room: a host that no longer reaps leaves none.
    pub fn post(&mut self, queue: QueueId, cid: u16, status: Status) {
        if let Some(device) = self.queues.get_mut(&queue).filter(|device| device.has_room()) {
            device.post(device.entry(cid), status);
        }
    }
}
