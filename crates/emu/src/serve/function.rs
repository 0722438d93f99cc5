//! The PCI function behind a vfio-user socket: regions, interrupts and reset. VERSION and
//! connection handling are in `session.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hw::{EventFd, GuestRange, Rights};
use nvme::regs::{self, Csts};
use rustix::io::Errno;
use vfio_user::{
    Area, DeviceInfo, DmaMap, DmaUnmap, Interrupts, IrqAction, IrqData, RegionAccess, RegionInfo,
    Reply, Request, SetIrqs, irq, region,
};

use super::config_space::{CONFIG_BYTES, ConfigSpace, MSIX_BYTES, PENDING_BITS};
use super::connection::{ClientConnection, MAX_DATA};
use super::host::{GuestPort, Host, STRIDE};
use super::served::{Namespaces, ServeError, Served};
use crate::{Change, Config, Controller};

/// A refused request: the errno for the client, and the reason.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(errno: Errno, why: impl ToString) -> Refusal {
        Refusal { errno, why: why.to_string() }
    }
}

/// A PCI function with an NVMe controller.
pub(super) struct Function {
    pub(super) controller: Controller<GuestPort>,
    host: Rc<Host>,
    config: ConfigSpace,
    vectors: u16,
    bar0_bytes: u32,
    /// The client may map the doorbells.
    pub(super) maps: bool,
    /// ANA states are reported.
    ana: bool,
    /// The MSI-X table as written by the client. It is not used: as with VFIO, interrupts are
    /// configured by SET_IRQS.
    table: Box<[u8]>,
    /// Doorbell writes received as messages.
    pub(super) doorbells: u64,
    /// Buffer for the data of an access.
    data: Vec<u8>,
}

impl Function {
    /// A function without a client.
    pub(super) fn new(served: Served<'_>) -> Result<Function, ServeError> {
        let Served { config, namespaces, trust, maps_doorbells, .. } = served;
        let config = Config { doorbell_stride: STRIDE, ..config };
        let (queues, vectors) = (config.queue_pairs, config.vectors);
        let host = Rc::new(Host::new(queues, vectors));
        if trust {
            host.memory.borrow_mut().trust();
        }
        let (port, ana) = (GuestPort(host.clone()), matches!(namespaces, Namespaces::Shared(_)));
        let controller = match namespaces {
            Namespaces::Own(namespaces) => Controller::new(config, namespaces, port),
            Namespaces::Shared(subsystem) => subsystem.controller(config, Vec::new(), port)?,
        };
        // Registers, then one doorbell pair for the admin queue and each I/O queue pair.
        let bar0_bytes =
            (regs::DOORBELLS + (u32::from(queues) + 1) * (8 << STRIDE)).next_power_of_two();
        Ok(Function {
            controller,
            config: ConfigSpace::new(vectors, bar0_bytes),
            vectors,
            bar0_bytes,
            maps: maps_doorbells,
            ana,
            table: table(vectors),
            doorbells: 0,
            data: Vec::new(),
            host,
        })
    }

    /// Descriptor of the doorbell file, for a client to map.
    ///
    /// # Errors
    /// See [`Host::doorbell_fd`].
    pub(super) fn doorbell_file(&self) -> io::Result<Option<OwnedFd>> {
        self.host.doorbell_fd()
    }

    /// Attaches a client.
    ///
    /// # Errors
    /// Out of memory for a doorbell file.
    pub(super) fn attach(&mut self, connection: &Rc<ClientConnection>) -> io::Result<()> {
        if self.maps {
            self.host.new_doorbell_file(self.bar0_bytes)?;
        }
        self.host.set_connection(connection);
        Ok(())
    }

    /// Fails the controller (CSTS.CFS) if the memory of a queue was unmapped. Returns whether the
    /// controller has failed.
    pub(super) fn fail_without_queue(&mut self) -> bool {
        let lost = self.host.take_queue_lost();
        if lost {
            self.controller.fail();
        }
        lost
    }

    /// Applies a change to the controller now.
    pub(super) fn try_change(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Ana { .. } if !self.ana => {
                Err("this controller has no ANA groups: it is the only one of its subsystem".into())
            }
            Change::Resize { nsid, .. } if self.controller.store.get(nsid).is_none() => {
                Err(format!(
                    "there is no namespace {nsid}: namespaces are 1 to {}",
                    self.controller.store.highest()
                ))
            }
            Change::Wire(_) => Err(format!(
                "`{change}` applies to connections, which a device on a bus does not have"
            )),
            _ => {
                self.controller.change(hw::now(), change);
                Ok(())
            }
        }
    }

    /// Status of the controller, one property per line.
    pub(super) fn status(&self) -> String {
        let csts = Csts::from_bits(self.host.read32(regs::CSTS));
        let changes: Vec<String> =
            self.controller.circumstances().iter().map(ToString::to_string).collect();
        let faults = if changes.is_empty() { "none".to_owned() } else { changes.join("; ") };
        let doorbells = match (self.host.has_shadow(), self.maps) {
            (true, _) => "in memory",
            (false, true) => "mapped",
            (false, false) => "registers",
        };
        format!(
            "csts {:#010x}{}{}\ndoorbells {doorbells}, {} messages\ncommands {}\nfaults {faults}\n",
            csts.into_bits(),
            if csts.rdy() { " ready" } else { "" },
            if csts.cfs() { " failed" } else { "" },
            self.doorbells,
            self.controller.counters().completed,
        )
    }

    /// Detaches the client: power-on reset; memory and interrupts are removed.
    pub(super) fn detach(&mut self) {
        self.reset();
        self.host.forget();
    }

    /// Power-on reset; memory and interrupts are kept.
    fn reset(&mut self) {
        self.controller.reset_function();
        self.host.take_queue_lost();
        self.config = ConfigSpace::new(self.vectors, self.bar0_bytes);
        self.table = table(self.vectors);
    }

    /// Executes a request, other than VERSION.
    pub(super) fn answer(
        &mut self,
        request: &Request<'_>,
        fds: Vec<OwnedFd>,
    ) -> Result<Reply<'_>, Refusal> {
        match request {
            Request::Version(_) => {
                Err(Refusal::new(Errno::INVAL, "VERSION comes once, as the first message"))
            }
            Request::DmaMap(map) => self.map(map, fds),
            Request::DmaUnmap(unmap) => self.unmap(unmap),
            Request::DeviceInfo => Ok(Reply::DeviceInfo(DeviceInfo {
                can_reset: true,
                is_pci: true,
                regions: region::COUNT,
                irqs: irq::COUNT,
            })),
            Request::RegionInfo { index, room } => match index {
                0..region::COUNT => Ok(Reply::RegionInfo(self.region(*index, *room))),
                _ => Err(Refusal::new(
                    Errno::INVAL,
                    format!("there is no region {index}: regions are 0 to {}", region::COUNT - 1),
                )),
            },
            Request::IrqInfo { index } => match index {
                0..irq::COUNT => {
                    let count = self.irqs(*index);
                    Ok(Reply::IrqInfo(*index, Interrupts { by_eventfd: count > 0, count }))
                }
                _ => Err(Refusal::new(
                    Errno::INVAL,
                    format!(
                        "there is no kind {index} of interrupts: kinds are 0 to {}",
                        irq::COUNT - 1
                    ),
                )),
            },
            Request::SetIrqs(set) => self.set_irqs(set, fds),
            Request::RegionRead(access) => self.read(access),
            Request::RegionWrite(access, data) => self.write(access, data),
            Request::DeviceReset => {
                self.reset();
                Ok(Reply::Done)
            }
        }
    }

    fn map(&mut self, map: &DmaMap, fds: Vec<OwnedFd>) -> Result<Reply<'static>, Refusal> {
        let mut fds = fds.into_iter();
        // Without a descriptor the range is accessed by DMA_READ and DMA_WRITE messages.
        let (file, more) = (fds.next().map(|fd| (fd, map.offset)), fds.next());
        if more.is_some() {
            return Err(Refusal::new(Errno::INVAL, "DMA_MAP has one descriptor, or none"));
        }
        let rights = Rights { read: map.readable, write: map.writable };
        let range = GuestRange { addr: map.address, bytes: map.size, rights };
        let done = self.host.memory.borrow_mut().map(range, file);
        done.map(|()| Reply::Done)
            .map_err(|error| Refusal::new(errno_of(&error), format!("DMA_MAP: {error}")))
    }

    fn unmap(&mut self, unmap: &DmaUnmap) -> Result<Reply<'static>, Refusal> {
        if unmap.bitmap {
            return Err(Refusal::new(
                Errno::OPNOTSUPP,
                "DMA_UNMAP requests a bitmap of written pages: migration is not supported",
            ));
        }
        let mut memory = self.host.memory.borrow_mut();
        if unmap.all {
            memory.clear();
            return Ok(Reply::DmaUnmap(*unmap));
        }
        let done = memory.unmap(unmap.address, unmap.size);
        done.map(|_| Reply::DmaUnmap(*unmap))
            .map_err(|error| Refusal::new(errno_of(&error), format!("DMA_UNMAP: {error}")))
    }

    fn irqs(&self, index: u32) -> u32 {
        match index {
            irq::MSIX => self.vectors.into(),
            // This interrupt is never signalled, but QEMU requires it to exist.
            irq::ERROR => 1,
            _ => 0,
        }
    }

    fn set_irqs(
        &mut self,
        set: &SetIrqs<'_>,
        fds: Vec<OwnedFd>,
    ) -> Result<Reply<'static>, Refusal> {
        let count = self.irqs(set.index);
        let last = set.start.checked_add(set.count).filter(|last| *last <= count || set.count == 0);
        let Some(last) = last.filter(|_| set.index < irq::COUNT) else {
            let why = format!(
                "SET_IRQS selects {} interrupts from {} on of kind {}, which has {count}",
                set.count, set.start, set.index
            );
            return Err(Refusal::new(Errno::INVAL, why));
        };
        if set.action != IrqAction::Trigger {
            return Err(Refusal::new(
                Errno::INVAL,
                "SET_IRQS masks interrupts, which is not supported",
            ));
        }
        match set.data {
            // Disabling interrupts that do not exist succeeds.
            IrqData::None if set.count == 0 && set.index == irq::MSIX => {
                (0..count).for_each(|vector| _ = self.host.set_vector(vector, None));
            }
            IrqData::None if set.index == irq::MSIX => {
                (set.start..last).for_each(|vector| self.host.test_vector(vector))
            }
            IrqData::Bools(bools) if set.index == irq::MSIX => {
                (set.start..last)
                    .zip(bools)
                    .filter(|(_, on)| **on != 0)
                    .for_each(|(vector, _)| self.host.test_vector(vector));
            }
            IrqData::None | IrqData::Bools(_) => {}
            IrqData::Eventfds => self.route(set, fds)?,
        }
        Ok(Reply::Done)
    }

    /// Sets the eventfds of a range of vectors; a vector without one is disabled.
    fn route(&mut self, set: &SetIrqs<'_>, fds: Vec<OwnedFd>) -> Result<(), Refusal> {
        if !fds.is_empty() && fds.len() != set.count as usize {
            let why = format!(
                "SET_IRQS is for {} interrupts, and comes with {} descriptors",
                set.count,
                fds.len()
            );
            return Err(Refusal::new(Errno::INVAL, why));
        }
        let eventfds: Result<Vec<EventFd>, _> = fds.into_iter().map(EventFd::adopt).collect();
        let eventfds =
            eventfds.map_err(|error| Refusal::new(Errno::INVAL, format!("SET_IRQS: {error}")))?;
        if set.index == irq::MSIX {
            let mut eventfds = eventfds.into_iter();
            (set.start..set.start + set.count)
                .for_each(|vector| _ = self.host.set_vector(vector, eventfds.next()));
        }
        Ok(())
    }

    fn region(&self, index: u32, room: u32) -> RegionInfo {
        // Only the doorbells are mappable, as a write to a register has to be handled at once.
        let size = self.region_bytes(index);
        let first = u64::from(regs::DOORBELLS);
        let mappable = (self.maps && index == region::BAR0)
            .then(|| Area { offset: first, bytes: size - first });
        RegionInfo { index, size, mappable, room }
    }

    fn region_bytes(&self, index: u32) -> u64 {
        match index {
            region::BAR0 => self.bar0_bytes.into(),
            region::BAR4 => MSIX_BYTES.into(),
            region::CONFIG => CONFIG_BYTES as u64,
            _ => 0,
        }
    }

    /// Checks that an access lies within its region.
    fn check(&self, access: &RegionAccess) -> Result<(), Refusal> {
        let bytes = self.region_bytes(access.region);
        let end = access.offset.checked_add(access.count.into());
        if access.count > MAX_DATA || end.is_none_or(|end| end > bytes) {
            let RegionAccess { offset, region, count } = access;
            return Err(Refusal::new(
                Errno::INVAL,
                format!(
                    "{count} bytes at {offset:#x} are not in region {region}, which has {bytes:#x}"
                ),
            ));
        }
        Ok(())
    }

    fn read(&mut self, access: &RegionAccess) -> Result<Reply<'_>, Refusal> {
        self.check(access)?;
        let (offset, len) = (access.offset as usize, access.count as usize);
        self.data.clear();
        self.data.resize(len, 0);
        match access.region {
            region::BAR0 => read_registers(&self.host, access.offset as u32, &mut self.data),
            region::BAR4 => {
                let bits = self.host.pending_bits();
                copy(&self.table, 0, offset, &mut self.data);
                copy(&bits, PENDING_BITS as usize, offset, &mut self.data);
            }
            _ => self.data.copy_from_slice(self.config.read(offset, len).unwrap_or_default()),
        }
        Ok(Reply::RegionRead(*access, &self.data))
    }

    fn write(&mut self, access: &RegionAccess, data: &[u8]) -> Result<Reply<'static>, Refusal> {
        self.check(access)?;
        match access.region {
            region::BAR0 => {
                self.doorbells += u64::from(access.offset >= regs::DOORBELLS.into());
                write_registers(&self.host, access.offset as u32, data);
            }
            region::BAR4 => {
                let places = self.table.iter_mut().skip(access.offset as usize);
                places.zip(data).for_each(|(place, byte)| *place = *byte);
            }
            _ => {
                if self.config.write(access.offset as usize, data) {
                    self.reset();
                }
            }
        }
        Ok(Reply::RegionWrite(*access))
    }
}

/// The MSI-X table after reset: every vector is masked (bit 0 of the last dword).
fn table(vectors: u16) -> Box<[u8]> {
    (0..usize::from(vectors) * 16).map(|at| u8::from(at % 16 == 12)).collect()
}

/// Copies the part of `from`, which begins at offset `base`, that the bytes from `offset` overlap.
fn copy(from: &[u8], base: usize, offset: usize, into: &mut [u8]) {
    for (at, place) in (offset..).zip(into) {
        if let Some(byte) = at.checked_sub(base).and_then(|at| from.get(at)) {
            *place = *byte;
        }
    }
}

/// Reads registers, which are dwords, at any alignment and length.
fn read_registers(host: &Host, offset: u32, into: &mut [u8]) {
    for (at, place) in (offset..).zip(into) {
        let word = host.read32(at & !3).to_le_bytes();
        *place = word.get((at & 3) as usize).copied().unwrap_or(u8::MAX);
    }
}

/// Writes registers and doorbells. Only aligned dword writes have an effect (PCIe Transport 3.1).
fn write_registers(host: &Host, offset: u32, data: &[u8]) {
    let (words, rest) = data.as_chunks::<4>();
    if !offset.is_multiple_of(4) || !rest.is_empty() || words.len() > 2 {
        return;
    }
    for (at, word) in (offset..).step_by(4).zip(words) {
        write_register(host, at, u32::from_le_bytes(*word));
    }
}

/// Writes one register. Read-only ones are skipped, as registers are plain memory here.
fn write_register(host: &Host, offset: u32, value: u32) {
    const ASQ_HIGH: u32 = regs::ASQ + 4;
    const ACQ_HIGH: u32 = regs::ACQ + 4;
    let takes = match offset {
        regs::CC | regs::AQA | regs::ASQ | ASQ_HIGH | regs::ACQ | ACQ_HIGH => true,
        regs::NSSR => value == regs::NSSR_RESET,
        // NSSRO is the only writable bit, write 1 to clear.
        regs::CSTS => {
            Csts::from_bits(value).nssro() && Csts::from_bits(host.read32(regs::CSTS)).nssro()
        }
        _ => offset >= regs::DOORBELLS,
    };
    if takes {
        host.write32(offset, value);
    }
}

fn errno_of(error: &hw::GuestError) -> Errno {
    match error {
        hw::GuestError::Overlap { .. } => Errno::EXIST,
        hw::GuestError::Full => Errno::NOSPC,
        _ => Errno::INVAL,
    }
}
