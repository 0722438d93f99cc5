//! Admin commands. Each is over before the next is fetched, Asynchronous Event Requests excepted.

use nvme::admin::{Abort, CreateCq, CreateSq, DeleteCq, DeleteSq, GetFeatures, GetLogPage, Identify, SetFeatures};
use nvme::features::{HostBehavior, NumberOfQueues, VectorConfig, fid, select};
use nvme::log::ana::GROUPS_ONLY;
use nvme::log::{FirmwareSlots, lid};
use nvme::prp::Dptr;
use nvme::{Cid, Cqe, Nsid, Page, QueueId, Sqe, Status, Text, opcode};
use units::Nanos;

use crate::features::{Simple, capabilities};
use crate::identify;
use crate::io::{Data, gather, scatter};
use crate::logs::FailedCommand;
use crate::schedule::Due;
use crate::{AbortOrder, Controller, Port, ShadowBuffers};

/// DW0 of the completion, or why not.
type Outcome = Result<u32, Status>;

/// What is refused for good: the same command would fail again.
fn refuse(status: Status) -> Outcome {
    Err(status.with_dnr())
}

impl<P: Port> Controller<P> {
    /// Fetches at most `limit` admin commands, one after the other, as long as there is room for their entries: an Abort
    /// may take two. Returns how many.
    #[inline(never)]
    pub(crate) fn fetch_admin(&mut self, now: Nanos, limit: u32) -> u32 {
        for n in 0..limit {
            let Some((sq, _)) = self.queues.pair(QueueId::ADMIN).filter(|(_, cq)| cq.free() > 0) else { return n };
            let sqe = sq.fetch();
            self.carry_out(now, &sqe);
        }
        limit
    }

    fn carry_out(&mut self, now: Nanos, sqe: &Sqe) {
        let outcome = match sqe.opcode {
            // FUSE and PSDT: no fused commands; on a bus admin commands have no SGLs (Base 4.1.1).
            _ if sqe.flags != 0 => refuse(Status::INVALID_FIELD),
            opcode::admin::ASYNC_EVENT_REQUEST if self.events.request(sqe.cid()) => return,
            _ => self.admin(now, sqe),
        };
        match outcome {
            Ok(result) => self.post_admin(sqe.cid(), result, Status::SUCCESS),
            Err(status) => {
                let failed = FailedCommand { cid: sqe.cid(), opcode: sqe.opcode, nsid: sqe.nsid(), lba: 0 };
                self.logs.command_failed(QueueId::ADMIN, &failed, status);
                self.post_admin(sqe.cid(), 0, status.with_more());
            }
        }
    }

    fn admin(&mut self, now: Nanos, sqe: &Sqe) -> Outcome {
        match sqe.opcode {
            opcode::admin::IDENTIFY => {
                let command = Identify::from_sqe(sqe);
                let page = identify::page(&command, &self.config, &self.store, self.ana.as_ref())?;
                self.send(&page, command.data)
            }
            opcode::admin::GET_LOG_PAGE => self.get_log_page(now, &GetLogPage::from_sqe(sqe)),
            opcode::admin::GET_FEATURES => self.get_features(&GetFeatures::from_sqe(sqe)),
            opcode::admin::SET_FEATURES => self.set_features(now, &SetFeatures::from_sqe(sqe)),
            opcode::admin::CREATE_CQ => self.create_cq(&CreateCq::from_sqe(sqe)),
            opcode::admin::CREATE_SQ => self.create_sq(&CreateSq::from_sqe(sqe)),
            opcode::admin::DELETE_SQ => self.delete_sq(now, DeleteSq::from_sqe(sqe).queue),
            opcode::admin::DELETE_CQ => self.delete_cq(DeleteCq::from_sqe(sqe).queue),
            opcode::admin::ABORT => Ok(self.abort(now, Abort::from_sqe(sqe))),
            // One that was not taken in: there are as many as allowed.
            opcode::admin::ASYNC_EVENT_REQUEST => Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED),
            opcode::admin::DOORBELL_BUFFER_CONFIG if self.config.shadow_doorbells => self.set_doorbell_buffers(sqe.prp1, sqe.prp2),
            opcode::admin::KEEP_ALIVE => {
                self.restart_keep_alive(now);
                Ok(0)
            }
            _ => refuse(Status::INVALID_OPCODE),
        }
    }

    /// Base 5.2.5: a page for the doorbells, and one for their EventIdx. Buffers that cannot be are an invalid field.
    fn set_doorbell_buffers(&mut self, bells: u64, events: u64) -> Outcome {
        let bytes = self.store.page.bytes();
        if !bells.is_multiple_of(bytes) || !events.is_multiple_of(bytes) || bells == events {
            return refuse(Status::INVALID_FIELD);
        }
        let buffers = ShadowBuffers { bells, events, bytes, stride: 4 << self.config.doorbell_stride };
        self.port.shadow_doorbells(Some(buffers)).map(|()| 0).or_else(|_| refuse(Status::INVALID_FIELD))
    }

    /// Copies a page to where the host wants it.
    fn send(&self, page: &[u8], to: Dptr) -> Outcome {
        let mut data = Data::prps(to, page.len() as u64, self.store.page)?;
        scatter(page, &mut data, &self.port).map(|()| 0)
    }

    fn create_cq(&mut self, command: &CreateCq) -> Outcome {
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

    /// What both kinds of queues must satisfy: sizes, entry sizes, contiguous memory (CAP.CQR) from a page's start on.
    fn check_ring(&self, entries: u32, contiguous: bool, addr: u64) -> Result<(), Status> {
        let cc = self.cc;
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

    /// Base 5.2.4: commands in service end with a status of their own, those not fetched are forgotten.
    fn delete_sq(&mut self, now: Nanos, queue: QueueId) -> Outcome {
        if queue == QueueId::ADMIN || self.queues.sq(queue).is_none() {
            return refuse(Status::INVALID_QUEUE_ID);
        }
        for command in self.commands.remove_all(queue) {
            self.finish(now, &command, Some(Status::ABORTED_SQ_DELETION));
        }
        self.queues.remove_sq(queue);
        Ok(0)
    }

    fn delete_cq(&mut self, queue: QueueId) -> Outcome {
        match self.queues.cq(queue) {
            Some(cq) if queue != QueueId::ADMIN && cq.sqs == 0 => {
                self.queues.remove_cq(queue);
                Ok(0)
            }
            Some(_) if queue != QueueId::ADMIN => refuse(Status::INVALID_QUEUE_DELETION),
            _ => refuse(Status::INVALID_QUEUE_ID),
        }
    }

    /// Base 5.1.1. A command in service ends as [`AbortOrder`] says; one that is complete, or not fetched yet, is left alone.
    fn abort(&mut self, now: Nanos, command: Abort) -> u32 {
        if command.sq == QueueId::ADMIN {
            return self.abort_event_request(command.cid);
        }
        match self.config.aborts {
            AbortOrder::Never => return Abort::NOT_ABORTED,
            AbortOrder::After => return self.abort_later(now, command),
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

    /// Answers the Abort now; the command's own entry follows.
    fn abort_later(&mut self, now: Nanos, command: Abort) -> u32 {
        let Some((slot, order)) = self.commands.mark_aborted(command.sq, command.cid) else { return Abort::NOT_ABORTED };
        // Its old due time finds its slot empty.
        self.schedule.push(Due { at: now + AbortOrder::LATER, order, slot });
        Abort::ABORTED
    }

    /// The only admin commands that are ever outstanding. The Abort's own entry needs room as well.
    fn abort_event_request(&mut self, cid: Cid) -> u32 {
        let Some(cq) = self.queues.cq(QueueId::ADMIN) else { return Abort::NOT_ABORTED };
        if cq.free() < 2 {
            cq.consumed(self.port.doorbells());
        }
        if cq.free() < 2 || !self.events.withdraw(cid) {
            return Abort::NOT_ABORTED;
        }
        self.post_admin(cid, 0, Status::ABORT_REQUESTED);
        Abort::ABORTED
    }

    fn get_log_page(&mut self, now: Nanos, command: &GetLogPage) -> Outcome {
        // All of them tell of the controller or its subsystem (Base 5.1.12.1; LPA offers no health of single namespaces).
        if command.nsid.0 != 0 && command.nsid != Nsid::ALL {
            return refuse(Status::INVALID_FIELD);
        }
        let page = match command.lid {
            lid::ERROR => self.logs.error_page(),
            lid::SMART => self.logs.smart(now).as_page().to_vec(),
            lid::FIRMWARE_SLOT => FirmwareSlots::single(Text::ascii(&self.config.firmware)).as_page().to_vec(),
            lid::CHANGED_NAMESPACES => self.logs.changed().as_page().to_vec(),
            lid::ANA if self.ana.is_some() => self.ana_page(command.lsp & GROUPS_ONLY != 0),
            _ => return refuse(Status::INVALID_LOG_PAGE),
        };
        if command.len > u64::from(self.config.max_transfer) {
            return refuse(Status::INVALID_FIELD);
        }
        let range = command.range_of(page.len() as u64)?;
        let mut bytes = page.get(range.start as usize..range.end as usize).unwrap_or_default().to_vec();
        bytes.resize(command.len as usize, 0);
        self.send(&bytes, command.data)?;
        // Only now that it has arrived: of what was cleared the host would never learn.
        if !command.retain_event {
            self.logs.acknowledge(command.lid);
            self.events.acknowledge(command.lid);
        }
        Ok(0)
    }

    /// The groups that namespaces are in, and those that are configured.
    fn ana_page(&self, groups_only: bool) -> Vec<u8> {
        let members = self.store.iter().map(|(nsid, namespace)| (namespace.ana_group, nsid));
        self.ana.as_ref().map(|ana| ana.log(members).to_bytes(groups_only)).unwrap_or_default()
    }

    fn get_features(&mut self, command: &GetFeatures) -> Outcome {
        if command.select == select::CAPABILITIES && !self.is_changeable(command.fid) {
            return Ok(capabilities(false, false));
        }
        if let Some(feature) = Simple::of(command.fid) {
            if feature == Simple::WriteCache && !self.store.is_volatile() {
                return refuse(Status::INVALID_FIELD);
            }
            return self.features.get(feature, command.select).ok_or(Status::INVALID_FIELD.with_dnr());
        }
        if command.select > select::CAPABILITIES {
            return refuse(Status::INVALID_FIELD);
        }
        let current = command.select == select::CURRENT;
        match command.fid {
            fid::NUMBER_OF_QUEUES | fid::VECTOR_CONFIG | fid::HOST_BEHAVIOR if command.select == select::CAPABILITIES => {
                Ok(capabilities(false, true))
            }
            fid::NUMBER_OF_QUEUES => Ok(if current { self.features.granted() } else { self.features.offered() }.into_bits()),
            fid::VECTOR_CONFIG => {
                let asked = VectorConfig::from_bits(command.value).iv();
                let config = self.interrupts.vector(asked).ok_or(Status::INVALID_FIELD.with_dnr())?;
                Ok(if current { config } else { config.with_cd(false) }.into_bits())
            }
            fid::HOST_BEHAVIOR => {
                let value = if current { self.features.host_behavior } else { HostBehavior::zeroed() };
                self.send(value.as_page(), command.data)
            }
            _ => refuse(Status::INVALID_FIELD),
        }
    }

    fn set_features(&mut self, now: Nanos, command: &SetFeatures) -> Outcome {
        let known = Simple::of(command.fid);
        let other = matches!(command.fid, fid::NUMBER_OF_QUEUES | fid::VECTOR_CONFIG | fid::HOST_BEHAVIOR);
        if known.is_none() && !other {
            return refuse(Status::INVALID_FIELD);
        }
        if command.save && !known.is_some_and(Simple::is_saveable) {
            return refuse(Status::FEATURE_NOT_SAVEABLE);
        }
        if command.nsid.0 != 0 && command.nsid != Nsid::ALL {
            return refuse(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        if !self.is_changeable(command.fid) {
            return refuse(Status::FEATURE_NOT_CHANGEABLE);
        }
        match (known, command.fid) {
            (Some(feature), _) => self.set_simple(now, feature, command.value, command.save),
            (None, fid::NUMBER_OF_QUEUES) => self.set_number_of_queues(NumberOfQueues::from_bits(command.value)),
            (None, fid::VECTOR_CONFIG) => {
                let set = self.interrupts.set_vector(VectorConfig::from_bits(command.value));
                if set { Ok(0) } else { refuse(Status::INVALID_FIELD) }
            }
            (None, _) => self.set_host_behavior(command.data),
        }
    }

    /// Whether a feature can be set at all on this device.
    fn is_changeable(&self, id: u8) -> bool {
        self.interrupts.is_changeable() || !matches!(id, fid::INTERRUPT_COALESCING | fid::VECTOR_CONFIG)
    }

    fn set_simple(&mut self, now: Nanos, feature: Simple, value: u32, save: bool) -> Outcome {
        if feature == Simple::WriteCache && !self.store.is_volatile() {
            return refuse(Status::INVALID_FIELD);
        }
        let value = match feature {
            // In steps of KAS, rounded up; a value that would overflow is as good as the largest.
            Simple::KeepAlive => value.checked_next_multiple_of(100).unwrap_or(value),
            _ => value,
        };
        if feature == Simple::WriteCache && value & 1 == 0 {
            // What the cache holds must not outlive it (Base 5.1.25.1.4).
            self.store.flush(Nsid::ALL)?;
        }
        self.features.set(feature, value, save);
        self.apply_features();
        if feature == Simple::KeepAlive {
            self.restart_keep_alive(now);
        }
        Ok(0)
    }

    fn set_number_of_queues(&mut self, asked: NumberOfQueues) -> Outcome {
        if self.queues.has_io_queues() {
            return refuse(Status::COMMAND_SEQUENCE_ERROR);
        }
        if !asked.is_valid_request() {
            return refuse(Status::INVALID_FIELD);
        }
        Ok(self.features.grant(asked).into_bits())
    }

    fn set_host_behavior(&mut self, from: Dptr) -> Outcome {
        let mut bytes = [0; HostBehavior::LEN];
        let mut data = Data::prps(from, bytes.len() as u64, self.store.page)?;
        gather(&mut bytes, &mut data, &self.port)?;
        self.features.host_behavior = HostBehavior::from_page(&bytes).map_err(|_| Status::INTERNAL_ERROR)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
