//! Registers: enable, reset and shutdown (Base 3.1.4, 3.5, 3.6).

use nvme::prp::PageSize;
use nvme::regs::{self, Aqa, Cap, Cc, Crto, Csts, Version};
use nvme::{Doorbells, Nsid, QueueId, Registers, Status, Vector};
use units::Nanos;

use super::Controller;
use super::external::Link;
use super::life::Life;
use crate::logs::{ControllerEvent, ControllerEvents};
use crate::queues::{Commands, Cq, Sq};
use crate::{BusError, Config, Port};

/// CAP.MPSMAX: the largest memory page is 64 KiB.
const MPSMAX: u8 = 4;

impl<P: Port> Controller<P> {
    /// Writes the constant registers and CSTS. CAP.CRMS and CRTO are mandatory since revision 2.0
    /// (Base 3.1.4).
    pub(super) fn power_on(&mut self) {
        let registers = self.port.registers();
        let to = self.config.ready_timeout.0.div_ceil(Config::READY_STEP.0) as u8;
        let cap = Cap::new()
            .with_mqes((self.config.queue_entries - 1) as u16)
            .with_cqr(true)
            .with_to(to)
            .with_dstrd(self.config.doorbell_stride)
            .with_nssrs(true)
            .with_css(Cap::CSS_NVM)
            .with_mpsmax(MPSMAX)
            .with_crms(Cap::CRMS_WITH_MEDIA);
        registers.write64(regs::CAP, cap.into_bits());
        registers.write32(regs::VS, Version::V2_1.into_bits());
        registers.write32(regs::CRTO, Crto::new().with_crwmt(to.into()).into_bits());
        registers.write32(regs::CSTS, self.csts.into_bits());
    }

    pub(super) fn set_status(&mut self, csts: Csts) {
        self.csts = csts;
        // While the path is lost the host must not see a change.
        if matches!(self.external.link, Link::Lost(_)) {
            return;
        }
        self.port.registers().write32(regs::CSTS, csts.into_bits());
    }

    /// Time of the next transition of the state.
    #[inline]
    pub(super) fn next_change(&self) -> Option<Nanos> {
        match self.life {
            Life::Starting(at) | Life::ShuttingDown(at) | Life::Stopping(at) => Some(at),
            Life::Disabled | Life::Ready | Life::ShutDown | Life::Dead => None,
        }
    }

    /// Handles writes to CC and NSSR, and transitions whose delay has ended. Returns whether
    /// anything has changed.
    #[inline]
    pub(super) fn poll_registers(&mut self, now: Nanos) -> bool {
        let registers = self.port.registers();
        let (cc, nssr) = (registers.read32(regs::CC), registers.read32(regs::NSSR));
        // Registers are plain memory: a write is noticed by comparing with the value seen last.
        let settled = cc == self.cc.into_bits() && nssr != regs::NSSR_RESET;
        if settled && self.life == Life::Ready && now < self.keep_alive && !self.csts.nssro() {
            return false;
        }
        self.follow_registers(now, Cc::from_bits(cc), nssr)
    }

    #[cold]
    fn follow_registers(&mut self, now: Nanos, cc: Cc, nssr: u32) -> bool {
        let before = (self.life, self.csts, self.cc);
        if nssr == regs::NSSR_RESET {
            self.subsystem_reset();
            return true;
        }
        if self.csts.nssro() {
            self.poll_nssro();
        }
        // CC is handled after NSSR, which resets CC as well.
        if cc != self.cc {
            self.configure(now, cc);
        }
        if now >= self.keep_alive && self.life == Life::Ready {
            self.logs.controller_failed(Status::KEEP_ALIVE_TIMER_EXPIRED);
            self.fail_because("the host did not send Keep Alive in time");
        }
        while let Some(at) = self.next_change().filter(|&at| at <= now) {
            self.settle(at);
        }
        before != (self.life, self.csts, self.cc)
    }

    /// Handles a change of CC.
    fn configure(&mut self, now: Nanos, cc: Cc) {
        let old = std::mem::replace(&mut self.cc, cc);
        match (old.en(), cc.en()) {
            (false, true) => self.enable(now),
            // CC.EN 1 → 0: host memory must not be accessed from here on, long before RDY becomes
            // 0.
            (true, false) => {
                self.forget_host();
                self.life = Life::Stopping(now + self.config.ready_delay);
            }
            _ => {}
        }
        // Only the change from 00b starts a shutdown; the host leaves the bits set until it resets
        // the controller.
        let asked = cc.shn() != Cc::SHN_NONE && old.shn() == Cc::SHN_NONE;
        if asked && matches!(self.life, Life::Ready | Life::Starting(_) | Life::Disabled) {
            self.life = Life::ShuttingDown(now + self.config.shutdown_delay);
            self.set_status(self.csts.with_shst(Csts::SHST_OCCURRING));
        }
    }

    /// CC.EN 0 → 1 (Base 3.5.1): creates the admin queues from AQA, ASQ and ACQ.
    fn enable(&mut self, now: Nanos) {
        self.set_status(Csts::new().with_nssro(self.csts.nssro()));
        match self.admin_queues() {
            Ok(()) => {
                self.logs.power_on(now);
                self.store.page = PageSize::from_mps(self.cc.mps());
                self.life = Life::Starting(now + self.config.ready_delay);
            }
            Err(why) => self.fail_because(&why),
        }
    }

    fn admin_queues(&mut self) -> Result<(), String> {
        let (cc, registers) = (self.cc, self.port.registers());
        // A host may only select what CAP offers. A real controller's behaviour is undefined here;
        // this one fails visibly.
        if cc.css() != Cc::CSS_NVM || cc.ams() != Cc::AMS_ROUND_ROBIN || cc.mps() > MPSMAX {
            return Err(format!(
                "CC {:#010x} selects a command set, an arbitration or a page size that CAP does not offer",
                cc.into_bits()
            ));
        }
        let aqa = Aqa::from_bits(registers.read32(regs::AQA));
        let (asq, acq) = (registers.read64(regs::ASQ), registers.read64(regs::ACQ));
        if aqa.sq_entries() < 2 || aqa.cq_entries() < 2 {
            return Err(format!(
                "AQA {:#010x} gives an admin queue fewer than 2 entries",
                aqa.into_bits()
            ));
        }
        let page = PageSize::from_mps(cc.mps()).bytes();
        if !asq.is_multiple_of(page) || !acq.is_multiple_of(page) {
            return Err(format!("ASQ {asq:#x} or ACQ {acq:#x} is not the start of a page"));
        }
        let refused = |what: &str, e: BusError| format!("{what}: {e}");
        let sq = self.port.map_sq(asq, aqa.sq_entries()).map_err(|e| refused("ASQ", e))?;
        let cq = self.port.map_cq(acq, aqa.cq_entries()).map_err(|e| refused("ACQ", e))?;
        // Doorbells are cleared after mapping: if mapping fails, the registers stay as they are.
        self.clear_doorbells(QueueId::ADMIN);
        self.queues.add_cq(Cq::new(QueueId::ADMIN, Some(Vector(0)), cq, aqa.cq_entries()));
        self.queues.add_sq(Sq::new(QueueId::ADMIN, QueueId::ADMIN, sq, aqa.sq_entries()));
        Ok(())
    }

    /// Sets the doorbells of a new queue to 0, as an earlier queue with this identifier may have
    /// left other values. The host does not write them before the queue is created.
    fn clear_doorbells(&self, queue: QueueId) {
        self.doorbells().ring_sq(queue, 0);
        self.doorbells().ring_cq(queue, 0);
    }

    /// Drops queues, commands and all other state of the host. Host memory is not accessed from
    /// here on, which is before CSTS.RDY becomes 0.
    fn forget_host(&mut self) {
        // Returning to register doorbells cannot fail.
        _ = self.port.shadow_doorbells(None);
        self.queues.clear();
        self.commands = Commands::default();
        self.schedule.clear();
        self.early.clear();
        self.features.reset();
        // Interrupts are reset after the queues are removed, so that no entry remains that a
        // pending message could announce.
        self.interrupts.reset(&self.port);
        self.events = ControllerEvents::new();
        self.keep_alive = Nanos::MAX;
        self.external.forget_host();
        if let Some(ana) = &mut self.ana {
            ana.reset();
        }
        self.apply_features();
    }

    /// Applies features of which other parts keep a copy.
    pub(crate) fn apply_features(&mut self) {
        self.burst = self.features.arbitration().burst().unwrap_or(u32::MAX);
        self.store.write_cache = self.features.write_cache().wce();
        self.interrupts.set_coalescing(self.features.coalescing());
    }

    /// Completes the transition whose delay has ended.
    fn settle(&mut self, at: Nanos) {
        match self.life {
            Life::Starting(_) => {
                self.life = Life::Ready;
                // The timer runs from RDY = 1, not from CC.EN = 1, since the host cannot send
                // commands before.
                self.restart_keep_alive(at);
                self.set_status(self.csts.with_rdy(true));
            }
            Life::Stopping(_) => {
                self.life = Life::Disabled;
                let nssro = self.csts.nssro();
                self.set_status(Csts::new().with_nssro(nssro));
            }
            Life::ShuttingDown(_) => {
                // An abrupt shutdown does not flush caches.
                if self.cc.shn() == Cc::SHN_NORMAL
                    && let Err(status) = self.store.flush(Nsid::ALL)
                {
                    self.logs.controller_failed(status);
                    self.events.raise(ControllerEvent::Internal);
                }
                self.life = Life::ShutDown;
                self.set_status(self.csts.with_shst(Csts::SHST_COMPLETE));
            }
            Life::Disabled | Life::Ready | Life::ShutDown | Life::Dead => {}
        }
    }

    /// Sets CSTS.CFS: the controller stops until it is reset (Base 9.5). A reset in progress (EN =
    /// 0, RDY = 1) completes and clears CFS together with RDY, as the host cannot start another: EN
    /// must not be set while RDY is 1 (Base 3.1.4.5).
    pub(super) fn fail_because(&mut self, why: &str) {
        tracing::warn!(why, "controller fatal status");
        self.forget_host();
        if !matches!(self.life, Life::Stopping(_)) {
            self.life = Life::Dead;
        }
        self.set_status(self.csts.with_cfs(true));
    }

    /// Sets Controller Fatal Status until the host resets the controller. For tests of hosts.
    pub fn fail(&mut self) {
        self.fail_because("asked to");
    }

    /// Power cycle.
    pub(super) fn lose_power(&mut self) {
        self.logs.power_lost(self.life == Life::ShutDown);
        self.subsystem_reset();
        self.set_status(Csts::new());
    }

    /// NSSR (Base 3.7.1): power-on state, with CSTS.NSSRO set.
    fn subsystem_reset(&mut self) {
        self.start_over(Csts::new().with_nssro(true));
    }

    /// PCI function level reset (Base 3.7.2): power-on state at once. A lost path stays lost.
    pub fn reset_function(&mut self) {
        self.start_over(Csts::new());
    }

    fn start_over(&mut self, csts: Csts) {
        self.forget_host();
        let registers = self.port.registers();
        registers.write32(regs::NSSR, 0);
        registers.write32(regs::CC, 0);
        registers.write32(regs::AQA, 0);
        registers.write64(regs::ASQ, 0);
        registers.write64(regs::ACQ, 0);
        self.cc = Cc::new();
        self.life = Life::Disabled;
        self.set_status(csts);
    }

    /// CSTS.NSSRO is cleared by writing 1. Registers are plain memory, so the host's write replaces
    /// the other bits, which reveals it. A write that equals the present value is not detectable;
    /// therefore enabling clears NSSRO too.
    fn poll_nssro(&mut self) {
        let written = Csts::from_bits(self.port.registers().read32(regs::CSTS));
        let cleared = written != self.csts && written.nssro() || self.life == Life::Ready;
        if cleared || written != self.csts {
            self.set_status(self.csts.with_nssro(!cleared));
        }
    }

    /// Restarts the Keep Alive Timer (Base 3.9).
    pub(crate) fn restart_keep_alive(&mut self, now: Nanos) {
        self.keep_alive = match self.features.keep_alive_ms() {
            0 => Nanos::MAX,
            ms => now + Nanos::from_millis(u64::from(ms)),
        };
    }

    /// Maps a new I/O submission queue.
    pub(crate) fn new_sq(
        &mut self,
        id: QueueId,
        cq: QueueId,
        addr: u64,
        entries: u32,
    ) -> Result<(), BusError> {
        let slots = self.port.map_sq(addr, entries)?;
        self.doorbells().ring_sq(id, 0);
        self.queues.add_sq(Sq::new(id, cq, slots, entries));
        Ok(())
    }

    /// Maps a new I/O completion queue and reserves slots for its commands.
    pub(crate) fn new_cq(
        &mut self,
        id: QueueId,
        vector: Option<Vector>,
        addr: u64,
        entries: u32,
    ) -> Result<(), BusError> {
        let slots = self.port.map_cq(addr, entries)?;
        self.doorbells().ring_cq(id, 0);
        self.queues.add_cq(Cq::new(id, vector, slots, entries));
        let commands = self.queues.capacity();
        self.commands.make_room(commands);
        self.schedule.make_room(commands);
        Ok(())
    }
}
