//! Admin commands, executed one after the other when they are fetched; only Asynchronous Event
//! Requests stay outstanding.

use nvme::admin::{Abort, CreateCq, CreateSq, GetFeatures, GetLogPage, Identify, SetFeatures};
use nvme::fabrics::CrossResetEntry;
use nvme::features::{
    Capabilities, ErrorRecovery, HostBehavior, NumberOfQueues, PowerManagement,
    TemperatureThreshold, VectorConfig, WriteAtomicity, fid, select,
};
use nvme::log::ana::GROUPS_ONLY;
use nvme::log::{
    CommandsSupported, CriticalWarning, FirmwareSlots, IdentifiersSupported, Supported, lid, scope,
};
use nvme::prp::Dptr;
use nvme::{Cid, Cqe, Nsid, Page, QueueId, Sqe, Status, Text, opcode};
use units::{Nanos, Op};

use crate::faults::SeenDoorbells;
use crate::features::{Feature, Features, NPSS};
use crate::identify;
use crate::io::{Data, gather, scatter};
use crate::logs::{ControllerEvent, FailedCommand, TEMPERATURE};
use crate::schedule::Due;
use crate::{AbortOrder, Controller, Port, ShadowBuffers};

/// DW0 of the completion, or the error status.
type Outcome = Result<u32, Status>;

/// Handler of an admin command.
type Run<P> = fn(&mut Controller<P>, Nanos, &Sqe) -> Outcome;

/// Builds a log page.
type LogPage<P> = fn(&Controller<P>, Nanos, &GetLogPage) -> Vec<u8>;

/// The error `status`, with Do Not Retry.
fn refuse(status: Status) -> Outcome {
    Err(status.with_dnr())
}

impl<P: Port> Controller<P> {
    /// Fetches and executes at most `limit` admin commands, while the completion queue has room for
    /// their entries (an Abort may post two). Returns the number of commands.
    #[inline(never)]
    pub(crate) fn fetch_admin(&mut self, now: Nanos, limit: u32) -> u32 {
        for n in 0..limit {
            let Some((sq, _)) = self.queues.pair(QueueId::ADMIN).filter(|(_, cq)| cq.free() > 0)
            else {
                return n;
            };
            let sqe = sq.fetch();
            if self
                .external
                .faults
                .as_ref()
                .is_some_and(|faults| faults.swallows(QueueId::ADMIN, &sqe))
            {
                continue;
            }
            self.carry_out(now, &sqe);
        }
        limit
    }

    fn carry_out(&mut self, now: Nanos, sqe: &Sqe) {
        let outcome = match sqe.opcode {
            // FUSE and PSDT must be zero: no fused commands, and no SGLs for admin commands over
            // PCIe (Base 4.1.1).
            _ if sqe.flags != 0 => refuse(Status::INVALID_FIELD),
            // The request is accepted: it completes when an event occurs, which may be never.
            opcode::admin::ASYNC_EVENT_REQUEST if self.events.request(sqe.cid()) => return,
            _ => self.admin(now, sqe),
        };
        match outcome {
            Ok(result) => self.post_admin(sqe.cid(), result, Status::SUCCESS),
            Err(status) => {
                let failed =
                    FailedCommand { cid: sqe.cid(), opcode: sqe.opcode, nsid: sqe.nsid(), lba: 0 };
                self.logs.command_failed(QueueId::ADMIN, &failed, status);
                self.post_admin(sqe.cid(), 0, status.with_more());
            }
        }
    }

    fn admin(&mut self, now: Nanos, sqe: &Sqe) -> Outcome {
        let run = self.admin_command(sqe.opcode).ok_or(Status::INVALID_OPCODE.with_dnr())?;
        run(self, now, sqe)
    }

    /// The handler of an opcode, if supported. Also used for the Commands Supported and Effects
    /// log.
    fn admin_command(&self, opcode: u8) -> Option<Run<P>> {
        Some(match opcode {
            opcode::admin::DELETE_SQ => {
                |controller, now, sqe| controller.delete_sq(now, QueueId(sqe.cdw10 as u16))
            }
            opcode::admin::CREATE_SQ => {
                |controller, _, sqe| controller.create_sq(&CreateSq::from_sqe(sqe))
            }
            opcode::admin::GET_LOG_PAGE => {
                |controller, now, sqe| controller.get_log_page(now, &GetLogPage::from_sqe(sqe))
            }
            opcode::admin::DELETE_CQ => {
                |controller, _, sqe| controller.delete_cq(QueueId(sqe.cdw10 as u16))
            }
            opcode::admin::CREATE_CQ => {
                |controller, _, sqe| controller.create_cq(&CreateCq::from_sqe(sqe))
            }
            opcode::admin::IDENTIFY => |controller, _, sqe| {
                let command = Identify::from_sqe(sqe);
                let page = identify::page(
                    &command,
                    &controller.config,
                    &controller.store,
                    controller.ana.as_ref(),
                )?;
                controller.send(&page, command.data)
            },
            opcode::admin::ABORT => {
                |controller, now, sqe| Ok(controller.abort(now, Abort::from_sqe(sqe)))
            }
            opcode::admin::SET_FEATURES => {
                |controller, now, sqe| controller.set_features(now, &SetFeatures::from_sqe(sqe))
            }
            opcode::admin::GET_FEATURES => {
                |controller, _, sqe| controller.get_features(&GetFeatures::from_sqe(sqe))
            }
            // This is reached only if the limit (AERL) is exceeded: accepted requests are not
            // completed here.
            opcode::admin::ASYNC_EVENT_REQUEST => |_, _, _| Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED),
            opcode::admin::KEEP_ALIVE => |controller, now, _| {
                controller.restart_keep_alive(now);
                Ok(0)
            },
            opcode::admin::DOORBELL_BUFFER_CONFIG if self.config.shadow_doorbells => {
                |controller, _, sqe| controller.set_doorbell_buffers(sqe.prp1, sqe.prp2)
            }
            _ => return None,
        })
    }

    /// Doorbell Buffer Config (Base 5.2.5). Inaccessible buffers are an invalid field.
    fn set_doorbell_buffers(&mut self, doorbells: u64, events: u64) -> Outcome {
        // Both buffers are one memory page each and page aligned, as the command has no length
        // field.
        let bytes = self.store.page.bytes();
        if !doorbells.is_multiple_of(bytes) || !events.is_multiple_of(bytes) || doorbells == events
        {
            return refuse(Status::INVALID_FIELD);
        }
        let buffers =
            ShadowBuffers { doorbells, events, bytes, stride: 4 << self.config.doorbell_stride };
        self.port
            .shadow_doorbells(Some(buffers))
            .map(|()| 0)
            .or_else(|_| refuse(Status::INVALID_FIELD))
    }

    /// Copies a page to host memory.
    fn send(&self, page: &[u8], to: Dptr) -> Outcome {
        let mut data = Data::prps(to, page.len() as u64, self.store.page)?;
        scatter(page, &mut data, &self.port).map(|()| 0)
    }

    fn create_cq(&mut self, command: &CreateCq) -> Outcome {
        // A host may use fewer queues than the device has; identifiers above those granted by
        // feature 07h are invalid.
        let limit = self.features.granted().completion();
        if !self.queues.is_free_id(command.queue, false) || u32::from(command.queue.0) > limit {
            return refuse(Status::INVALID_QUEUE_ID);
        }
        self.check_ring(command.entries, command.contiguous, command.addr)?;
        if command.vector.is_some_and(|v| !self.interrupts.has(v)) {
            return refuse(Status::INVALID_INTERRUPT_VECTOR);
        }
        let made = self.new_cq(command.queue, command.vector, command.addr, command.entries);
        made.map(|()| 0).or_else(|_| refuse(Status::DATA_TRANSFER_ERROR))
    }

    fn create_sq(&mut self, command: &CreateSq) -> Outcome {
        // The completion queue is checked before the identifier: the two errors have different
        // status codes.
        if command.cq == QueueId::ADMIN || self.queues.cq(command.cq).is_none() {
            return refuse(Status::COMPLETION_QUEUE_INVALID);
        }
        let limit = self.features.granted().submission();
        if !self.queues.is_free_id(command.queue, true) || u32::from(command.queue.0) > limit {
            return refuse(Status::INVALID_QUEUE_ID);
        }
        self.check_ring(command.entries, command.contiguous, command.addr)?;
        let made = self.new_sq(command.queue, command.cq, command.addr, command.entries);
        made.map(|()| 0).or_else(|_| refuse(Status::DATA_TRANSFER_ERROR))
    }

    /// Checks common to both kinds of queues: size, entry size, contiguous (CAP.CQR) and page
    /// aligned memory.
    fn check_ring(&self, entries: u32, contiguous: bool, addr: u64) -> Result<(), Status> {
        let cc = self.cc;
        // A host may leave CC.IOSQES at 0 until it creates an I/O queue.
        let sizes = (cc.iosqes(), cc.iocqes()) == (Sqe::SIZE_LOG2, Cqe::SIZE_LOG2);
        if !sizes || entries < 2 || entries > self.config.queue_entries {
            return Err(Status::INVALID_QUEUE_SIZE.with_dnr());
        }
        if !contiguous {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if !addr.is_multiple_of(self.store.page.bytes()) {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        Ok(())
    }

    /// Delete I/O Submission Queue (Base 5.2.4): commands in service complete with an abort status;
    /// those not fetched are dropped.
    fn delete_sq(&mut self, now: Nanos, queue: QueueId) -> Outcome {
        if queue == QueueId::ADMIN || self.queues.sq(queue).is_none() {
            return refuse(Status::INVALID_QUEUE_ID);
        }
        // The commands are completed before the queue is removed: their entries carry its SQHD.
        for command in self.commands.remove_all(queue) {
            self.finish(now, &command, Some(Status::ABORTED_SQ_DELETION));
        }
        self.queues.remove_sq(queue);
        Ok(0)
    }

    fn delete_cq(&mut self, queue: QueueId) -> Outcome {
        match self.queues.cq(queue) {
            // Its submission queues must be deleted first (Base 5.2.3).
            Some(cq) if queue != QueueId::ADMIN && cq.sqs == 0 => {
                self.queues.remove_cq(queue);
                Ok(0)
            }
            Some(_) if queue != QueueId::ADMIN => refuse(Status::INVALID_QUEUE_DELETION),
            _ => refuse(Status::INVALID_QUEUE_ID),
        }
    }

    /// Abort (Base 5.1.1). A command in service completes as [`AbortOrder`] selects; one that has
    /// completed or was not fetched is not affected.
    fn abort(&mut self, now: Nanos, command: Abort) -> u32 {
        if command.sq == QueueId::ADMIN {
            return self.abort_event_request(command.cid);
        }
        match self.config.aborts {
            AbortOrder::Never => return Abort::NOT_ABORTED,
            AbortOrder::After => return self.abort_later(now, command),
            // The Abort reports that nothing was aborted, and the command ends early all the same.
            // A driver has to accept both.
            AbortOrder::Deferred => {
                self.abort_later(now, command);
                return Abort::NOT_ABORTED;
            }
            AbortOrder::Before => {}
        }
        let Some(victim) = self.commands.find(command.sq, command.cid) else {
            return Abort::NOT_ABORTED;
        };
        self.finish(now, &victim, Some(Status::ABORT_REQUESTED));
        Abort::ABORTED
    }

    /// Lets the Abort complete first, and schedules the aborted command's entry for later.
    fn abort_later(&mut self, now: Nanos, command: Abort) -> u32 {
        let Some((slot, order)) = self.commands.mark_aborted(command.sq, command.cid) else {
            return Abort::NOT_ABORTED;
        };
        // When the original completion time comes, no command with this order is found.
        self.schedule.push(Due { at: now + AbortOrder::LATER, order, slot });
        Abort::ABORTED
    }

    /// Aborts an Asynchronous Event Request, the only admin commands that are outstanding. The
    /// admin completion queue needs room for two entries.
    fn abort_event_request(&mut self, cid: Cid) -> u32 {
        let Some(cq) = self.queues.cq(QueueId::ADMIN) else { return Abort::NOT_ABORTED };
        if cq.free() < 2 {
            cq.consumed(&SeenDoorbells { port: &self.port, faults: self.external.faults.as_ref() });
        }
        // The order matters: `withdraw` removes the request, which must not happen if its entry
        // cannot be posted.
        if cq.free() < 2 || !self.events.withdraw(cid) {
            return Abort::NOT_ABORTED;
        }
        self.post_admin(cid, 0, Status::ABORT_REQUESTED);
        Abort::ABORTED
    }

    fn get_log_page(&mut self, now: Nanos, command: &GetLogPage) -> Outcome {
        // All pages have controller or subsystem scope (Base 5.1.12.1; LPA does not offer SMART per
        // namespace).
        if command.nsid.0 != 0 && command.nsid != Nsid::ALL {
            return refuse(Status::INVALID_FIELD);
        }
        let page = self.log_page(command.lid).ok_or(Status::INVALID_LOG_PAGE.with_dnr())?;
        let page = page(self, now, command);
        // MDTS applies to log pages too.
        if command.len > u64::from(self.config.max_transfer) {
            return refuse(Status::INVALID_FIELD);
        }
        // The page is built in whole even for a part of it; log pages are small and read rarely.
        let range = command.range_of(page.len() as u64)?;
        let mut bytes =
            page.get(range.start as usize..range.end as usize).unwrap_or_default().to_vec();
        // A host may ask for more than the page has; the rest reads as zeroes.
        bytes.resize(command.len as usize, 0);
        self.send(&bytes, command.data)?;
        // Entries are removed only after the page was copied: otherwise an error would lose them.
        if command.lid == lid::CROSS_CONTROLLER_RESET
            && command.lsp & CrossResetEntry::REMOVE_COMPLETED != 0
        {
            self.logs.cross_resets.retain(|entry| entry.status == CrossResetEntry::IN_PROGRESS);
        }
        // RAE = 0 acknowledges the event of this page and unmasks it (Base 5.1.2).
        if !command.retain_event {
            self.logs.acknowledge(command.lid);
            self.events.acknowledge(command.lid);
            self.update_temperature_event();
        }
        Ok(0)
    }

    /// The builder of a log page, if supported. Also used for the Supported Log Pages log.
    fn log_page(&self, id: u8) -> Option<LogPage<P>> {
        Some(match id {
            lid::SUPPORTED_LOG_PAGES => {
                |controller, _, _| controller.supported_log_pages().as_page().to_vec()
            }
            lid::ERROR => |controller, _, _| controller.logs.error_page(),
            lid::SMART => |controller, now, _| {
                controller.logs.smart(now, controller.critical_warning()).as_page().to_vec()
            },
            lid::FIRMWARE_SLOT => |controller, _, _| {
                FirmwareSlots::single(Text::ascii(&controller.config.firmware)).as_page().to_vec()
            },
            lid::CHANGED_NAMESPACES => {
                |controller, _, _| controller.logs.changed().as_page().to_vec()
            }
            lid::COMMANDS_SUPPORTED => {
                |controller, _, _| controller.commands_supported().as_page().to_vec()
            }
            lid::ANA if self.ana.is_some() => {
                |controller, _, command| controller.ana_page(command.lsp & GROUPS_ONLY != 0)
            }
            lid::FEATURES_SUPPORTED => {
                |controller, _, _| controller.features_supported().as_page().to_vec()
            }
            // LPA.MLPS requires the page, although no NVMe-MI command is supported.
            lid::MI_COMMANDS_SUPPORTED => |_, _, _| vec![0; 4096],
            lid::CROSS_CONTROLLER_RESET if self.config.fabric.is_some() => {
                |controller, _, _| controller.logs.cross_reset_page()
            }
            lid::DISCOVERY
                if self.config.fabric.as_ref().is_some_and(|fabric| fabric.discovery.is_some()) =>
            {
                |controller, _, _| {
                    let log = controller
                        .config
                        .fabric
                        .as_ref()
                        .and_then(|fabric| fabric.discovery.as_deref());
                    log.unwrap_or_default().to_vec()
                }
            }
            _ => return None,
        })
    }

    /// Supported Log Pages (Base 5.1.12.1.1).
    fn supported_log_pages(&self) -> IdentifiersSupported {
        let mut page = IdentifiersSupported::default();
        for (id, entry) in (0..=u8::MAX).zip(&mut page.ids) {
            entry.set_supported(self.log_page(id).is_some());
        }
        page
    }

    /// Commands Supported and Effects (Base 5.1.12.1.6). Of admin commands only Set Features
    /// affects namespaces; none changes their number or capabilities.
    fn commands_supported(&self) -> CommandsSupported {
        let mut page = CommandsSupported::default();
        for (opcode, entry) in (0..=u8::MAX).zip(&mut page.admin) {
            if self.admin_command(opcode).is_some() {
                let namespaces =
                    if opcode == opcode::admin::SET_FEATURES { scope::NAMESPACE } else { 0 };
                *entry = Supported::new()
                    .with_supported(true)
                    .with_scope(scope::CONTROLLER | namespaces);
            }
        }
        for (opcode, entry) in (0..=u8::MAX).zip(&mut page.io) {
            if let Some(op) = self.store.operation(opcode) {
                let changes = matches!(
                    op,
                    Op::Write | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable
                );
                *entry = Supported::new()
                    .with_supported(true)
                    .with_lbcc(changes)
                    .with_scope(scope::NAMESPACE);
            }
        }
        page
    }

    /// Feature Identifiers Supported and Effects (Base 5.1.12.1.18).
    fn features_supported(&self) -> IdentifiersSupported {
        let mut page = IdentifiersSupported::default();
        for (id, entry) in (0..=u8::MAX).zip(&mut page.ids) {
            *entry = self.feature(id).map(Feature::supported).unwrap_or_default();
        }
        page
    }

    /// Critical Warning: the Composite Temperature has reached a threshold of feature 04h (Base
    /// 5.1.25.1.3).
    fn critical_warning(&self) -> CriticalWarning {
        let [over, under] = self.features.thresholds;
        CriticalWarning::new().with_temperature(TEMPERATURE >= over || TEMPERATURE <= under)
    }

    /// The temperature event is pending while the warning lasts, if feature 0Bh enables it (Base
    /// 5.1.25.1.5).
    fn update_temperature_event(&mut self) {
        let wanted = CriticalWarning::from_bits(self.features.events().smart());
        self.events.set(
            ControllerEvent::Temperature,
            wanted.temperature() && self.critical_warning().temperature(),
        );
    }

    /// The ANA log page: configured groups and those of namespaces.
    fn ana_page(&self, groups_only: bool) -> Vec<u8> {
        let members = self.store.iter().map(|(nsid, namespace)| (namespace.ana_group, nsid));
        self.ana.as_ref().map(|ana| ana.log(members).to_bytes(groups_only)).unwrap_or_default()
    }

    /// The feature with this identifier, if supported. Also used for the Feature Identifiers
    /// Supported and Effects log.
    fn feature(&self, id: u8) -> Option<&'static Feature> {
        Feature::of(id).filter(|_| id != fid::VOLATILE_WRITE_CACHE || self.store.is_volatile())
    }

    /// Whether a feature can be changed on this device.
    fn is_changeable(&self, id: u8) -> bool {
        self.interrupts.is_changeable()
            || !matches!(id, fid::INTERRUPT_COALESCING | fid::VECTOR_CONFIG)
    }

    fn get_features(&mut self, command: &GetFeatures) -> Outcome {
        let feature = self.feature(command.fid).ok_or(Status::INVALID_FIELD.with_dnr())?;
        if command.select > select::CAPABILITIES {
            return refuse(Status::INVALID_FIELD);
        }
        if feature.is_of_namespace() {
            // FFFFFFFFh is invalid here, as namespaces may have different values.
            self.store.active(command.nsid)?;
        }
        if command.select == select::CAPABILITIES {
            let changeable = self.is_changeable(command.fid);
            let capabilities = Capabilities::new()
                .with_saveable(changeable && feature.saveable)
                .with_changeable(changeable);
            return Ok(capabilities.with_namespace_specific(feature.is_of_namespace()).into_bits());
        }
        let current = command.select == select::CURRENT;
        match command.fid {
            fid::TEMPERATURE_THRESHOLD => {
                let thresholds =
                    if current { self.features.thresholds } else { Features::DEFAULT_THRESHOLDS };
                let asked = TemperatureThreshold::from_bits(command.value);
                // Only the Composite Temperature is supported.
                let threshold =
                    thresholds.get(usize::from(asked.thsel())).filter(|_| asked.tmpsel() == 0);
                threshold.map(|&kelvin| kelvin.into()).ok_or(Status::INVALID_FIELD.with_dnr())
            }
            fid::ERROR_RECOVERY => Ok(self
                .features
                .error_recovery
                .get(&command.nsid)
                .copied()
                .filter(|_| current)
                .unwrap_or_default()),
            fid::NUMBER_OF_QUEUES => {
                Ok(if current { self.features.granted() } else { self.features.offered() }
                    .into_bits())
            }
            fid::VECTOR_CONFIG => {
                let asked = VectorConfig::from_bits(command.value).iv();
                let config =
                    self.interrupts.vector(asked).ok_or(Status::INVALID_FIELD.with_dnr())?;
                Ok(if current { config } else { config.with_cd(false) }.into_bits())
            }
            fid::HOST_BEHAVIOR => {
                let value =
                    if current { self.features.host_behavior } else { HostBehavior::default() };
                self.send(value.as_page(), command.data)
            }
            _ => Ok(self.features.get(feature, command.select)),
        }
    }

    fn set_features(&mut self, now: Nanos, command: &SetFeatures) -> Outcome {
        let feature = self.feature(command.fid).ok_or(Status::INVALID_FIELD.with_dnr())?;
        if command.save && !feature.saveable {
            return refuse(Status::FEATURE_NOT_SAVEABLE);
        }
        let everywhere = command.nsid == Nsid::ALL;
        if feature.is_of_namespace() && !everywhere {
            self.store.active(command.nsid)?;
        }
        if !feature.is_of_namespace() && !everywhere && command.nsid.0 != 0 {
            return refuse(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        if !self.is_changeable(command.fid) {
            return refuse(Status::FEATURE_NOT_CHANGEABLE);
        }
        match command.fid {
            fid::TEMPERATURE_THRESHOLD => {
                self.set_temperature_threshold(TemperatureThreshold::from_bits(command.value))
            }
            fid::ERROR_RECOVERY => {
                self.set_error_recovery(command.nsid, ErrorRecovery::from_bits(command.value))
            }
            fid::NUMBER_OF_QUEUES => {
                self.set_number_of_queues(NumberOfQueues::from_bits(command.value))
            }
            fid::VECTOR_CONFIG => {
                let set = self.interrupts.set_vector(VectorConfig::from_bits(command.value));
                if set { Ok(0) } else { refuse(Status::INVALID_FIELD) }
            }
            fid::HOST_BEHAVIOR => self.set_host_behavior(command.data),
            _ => self.set_dword(now, command),
        }
    }

    /// Sets a feature that is one dword.
    fn set_dword(&mut self, now: Nanos, command: &SetFeatures) -> Outcome {
        let mut value = command.value;
        match command.fid {
            fid::POWER_MANAGEMENT => {
                let asked = PowerManagement::from_bits(value);
                if asked.ps() > NPSS || asked.wh() > PowerManagement::MAX_WORKLOAD {
                    return refuse(Status::INVALID_FIELD);
                }
                value = PowerManagement::new().with_ps(asked.ps()).with_wh(asked.wh()).into_bits();
            }
            // Disabling the cache flushes it first (Base 5.1.25.1.4).
            fid::VOLATILE_WRITE_CACHE if value & 1 == 0 => self.store.flush(Nsid::ALL)?,
            // Write Atomicity is accepted without effect: AWUN and AWUPF are both one block.
            fid::WRITE_ATOMICITY => {
                value =
                    WriteAtomicity::new().with_dn(WriteAtomicity::from_bits(value).dn()).into_bits()
            }
            // Rounded up to a multiple of KAS; on overflow the largest value.
            fid::KEEP_ALIVE_TIMER => value = value.checked_next_multiple_of(100).unwrap_or(value),
            _ => {}
        }
        self.features.set(command.fid, value, command.save);
        self.apply_features();
        match command.fid {
            fid::KEEP_ALIVE_TIMER => self.restart_keep_alive(now),
            fid::ASYNC_EVENT_CONFIG => self.update_temperature_event(),
            _ => {}
        }
        Ok(0)
    }

    /// Temperature Threshold (Base 5.1.25.1.3). Only the Composite Temperature is reported;
    /// hysteresis is not supported (TMPTHHA = 0).
    fn set_temperature_threshold(&mut self, asked: TemperatureThreshold) -> Outcome {
        let reported = asked.tmpsel() == 0 || asked.tmpsel() == TemperatureThreshold::ALL;
        let threshold = self.features.thresholds.get_mut(usize::from(asked.thsel()));
        let Some(threshold) = threshold.filter(|_| reported && asked.tmpthh() == 0) else {
            return refuse(Status::INVALID_FIELD);
        };
        // The current temperature may be beyond the new threshold, which raises the event at once.
        *threshold = asked.tmpth();
        self.update_temperature_event();
        Ok(0)
    }

    /// Error Recovery (NVM 4.1.3.2). TLER is accepted without effect, as reads are not retried.
    /// DULBE requires NSFEAT.DAE, which no namespace has.
    fn set_error_recovery(&mut self, nsid: Nsid, asked: ErrorRecovery) -> Outcome {
        if asked.dulbe() {
            return refuse(Status::INVALID_FIELD);
        }
        let value = ErrorRecovery::new().with_tler(asked.tler()).into_bits();
        let meant =
            self.store.iter().map(|(id, _)| id).filter(|&id| nsid == Nsid::ALL || nsid == id);
        self.features.error_recovery.extend(meant.map(|id| (id, value)));
        Ok(0)
    }

    fn set_number_of_queues(&mut self, asked: NumberOfQueues) -> Outcome {
        // The feature can only be set before the first I/O queue exists.
        if self.queues.has_io_queues() {
            return refuse(Status::COMMAND_SEQUENCE_ERROR);
        }
        // The values are 0's based: FFFFh would be 65 536 I/O queues, for which there are no
        // identifiers.
        if asked.nsq() == u16::MAX || asked.ncq() == u16::MAX {
            return refuse(Status::INVALID_FIELD);
        }
        Ok(self.features.grant(asked).into_bits())
    }

    fn set_host_behavior(&mut self, from: Dptr) -> Outcome {
        let mut bytes = [0; HostBehavior::LEN];
        let mut data = Data::prps(from, bytes.len() as u64, self.store.page)?;
        gather(&mut bytes, &mut data, &self.port)?;
        self.features.host_behavior =
            HostBehavior::from_page(&bytes).map_err(|_| Status::INTERNAL_ERROR)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
