//! A bus that changes what the device says, by the fuzzer's bytes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use driver::{Access, AccessPoll, Answer, Properties, Property, Ticket};
use emu::{BusError, Port, SendResult};
use nvme::{CqSlots, Cqe, Doorbells, Registers, Status, Vector};

use crate::bus::{Bus, Ring};
use crate::source::Source;

/// The fuzzer's bytes, for all who change something.
#[derive(Clone)]
pub struct Twist {
    bytes: Rc<[u8]>,
    used: Rc<Cell<usize>>,
}

impl Twist {
    pub fn new(bytes: &[u8]) -> Twist {
        Twist { bytes: bytes.into(), used: Rc::default() }
    }

    pub fn is_over(&self) -> bool {
        self.used.get() >= self.bytes.len()
    }

    fn with<T>(&self, take: impl FnOnce(&mut Source<'_>) -> T) -> T {
        let rest = self.bytes.get(self.used.get()..).unwrap_or_default();
        let mut source = Source::new(rest);
        let taken = take(&mut source);
        self.used.set(self.bytes.len() - source.rest().len());
        taken
    }

    pub fn number(&self, bytes: usize) -> u64 {
        self.with(|source| source.u64(bytes))
    }
}

/// The device's end.
#[derive(Clone)]
pub struct Twisted {
    bus: Bus,
    twist: Twist,
}

impl Twisted {
    pub fn new(bus: Bus, twist: Twist) -> Twisted {
        Twisted { bus, twist }
    }
}

#[derive(Clone)]
pub struct TwistedCq {
    ring: Ring,
    twist: Twist,
}

impl CqSlots for TwistedCq {
    fn store(&self, slot: u32, cqe: &Cqe) {
        let mut cqe = *cqe;
        match self.twist.number(1) {
            // Lost: the entry's slot stays as it was.
            0xc0..0xc8 => return,
            0xc8..0xd0 => cqe.cid ^= self.twist.number(2) as u16,
            0xd0..0xd8 => cqe.status_and_phase ^= self.twist.number(2) as u16,
            0xd8..0xe0 => cqe.result = self.twist.number(4) as u32,
            0xe0..0xe8 => {
                (cqe.sq_id, cqe.sq_head) =
                    (self.twist.number(1) as u16, self.twist.number(2) as u16)
            }
            0xe8..0xf0 => cqe = Cqe::from_words([self.twist.number(8), self.twist.number(8)]),
            _ => {}
        }
        CqSlots::store(&self.ring, slot, &cqe);
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        CqSlots::load(&self.ring, slot, phase)
    }

    fn is_new(&self, slot: u32, phase: bool) -> bool {
        self.ring.is_new(slot, phase)
    }
}

impl Port for Twisted {
    type Sq = Ring;
    type Cq = TwistedCq;

    fn map_sq(&self, addr: u64, entries: u32) -> Result<Ring, BusError> {
        self.bus.map_sq(addr, entries)
    }

    fn map_cq(&self, addr: u64, entries: u32) -> Result<TwistedCq, BusError> {
        Ok(TwistedCq { ring: self.bus.map_cq(addr, entries)?, twist: self.twist.clone() })
    }

    fn dma_read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.bus.dma_read(addr, into)
    }

    fn dma_write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        let mut bytes = from.to_vec();
        for _ in 0..64 {
            let how = self.twist.number(1);
            if how < 0xa0 {
                break;
            }
            let at = self.twist.number(2) as usize % bytes.len().max(1);
            let patch = self.twist.with(|source| source.take((how & 31) as usize + 1).to_vec());
            bytes.iter_mut().skip(at).zip(patch).for_each(|(byte, new)| *byte = new);
        }
        self.bus.dma_write(addr, &bytes)
    }

    fn check(&self, addr: u64, len: u64) -> Result<(), BusError> {
        self.bus.check(addr, len)
    }

    fn doorbells(&self) -> &impl Doorbells {
        &self.bus
    }

    fn registers(&self) -> &impl Registers {
        &self.bus
    }

    fn send_message(&self, _: Vector) -> SendResult {
        SendResult::Sent
    }

    fn is_masked(&self, _: Vector) -> bool {
        false
    }
}

/// The host's way to the properties: right, wrong, refused, late, or silent.
pub struct Wire {
    bus: Bus,
    twist: Twist,
    tickets: Cell<u64>,
    late: RefCell<Vec<(Ticket, Answer)>>,
}

impl Wire {
    pub fn new(bus: Bus, twist: Twist) -> Wire {
        Wire { bus, twist, tickets: Cell::new(0), late: RefCell::default() }
    }

    /// The late answers that have come.
    pub fn come(&self) -> Vec<(Ticket, Answer)> {
        self.late.take()
    }

    fn ticket(&self) -> Ticket {
        self.tickets.set(self.tickets.get() + 1);
        Ticket(self.tickets.get())
    }
}

impl Properties for Wire {
    fn ask(&self, access: Access) -> AccessPoll {
        let how = self.twist.number(1);
        if (0xf8..0xfb).contains(&how) {
            // It never reaches the device.
            return AccessPoll::Pending(self.ticket());
        }
        let mut answer = Ok(access.carry_out(&self.bus));
        match how {
            0xd0..0xd8 => answer = Err(Status(self.twist.number(2) as u16 | 2)),
            0xd8..0xe8 if matches!(access, Access::Get(_)) => {
                answer = Ok(self.changed(access, answer.unwrap_or_default()))
            }
            _ => {}
        }
        if (0xfb..=0xff).contains(&how) {
            let ticket = self.ticket();
            self.late.borrow_mut().push((ticket, answer));
            return AccessPoll::Pending(ticket);
        }
        AccessPoll::Ready(answer)
    }
}

impl Wire {
    fn changed(&self, access: Access, value: u64) -> u64 {
        match access {
            // The time-outs there are hours, of which each is looked at for as long as it lasts.
            Access::Get(Property::Crto) => self.twist.number(4) & 0x003f_003f,
            _ if self.twist.number(1) & 3 == 0 => u64::MAX,
            Access::Get(property) => value ^ self.twist.number(property.width() as usize),
            Access::Set(..) => value,
        }
    }
}
