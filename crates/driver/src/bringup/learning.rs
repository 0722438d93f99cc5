//! What bring-up learns of a controller, reply by reply.

use nvme::features::NumberOfQueues;
use nvme::identify::{self, DescriptorList, ExtendedFormat, NamespaceList, NvmController, NvmNamespace};
use nvme::regs::Version;
use nvme::{Nsid, Page, QueueId, Status};
use units::Nanos;

use super::{Bringup, BringupCause, Command, Model, QueueLayout, State, Subsystem, WantedQueues, to_post};
use crate::{AdminReply, Limits, Namespace};

/// More namespaces than any controller has: a list that goes on for ever has to end somewhere.
const MOST_NAMESPACES: usize = 16_384;

impl Bringup {
    /// Takes in the reply to a command; the state that comes next.
    pub(super) fn learn(&mut self, command: Command, reply: &AdminReply) -> Result<State, BringupCause> {
        Ok(match command {
            Command::Controller => {
                self.learn_controller(&page(reply)?)?;
                match self.has_command_set_pages() {
                    true => to_post(Command::NvmController),
                    false => self.list_namespaces()?,
                }
            }
            Command::NvmController => {
                let page = page::<NvmController>(reply)?;
                let cap = self.inventory.cap;
                self.inventory.limits = self.inventory.limits.map(|limits| limits.with_command_set(cap, &page));
                self.list_namespaces()?
            }
            Command::ActiveNamespaces { after } => self.learn_list(after, &page(reply)?)?,
            Command::Namespace(n) => self.learn_namespace(n, &page(reply)?),
            Command::NvmNamespace { n, format } => self.learn_extended(n, format, page::<NvmNamespace>(reply)?.format(format)),
            Command::Descriptors(n) => self.learn_descriptors(n, &page(reply)?),
            Command::NumberOfQueues => {
                let granted = NumberOfQueues::from_bits(reply.result);
                self.inventory.granted = (granted.submission(), granted.completion());
                self.lay_out()?;
                to_post(Command::AsyncEvents)
            }
            Command::AsyncEvents => self.before_queues(),
            Command::Doorbells => {
                self.inventory.doorbells_kept = true;
                self.next_queue(0)
            }
            Command::KeepAlive => {
                self.inventory.keep_alive = Nanos::from_millis(self.wanted_keep_alive().into());
                State::Ready
            }
            Command::CreateCq(n) => to_post(Command::CreateSq(n)),
            Command::CreateSq(n) => self.next_queue(n + 1),
        })
    }

    /// A command was refused: some of them are not needed.
    pub(super) fn refused(&mut self, command: Command, status: Status) -> Result<State, BringupCause> {
        match command {
            // What it cannot say at this moment it may well know, and a namespace without its identifiers looks like another one.
            Command::NvmController | Command::NvmNamespace { .. } | Command::Descriptors(_) if !is_unknown_to_it(status) => {
                Err(BringupCause::Rejected { status })
            }
            Command::NvmController => self.list_namespaces(),
            Command::ActiveNamespaces { after: Nsid(0) } if is_unknown_to_it(status) => self.number_namespaces(),
            // Then its formats are not extended.
            Command::NvmNamespace { n, format } => Ok(self.learn_extended(n, format, ExtendedFormat::new())),
            Command::Descriptors(n) => Ok(self.next_namespace(n + 1)),
            Command::AsyncEvents => Ok(self.before_queues()),
            // There are registers still.
            Command::Doorbells => Ok(self.next_queue(0)),
            Command::KeepAlive => Ok(State::Ready),
            // Detached since it was listed.
            Command::Namespace(n) if status.kind() == Status::INVALID_NAMESPACE_OR_FORMAT => Ok(self.next_namespace(n + 1)),
            // One that is not active. Controllers of before 1.2 have several words for that.
            Command::Namespace(n) if self.numbered && is_unknown_to_it(status) => Ok(self.next_namespace(n + 1)),
            _ => Err(BringupCause::Rejected { status }),
        }
    }

    fn learn_controller(&mut self, controller: &identify::Controller) -> Result<(), BringupCause> {
        let limits = Limits::new(self.inventory.cap, controller).map_err(BringupCause::Unusable)?;
        let text = |field: &dyn std::fmt::Display| field.to_string();
        self.inventory.model = Model { model: text(&controller.mn), serial: text(&controller.sn), firmware: text(&controller.fr) };
        self.inventory.subsystem = Subsystem::new(controller);
        self.inventory.limits = Some(limits);
        self.highest = controller.nn;
        self.inventory.async_events_offered = controller.oaes;
        self.inventory.log_offsets = controller.lpa & identify::Controller::LPA_EXTENDED_DATA != 0;
        self.inventory.doorbells_offered = controller.oacs & identify::Controller::OACS_DOORBELL_BUFFERS != 0;
        self.inventory.shutdown_micros = controller.rtd3e;
        Ok(())
    }

    /// CNS 02h came with version 1.1; some controllers report no version (0) at all.
    fn list_namespaces(&mut self) -> Result<State, BringupCause> {
        match self.inventory.version >= Version::new().with_major(1).with_minor(1) && !self.unlisted {
            true => Ok(to_post(Command::ActiveNamespaces { after: Nsid(0) })),
            false => self.number_namespaces(),
        }
    }

    /// Controllers of before 1.3 may leave the list unanswered.
    pub(super) fn may_do_without_list(&self) -> bool {
        let asked = matches!(self.state, State::Command { command: Command::ActiveNamespaces { after: Nsid(0) }, .. });
        asked && !self.unlisted && self.inventory.version < Version::new().with_major(1).with_minor(3)
    }

    /// Without a list each identifier up to NN is asked about, as Linux (`nvme_scan_ns_sequential`) and SPDK do.
    fn number_namespaces(&mut self) -> Result<State, BringupCause> {
        if self.highest as usize > MOST_NAMESPACES {
            return Err(BringupCause::TooManyNamespaces { most: MOST_NAMESPACES });
        }
        self.numbered = true;
        self.found = (1..=self.highest).map(Nsid).collect();
        Ok(self.next_namespace(0))
    }

    /// A list is in ascending order, above where it was asked to start; a full one may go on.
    fn learn_list(&mut self, after: Nsid, list: &NamespaceList) -> Result<State, BringupCause> {
        let mut last = after;
        let before = self.found.len();
        for nsid in list.iter() {
            if nsid <= last || nsid == Nsid::ALL {
                return Err(BringupCause::BadNamespaceList { nsid, after: last });
            }
            self.found.push(nsid);
            last = nsid;
        }
        if self.found.len() > MOST_NAMESPACES {
            return Err(BringupCause::TooManyNamespaces { most: MOST_NAMESPACES });
        }
        // FFFFFFFEh is the last there can be, and nothing may be asked for after it (Base 5.1.13.2.2).
        let full = self.found.len() - before == NamespaceList::CAPACITY && last.0 < u32::MAX - 2;
        Ok(if full { to_post(Command::ActiveNamespaces { after: last }) } else { self.next_namespace(0) })
    }

    fn learn_namespace(&mut self, n: usize, identify: &identify::Namespace) -> State {
        if self.numbered && identify.nsze == 0 {
            return self.next_namespace(n + 1);
        }
        match Namespace::new(self.nsid(n), identify) {
            Ok(namespace) => self.inventory.namespaces.push(namespace),
            Err(refused) => self.inventory.refused.push(refused),
        }
        match self.has_command_set_pages() {
            true => to_post(Command::NvmNamespace { n, format: identify.format_index() }),
            false => self.after_format(n),
        }
    }

    /// What is extended of the format of the namespace that was learnt of last, taken or refused.
    fn learn_extended(&mut self, n: usize, format: usize, extended: ExtendedFormat) -> State {
        match self.inventory.namespaces.pop_if(|last| last.nsid == self.found.get(n).copied().unwrap_or_default()) {
            Some(namespace) => match namespace.with_extended(format, extended) {
                Ok(namespace) => self.inventory.namespaces.push(namespace),
                Err(refused) => self.inventory.refused.push(refused),
            },
            None => {
                let refused = self.inventory.refused.pop();
                self.inventory.refused.extend(refused.map(|refused| refused.with_extended(extended)));
            }
        }
        self.after_format(n)
    }

    /// CNS 03h came with version 1.3. Of a namespace that is refused nothing more is asked.
    fn after_format(&self, n: usize) -> State {
        let taken = self.inventory.namespaces.last().is_some_and(|last| last.nsid == self.nsid(n));
        match taken && self.inventory.version >= Version::new().with_major(1).with_minor(3) {
            true => to_post(Command::Descriptors(n)),
            false => self.next_namespace(n + 1),
        }
    }

    /// CNS 05h and 06h came with version 2.0 (Base 5.1.13.1).
    fn has_command_set_pages(&self) -> bool {
        self.inventory.version >= Version::new().with_major(2)
    }

    fn learn_descriptors(&mut self, n: usize, list: &DescriptorList) -> State {
        if let Some(namespace) = self.inventory.namespaces.pop() {
            match namespace.with_descriptors(list) {
                Ok(namespace) => self.inventory.namespaces.push(namespace),
                Err(refused) => self.inventory.refused.push(refused),
            }
        }
        self.next_namespace(n + 1)
    }

    fn next_namespace(&self, n: usize) -> State {
        to_post(if n < self.found.len() { Command::Namespace(n) } else { Command::NumberOfQueues })
    }

    /// The timer is started last: until the controller is up nobody sends it a Keep Alive, however long its queues take. One without such
    /// a timer says so (KAS), and is not asked for one.
    fn after_queues(&self) -> State {
        let wanted = self.config.keep_alive > Nanos::ZERO && self.inventory.subsystem.keep_alive_step > Nanos::ZERO;
        if wanted { to_post(Command::KeepAlive) } else { State::Ready }
    }

    /// Doorbells are kept in memory before the first of a queue is rung, so that none has moved elsewhere.
    fn before_queues(&self) -> State {
        let keeps = self.config.doorbells.is_some() && self.inventory.doorbells_offered;
        if keeps { to_post(Command::Doorbells) } else { self.next_queue(0) }
    }

    fn next_queue(&self, n: usize) -> State {
        match (&self.config.queues, n < self.inventory.queues.len()) {
            (_, false) => self.after_queues(),
            (WantedQueues::New { .. }, true) => State::Rings(n),
            (WantedQueues::Again(_), true) => to_post(Command::CreateCq(n)),
        }
    }

    /// Decides on the queue pairs, now that the limits and the number granted are known.
    fn lay_out(&mut self) -> Result<(), BringupCause> {
        let granted = self.inventory.granted.0.min(self.inventory.granted.1) as usize;
        let Some(limits) = self.inventory.limits else { return Err(BringupCause::Changed) };
        self.inventory.queues = match &self.config.queues {
            WantedQueues::New { depth, vectors } => {
                let sizes = limits.queue_sizes(*depth);
                let ids = (1..).map(QueueId);
                let layout = |(id, &vector)| QueueLayout { id, sizes, sq: 0, cq: 0, vector };
                ids.zip(vectors).take(granted).map(layout).collect()
            }
            WantedQueues::Again(layouts) => {
                let allowed = |layout: &QueueLayout| limits.queue_sizes(layout.sizes.tags).tags == layout.sizes.tags;
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

/// Whether a controller that answers so to an Identify does not have the structure, as those of before the version that brought it.
/// A refusal without Do Not Retry may pass (Base 4.2.3).
fn is_unknown_to_it(status: Status) -> bool {
    let unknown = [Status::INVALID_FIELD, Status::INVALID_OPCODE, Status::INVALID_NAMESPACE_OR_FORMAT];
    status.do_not_retry() || unknown.contains(&status.kind())
}
