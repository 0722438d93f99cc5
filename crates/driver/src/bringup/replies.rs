//! Handles the replies to bring-up's admin commands: checks each, stores what it says in the
//! inventory, and chooses the next command.

use nvme::features::NumberOfQueues;
use nvme::identify::{
    self, DescriptorList, ExtendedFormat, NamespaceList, NvmController, NvmNamespace,
};
use nvme::regs::Version;
use nvme::{Nsid, Page, QueueId, Status};
use units::Nanos;

use super::{
    Bringup, BringupCause, BringupCommand, BringupState, Model, QueueLayout, Subsystem,
    WantedQueues, post,
};
use crate::{AdminReply, Limits, Namespace};

/// Maximum namespaces. Without it a malicious controller could continue its list for ever.
const MAX_NAMESPACES: usize = 16_384;

impl Bringup {
    /// Handles a successful reply. Returns the next state.
    pub(super) fn handle_reply(
        &mut self,
        command: BringupCommand,
        reply: &AdminReply,
    ) -> Result<BringupState, BringupCause> {
        Ok(match command {
            BringupCommand::Controller => {
                self.handle_controller(&page(reply)?)?;
                match self.has_command_set_pages() {
                    true => post(BringupCommand::NvmController),
                    false => self.list_namespaces()?,
                }
            }
            BringupCommand::NvmController => {
                let page = page::<NvmController>(reply)?;
                let cap = self.inventory.cap;
                self.inventory.limits =
                    self.inventory.limits.map(|limits| limits.with_command_set(cap, &page));
                self.list_namespaces()?
            }
            BringupCommand::ActiveNamespaces { after } => self.handle_list(after, &page(reply)?)?,
            BringupCommand::Namespace(n) => self.handle_namespace(n, &page(reply)?),
            BringupCommand::NvmNamespace { n, format } => {
                self.handle_extended(n, format, page::<NvmNamespace>(reply)?.format(format))
            }
            BringupCommand::Descriptors(n) => self.handle_descriptors(n, &page(reply)?),
            BringupCommand::NumberOfQueues => {
                let granted = NumberOfQueues::from_bits(reply.result);
                self.inventory.granted = (granted.submission(), granted.completion());
                self.plan_queues()?;
                post(BringupCommand::AsyncEvents)
            }
            BringupCommand::AsyncEvents => self.before_queues(),
            BringupCommand::Doorbells => {
                self.inventory.shadow_doorbells_active = true;
                self.next_queue(0)
            }
            BringupCommand::KeepAlive => {
                self.inventory.keep_alive = Nanos::from_millis(self.wanted_keep_alive().into());
                BringupState::Ready
            }
            BringupCommand::CreateCq(n) => post(BringupCommand::CreateSq(n)),
            BringupCommand::CreateSq(n) => self.next_queue(n + 1),
        })
    }

    /// Handles an error status: some commands are optional.
    pub(super) fn handle_error(
        &mut self,
        command: BringupCommand,
        status: Status,
    ) -> Result<BringupState, BringupCause> {
        match command {
            // A transient error is not "unsupported": without its identifiers a namespace would
            // look like another one after a reset.
            BringupCommand::NvmController
            | BringupCommand::NvmNamespace { .. }
            | BringupCommand::Descriptors(_)
                if !is_unsupported(status) =>
            {
                Err(BringupCause::Rejected { status })
            }
            BringupCommand::NvmController => self.list_namespaces(),
            BringupCommand::ActiveNamespaces { after: Nsid(0) } if is_unsupported(status) => {
                self.scan_sequentially()
            }
            // A controller without CNS 05h has no extended LBA formats.
            BringupCommand::NvmNamespace { n, format } => {
                Ok(self.handle_extended(n, format, ExtendedFormat::new()))
            }
            BringupCommand::Descriptors(n) => Ok(self.next_namespace(n + 1)),
            BringupCommand::AsyncEvents => Ok(self.before_queues()),
            // Shadow doorbells are an optimisation: the registers still work.
            BringupCommand::Doorbells => Ok(self.next_queue(0)),
            // Over fabrics Connect has set the Keep Alive Timer already.
            BringupCommand::KeepAlive if self.config.quiesce_time > Nanos::ZERO => {
                self.inventory.keep_alive = Nanos::from_millis(self.wanted_keep_alive().into());
                Ok(BringupState::Ready)
            }
            // Keep-alive is optional: CSTS and command time-outs still find a lost controller.
            BringupCommand::KeepAlive => Ok(BringupState::Ready),
            // The namespace was detached after it was listed.
            BringupCommand::Namespace(n)
                if status.kind() == Status::INVALID_NAMESPACE_OR_FORMAT =>
            {
                Ok(self.next_namespace(n + 1))
            }
            // In a sequential scan the identifier may be inactive, which controllers from before
            // version 1.2 report by various statuses.
            BringupCommand::Namespace(n) if self.sequential_scan && is_unsupported(status) => {
                Ok(self.next_namespace(n + 1))
            }
            _ => Err(BringupCause::Rejected { status }),
        }
    }

    fn handle_controller(&mut self, controller: &identify::Controller) -> Result<(), BringupCause> {
        let limits = Limits::new(self.inventory.cap, controller).map_err(BringupCause::Unusable)?;
        let text = |field: &dyn std::fmt::Display| field.to_string();
        self.inventory.model = Model {
            model: text(&controller.mn),
            serial: text(&controller.sn),
            firmware: text(&controller.fr),
        };
        self.inventory.subsystem = Subsystem::new(controller);
        if controller.cqt == 0 {
            self.inventory.subsystem.quiesce_time = self.config.quiesce_time;
        }
        self.inventory.limits = Some(limits);
        self.max_nsid = controller.nn;
        self.inventory.async_events_offered = controller.oaes;
        self.inventory.log_offsets = controller.lpa & identify::Controller::LPA_EXTENDED_DATA != 0;
        self.inventory.shadow_doorbells_supported =
            controller.oacs & identify::Controller::OACS_DOORBELL_BUFFERS != 0;
        self.inventory.shutdown_micros = controller.rtd3e;
        Ok(())
    }

    /// CNS 02h exists since version 1.1. Some controllers report version 0.
    fn list_namespaces(&mut self) -> Result<BringupState, BringupCause> {
        match self.inventory.version >= Version::new().with_major(1).with_minor(1)
            && !self.skip_nsid_list
        {
            true => Ok(post(BringupCommand::ActiveNamespaces { after: Nsid(0) })),
            false => self.scan_sequentially(),
        }
    }

    /// Whether the command in flight is a first CNS 02h that the controller may have dropped: some
    /// from before 1.3 never complete it.
    pub(super) fn may_skip_nsid_list(&self) -> bool {
        let asked = matches!(
            self.state,
            BringupState::Admin {
                command: BringupCommand::ActiveNamespaces { after: Nsid(0) },
                ..
            }
        );
        asked
            && !self.skip_nsid_list
            && self.inventory.version < Version::new().with_major(1).with_minor(3)
    }

    /// Identifies each namespace from 1 to NN, as Linux (`nvme_scan_ns_sequential`) and SPDK do.
    fn scan_sequentially(&mut self) -> Result<BringupState, BringupCause> {
        // NN may be as large as 2^32 - 2: one Identify each would take for ever.
        if self.max_nsid as usize > MAX_NAMESPACES {
            return Err(BringupCause::TooManyNamespaces { max: MAX_NAMESPACES });
        }
        self.sequential_scan = true;
        self.nsids = (1..=self.max_nsid).map(Nsid).collect();
        Ok(self.next_namespace(0))
    }

    /// Handles a list of active namespaces, which ascends from `after`. If the list is full, the
    /// next list is requested.
    fn handle_list(
        &mut self,
        after: Nsid,
        list: &NamespaceList,
    ) -> Result<BringupState, BringupCause> {
        let mut last = after;
        let before = self.nsids.len();
        for nsid in list.iter() {
            // A list that does not ascend could make this loop endless.
            if nsid <= last || nsid == Nsid::ALL {
                return Err(BringupCause::BadNamespaceList { nsid, after: last });
            }
            self.nsids.push(nsid);
            last = nsid;
        }
        if self.nsids.len() > MAX_NAMESPACES {
            return Err(BringupCause::TooManyNamespaces { max: MAX_NAMESPACES });
        }
        // FFFFFFFEh is the highest identifier, so no list begins after it: a controller aborts a
        // request for one (Base 5.1.13.2.2).
        let full = self.nsids.len() - before == NamespaceList::CAPACITY && last.0 < u32::MAX - 1;
        Ok(if full {
            post(BringupCommand::ActiveNamespaces { after: last })
        } else {
            self.next_namespace(0)
        })
    }

    fn handle_namespace(
        &mut self,
        n: usize,
        identify: &identify::IdentifyNamespace,
    ) -> BringupState {
        // Identify of an inactive namespace returns zeroes.
        if self.sequential_scan && identify.nsze == 0 {
            return self.next_namespace(n + 1);
        }
        match Namespace::new(self.nsid(n), identify) {
            Ok(namespace) => self.inventory.namespaces.push(namespace),
            // An unusable namespace is only reported: the controller's other namespaces are usable.
            // An unusable namespace is only reported: the controller's other namespaces are usable.
            Err(refused) => self.inventory.refused.push(refused),
        }
        match self.has_command_set_pages() {
            true => post(BringupCommand::NvmNamespace { n, format: identify.format_index() }),
            false => self.after_format(n),
        }
    }

    /// Adds the extended LBA format to the namespace identified last, usable or refused.
    fn handle_extended(
        &mut self,
        n: usize,
        format: usize,
        extended: ExtendedFormat,
    ) -> BringupState {
        // The last entry is this namespace only if its format was accepted.
        match self
            .inventory
            .namespaces
            .pop_if(|last| last.nsid == self.nsids.get(n).copied().unwrap_or_default())
        {
            Some(namespace) => match namespace.with_extended(format, extended) {
                Ok(namespace) => self.inventory.namespaces.push(namespace),
                Err(refused) => self.inventory.refused.push(refused),
            },
            None => {
                let refused = self.inventory.refused.pop();
                self.inventory
                    .refused
                    .extend(refused.map(|refused| refused.with_extended(extended)));
            }
        }
        self.after_format(n)
    }

    /// CNS 03h exists since version 1.3. It is skipped for a refused namespace.
    fn after_format(&self, n: usize) -> BringupState {
        let taken = self.inventory.namespaces.last().is_some_and(|last| last.nsid == self.nsid(n));
        match taken && self.inventory.version >= Version::new().with_major(1).with_minor(3) {
            true => post(BringupCommand::Descriptors(n)),
            false => self.next_namespace(n + 1),
        }
    }

    /// CNS 05h and 06h exist since version 2.0 (Base 5.1.13.1).
    fn has_command_set_pages(&self) -> bool {
        self.inventory.version >= Version::new().with_major(2)
    }

    fn handle_descriptors(&mut self, n: usize, list: &DescriptorList) -> BringupState {
        if let Some(namespace) = self.inventory.namespaces.pop() {
            match namespace.with_descriptors(list) {
                Ok(namespace) => self.inventory.namespaces.push(namespace),
                Err(refused) => self.inventory.refused.push(refused),
            }
        }
        self.next_namespace(n + 1)
    }

    fn next_namespace(&self, n: usize) -> BringupState {
        post(if n < self.nsids.len() {
            BringupCommand::Namespace(n)
        } else {
            BringupCommand::NumberOfQueues
        })
    }

    /// The Keep Alive Timer is started last: no Keep Alive is sent before bring-up ends, however
    /// long queue creation takes. A controller without the timer (KAS = 0) is not asked.
    fn after_queues(&self) -> BringupState {
        // KAS = 0: the controller has no Keep Alive Timer.
        let wanted = self.config.keep_alive > Nanos::ZERO
            && self.inventory.subsystem.keep_alive_granularity > Nanos::ZERO;
        if wanted { post(BringupCommand::KeepAlive) } else { BringupState::Ready }
    }

    /// Shadow doorbells are configured before the first I/O doorbell moves, so the zeroed pages
    /// match the registers.
    fn before_queues(&self) -> BringupState {
        let keeps = self.config.doorbells.is_some() && self.inventory.shadow_doorbells_supported;
        if keeps { post(BringupCommand::Doorbells) } else { self.next_queue(0) }
    }

    fn next_queue(&self, n: usize) -> BringupState {
        match (&self.config.queues, n < self.inventory.queues.len()) {
            (_, false) => self.after_queues(),
            (WantedQueues::New { .. }, true) => BringupState::Rings(n),
            // The rings exist already.
            (WantedQueues::Existing(_), true) => post(BringupCommand::CreateCq(n)),
        }
    }

    /// Decides on the queue pairs, once the limits and the number granted are known.
    fn plan_queues(&mut self) -> Result<(), BringupCause> {
        // A pair needs one queue of each type; the controller grants them separately.
        let granted = self.inventory.granted.0.min(self.inventory.granted.1) as usize;
        let Some(limits) = self.inventory.limits else { return Err(BringupCause::Changed) };
        self.inventory.queues = match &self.config.queues {
            WantedQueues::New { depth, vectors } => {
                let sizes = limits.queue_sizes(*depth);
                // 0 is the admin queue.
                let ids = (1..).map(QueueId);
                let layout = |(id, &vector)| QueueLayout { id, sizes, sq: 0, cq: 0, vector };
                ids.zip(vectors).take(granted).map(layout).collect()
            }
            WantedQueues::Existing(layouts) => {
                // A depth that the new limits would reduce is no longer possible.
                let allowed = |layout: &QueueLayout| {
                    limits.queue_sizes(layout.sizes.tags).tags == layout.sizes.tags
                };
                // The executor's queues and their requests exist: fewer or smaller ones cannot
                // replace them.
                if layouts.len() > granted || !layouts.iter().all(allowed) {
                    return Err(BringupCause::Changed);
                }
                layouts.clone()
            }
        };
        Ok(())
    }
}

fn page<T: Page>(reply: &AdminReply) -> Result<T, BringupCause> {
    T::from_page(reply.page).map_err(BringupCause::ShortPage)
}

/// Whether this status of an Identify command means that the controller does not support it.
/// Without Do Not Retry other errors may be transient (Base 4.2.3).
fn is_unsupported(status: Status) -> bool {
    let unknown =
        [Status::INVALID_FIELD, Status::INVALID_OPCODE, Status::INVALID_NAMESPACE_OR_FORMAT];
    status.do_not_retry() || unknown.contains(&status.kind())
}
