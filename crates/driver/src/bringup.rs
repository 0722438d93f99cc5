//! Bring-up: from whatever state a controller is in to one whose namespaces are known and whose I/O queues exist, by the
//! sequence of the specification (Base 3.5.1). A state machine without I/O: it is stepped with the time and the
//! controller's properties, and asks its executor for everything else.

mod replies;

use nvme::admin::{CreateCq, CreateSq, Identify, SetFeatures, cns, doorbell_buffer_config};
use nvme::features::{AsyncEventConfig, NumberOfQueues, fid};
use nvme::prp::Dptr;
use nvme::regs::{Aqa, Cap, Cc, Csts, Version};
use nvme::{Cqe, Nsid, QueueId, Sqe, Status, TooShort, Vector, identify};
use units::Nanos;

use crate::properties::{AccessError, Accesses, PollTiming, Properties, Property, StatusPoll};
use crate::stop::{Backoff, StepTimer, StopSequence, StopStatus, ready_timeout};
use crate::{
    AdminCommand, AdminReply, Answer, Limits, Namespace, PropertyError, ProtocolViolation, QueueSizes, RefusedFormat, RegisterValues,
    Ticket, Unusable,
};

/// What bring-up is to make of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringupConfig {
    /// Bus address of the admin submission queue.
    pub admin_sq: u64,
    /// Bus address of the admin completion queue, zeroed.
    pub admin_cq: u64,
    /// Sizes of the admin queue pair: at most 4096 entries each (Base 3.1.4.8).
    pub admin_sizes: QueueSizes,
    /// The I/O queue pairs wanted.
    pub queues: WantedQueues,
    /// How long an admin command may take.
    pub admin_timeout: Nanos,
    /// The keep-alive time-out (KATO) to set, rounded up to what the controller can do; zero: none. A host that asks for one sends Keep
    /// Alive, at least twice in [`Inventory::keep_alive`].
    pub keep_alive: Nanos,
    /// Bus addresses of two zeroed pages, where the host can keep doorbells: theirs, and that of their EventIdx. `None`: it keeps none.
    pub doorbells: Option<(u64, u64)>,
}

/// What bring-up asks of its executor. Each is to be carried out before the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum BringupAsk {
    /// Step again when the reply or the answer has come, and at `until` at the latest.
    Wait {
        /// When.
        until: Nanos,
    },
    /// Post this on the admin queue, and hand the answer to [`Bringup::completed`].
    Admin(AdminCommand),
    /// The controller has stopped without having answered the last command, and is enabled next: [`crate::Exclusive::abandon`] and
    /// [`crate::Exclusive::reopen`] the admin queue pair. The page of the command is the host's again.
    ReopenAdmin,
    /// Make the memory of this queue pair, and hand its addresses to [`Bringup::rings`].
    Rings {
        /// The queue.
        id: QueueId,
        /// Its sizes.
        sizes: QueueSizes,
    },
    /// The controller is ready. Said from now on.
    Ready(Box<Inventory>),
    /// It is not, and will not be. Said from now on. It may be enabled: a [`crate::Shutdown`] of what is known of it (an
    /// empty [`Inventory`] will do) has to stop it before its memory is freed.
    Failed(BringupError),
}

/// The I/O queue pairs wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedQueues {
    /// New ones, as far as the controller grants them.
    New {
        /// Commands in flight on each, as far as the controller allows.
        depth: u32,
        /// One for each queue pair: the vector that its completions raise, or `None` for a queue that is only polled.
        vectors: Vec<Option<Vector>>,
    },
    /// After a reset: the ones that there were, with the same memory. If the controller now grants less, that is an error.
    Again(Vec<QueueLayout>),
}

/// An I/O queue pair as it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Identifier of both queues.
    pub id: QueueId,
    /// Sizes.
    pub sizes: QueueSizes,
    /// Bus address of the submission queue.
    pub sq: u64,
    /// Bus address of the completion queue, zeroed.
    pub cq: u64,
    /// The vector that completions raise.
    pub vector: Option<Vector>,
}

/// A controller that has been brought up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// CAP.
    pub cap: Cap,
    /// VS.
    pub version: Version,
    /// Which controller it is.
    pub model: Model,
    /// The subsystem that it belongs to.
    pub subsystem: Subsystem,
    /// What its commands and queues have to keep to. Always there once bring-up is ready.
    pub limits: Option<Limits>,
    /// The active namespaces that can be used.
    pub namespaces: Vec<Namespace>,
    /// The active namespaces that cannot, and why.
    pub refused: Vec<RefusedFormat>,
    /// How many I/O submission and completion queues the controller grants.
    pub granted: (u32, u32),
    /// The I/O queue pairs that exist.
    pub queues: Vec<QueueLayout>,
    /// The keep-alive time-out in force; zero: none.
    pub keep_alive: Nanos,
    /// OAES: which asynchronous events can be enabled.
    pub async_events_offered: u32,
    /// LPA: log pages can be read from an offset on.
    pub log_offsets: bool,
    /// OACS: the host may keep doorbells in memory (Doorbell Buffer Config).
    pub doorbells_offered: bool,
    /// It does, in the pages of [`crate::BringupConfig::doorbells`], until the controller is reset.
    pub doorbells_kept: bool,
    /// RTD3E in microseconds: how long a shutdown may take; 0: not said.
    pub shutdown_micros: u32,
}

/// Which controller it is, as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// MN.
    pub model: String,
    /// SN.
    pub serial: String,
    /// FR.
    pub firmware: String,
}

/// The subsystem that a controller belongs to, and what of it matters where there are several paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subsystem {
    /// SUBNQN.
    pub nqn: String,
    /// CNTLID: which of its controllers this is.
    pub controller: u16,
    /// ANATT, if asymmetric namespace access is reported (CMIC.ANARS): how long a change of state takes at most.
    pub ana_transition: Option<Nanos>,
    /// ANAGRPMAX: the max_nsid ANA group; 0 without ANA.
    pub ana_groups: u32,
    /// KAS: the steps in which a keep-alive time-out can be set; zero: it cannot.
    pub keep_alive_step: Nanos,
    /// CTRATT.TBKAS: any traffic counts as keep-alive.
    pub traffic_keep_alive: bool,
    /// CQT: how long after its keep-alive time-out the controller may still be at work.
    pub quiesce_time: Nanos,
}

impl Subsystem {
    pub(super) fn new(controller: &identify::Controller) -> Subsystem {
        let ana = controller.cmic.ana();
        Subsystem {
            nqn: controller.subnqn.to_string(),
            controller: controller.cntlid,
            ana_transition: ana.then(|| Nanos::from_secs(controller.anatt.into())),
            ana_groups: if ana { controller.anagrpmax } else { 0 },
            keep_alive_step: Nanos::from_millis(u64::from(controller.kas) * 100),
            traffic_keep_alive: controller.ctratt & identify::Controller::CTRATT_TBKAS != 0,
            quiesce_time: Nanos::from_millis(controller.cqt.into()),
        }
    }
}

/// Bring-up failed: where, why, and what the registers said then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller cannot be brought up; {phase}: {cause} ({registers})")]
#[non_exhaustive]
pub struct BringupError {
    /// Where in the sequence.
    pub phase: BringupPhase,
    /// Why.
    pub cause: BringupCause,
    /// The registers, as they were seen last.
    pub registers: RegisterValues,
}

/// Where in the sequence (Base 3.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BringupPhase {
    /// Reading CAP and VS.
    Capabilities,
    /// CC.EN = 0, waiting for CSTS.RDY = 0.
    Disable,
    /// CC.EN = 1, waiting for CSTS.RDY = 1.
    Enable,
    /// Identify Controller (CNS 01h).
    IdentifyController,
    /// Identify Controller of the NVM command set (CNS 06h).
    IdentifyCommandSet,
    /// Active namespace list (CNS 02h).
    ActiveNamespaces,
    /// Identify Namespace (CNS 00h).
    IdentifyNamespace(Nsid),
    /// Identify Namespace of the NVM command set (CNS 05h).
    IdentifyNamespaceCommandSet(Nsid),
    /// Namespace identification descriptors (CNS 03h).
    NamespaceDescriptors(Nsid),
    /// Set Features, Number of Queues (07h).
    NumberOfQueues,
    /// Set Features, Asynchronous Event Configuration (0Bh).
    AsyncEvents,
    /// Doorbell Buffer Config.
    Doorbells,
    /// Set Features, Keep Alive Timer (0Fh).
    KeepAlive,
    /// Create I/O Completion Queue.
    CreateCq(QueueId),
    /// Create I/O Submission Queue.
    CreateSq(QueueId),
    /// Done.
    Ready,
}

impl std::fmt::Display for BringupPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BringupPhase::Capabilities => f.write_str("reading CAP and VS"),
            BringupPhase::Disable => f.write_str("disabling it (CC.EN = 0, then CSTS.RDY = 0)"),
            BringupPhase::Enable => f.write_str("enabling it (CC.EN = 1, then CSTS.RDY = 1)"),
            BringupPhase::IdentifyController => f.write_str("Identify Controller"),
            BringupPhase::IdentifyCommandSet => f.write_str("Identify Controller of the NVM command set"),
            BringupPhase::ActiveNamespaces => f.write_str("Identify, active namespaces"),
            BringupPhase::IdentifyNamespace(nsid) => write!(f, "Identify Namespace {nsid}"),
            BringupPhase::IdentifyNamespaceCommandSet(nsid) => write!(f, "Identify Namespace {nsid} of the NVM command set"),
            BringupPhase::NamespaceDescriptors(nsid) => write!(f, "Identify, descriptors of namespace {nsid}"),
            BringupPhase::NumberOfQueues => f.write_str("Set Features, Number of Queues"),
            BringupPhase::AsyncEvents => f.write_str("Set Features, Asynchronous Event Configuration"),
            BringupPhase::Doorbells => f.write_str("Doorbell Buffer Config"),
            BringupPhase::KeepAlive => f.write_str("Set Features, Keep Alive Timer"),
            BringupPhase::CreateCq(id) => write!(f, "Create I/O Completion Queue {id}"),
            BringupPhase::CreateSq(id) => write!(f, "Create I/O Submission Queue {id}"),
            BringupPhase::Ready => f.write_str("ready"),
        }
    }
}

/// Why bring-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BringupCause {
    /// The registers read as all ones.
    #[error("the controller is gone: its registers read as all ones")]
    Gone,
    /// CSTS.CFS.
    #[error("the controller reports a fatal error (CSTS.CFS)")]
    Fatal,
    /// CSTS.RDY did not become 0.
    #[error("CSTS.RDY is still 1 after {waited}: the controller may still write to memory")]
    NotStopped {
        /// For how long.
        waited: Nanos,
    },
    /// CSTS.RDY did not become 1.
    #[error("CSTS.RDY is still 0 after {waited} (CAP.TO)")]
    NotReady {
        /// For how long.
        waited: Nanos,
    },
    /// An admin command was not answered.
    #[error("no completion after {waited}")]
    NoReply {
        /// For how long.
        waited: Nanos,
    },
    /// The controller broke the protocol on the admin queue.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Each command was answered in its time, and there was no end to them.
    #[error("it is not ready {waited} after CSTS.RDY became 1, although it answers; it may have too many namespaces, or be too slow")]
    TooLong {
        /// For how long.
        waited: Nanos,
    },
    /// An admin command that bring-up cannot do without was refused.
    #[error("the controller answered {status}")]
    Rejected {
        /// Its status.
        status: Status,
    },
    /// A property could not be read or written.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// A controller that this driver cannot use.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The executor gave fewer bytes than an Identify page has.
    #[error(transparent)]
    ShortPage(TooShort),
    /// A namespace list that is not in ascending order.
    #[error("the list of active namespaces names {nsid} after {after}: it has to ascend")]
    BadNamespaceList {
        /// The namespace.
        nsid: Nsid,
        /// The one before.
        after: Nsid,
    },
    /// More namespaces than this driver deals with.
    #[error("more than {most} namespaces")]
    TooManyNamespaces {
        /// The most.
        most: usize,
    },
    /// The admin queue wanted is larger than AQA can say.
    #[error("an admin queue has at most {most} entries")]
    AdminQueueTooLarge {
        /// The most.
        most: u32,
    },
    /// After a reset the controller no longer grants the queues that it had.
    #[error("after the reset the controller allows fewer or smaller queues than before")]
    Changed,
}

/// How long a controller that is ready (CSTS.RDY) may take to answer everything. Each command has its deadline, but the controller says
/// how many there are: three for each of up to 16,384 namespaces.
const BRINGUP_TIMEOUT: Nanos = Nanos::from_secs(60);

/// The state machine.
#[derive(Clone, Debug)]
pub struct Bringup {
    config: BringupConfig,
    state: BringupState,
    ready_timeout: Nanos,
    /// Since when it is ready, and asked.
    commands_since: Nanos,
    inventory: Inventory,
    /// Namespaces to ask about.
    nsids: Vec<Nsid>,
    /// These are all identifiers that there may be (NN), because the controller has no list of the active ones.
    sequential_scan: bool,
    /// The list was asked for and not answered: the controller is brought up again without it.
    skip_nsid_list: bool,
    /// NN: the max_nsid namespace identifier.
    max_nsid: u32,
    accesses: Accesses,
    /// While a command is out.
    status_poll: StatusPoll,
    step_timer: StepTimer,
}

#[derive(Clone, Debug)]
enum BringupState {
    Start,
    Stopping(StopSequence),
    Enabling,
    /// `fatal`: CSTS.CFS has been 1 since before the controller was enabled.
    Enabled {
        backoff: Backoff,
        fatal: bool,
    },
    /// To be posted, then waiting for the reply.
    Admin {
        command: BringupCommand,
        deadline: Option<Nanos>,
    },
    /// Waiting for the addresses of the n-th queue pair.
    Rings(usize),
    Ready,
    Failed(BringupError),
}

/// The admin commands of bring-up; the numbers count namespaces and queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BringupCommand {
    Controller,
    NvmController,
    ActiveNamespaces {
        after: Nsid,
    },
    Namespace(usize),
    /// `format`: the index of its LBA format.
    NvmNamespace {
        n: usize,
        format: usize,
    },
    Descriptors(usize),
    NumberOfQueues,
    AsyncEvents,
    Doorbells,
    KeepAlive,
    CreateCq(usize),
    CreateSq(usize),
}

impl Bringup {
    /// From the start.
    pub fn new(config: BringupConfig) -> Bringup {
        Bringup {
            config,
            state: BringupState::Start,
            ready_timeout: Nanos::ZERO,
            commands_since: Nanos::ZERO,
            inventory: Inventory::default(),
            nsids: Vec::new(),
            sequential_scan: false,
            skip_nsid_list: false,
            max_nsid: 0,
            accesses: Accesses::default(),
            status_poll: StatusPoll::default(),
            step_timer: StepTimer::default(),
        }
    }

    /// Goes on as far as it can. Time for which it is stepped later than it asked for counts towards no deadline.
    pub fn step(&mut self, now: Nanos, properties: &impl Properties) -> BringupAsk {
        let overrun = self.step_timer.overrun(now);
        self.extend(overrun);
        let mut ask = self.go_on(now, properties);
        if let BringupAsk::Wait { until } = &mut ask {
            self.step_timer.schedule_within(now, until);
        }
        ask
    }

    /// Nobody looked for so long.
    fn extend(&mut self, overrun: Nanos) {
        self.commands_since += overrun;
        match &mut self.state {
            BringupState::Stopping(stop) => stop.extend(overrun),
            BringupState::Enabled { backoff, .. } => backoff.extend(overrun),
            BringupState::Admin { deadline: Some(deadline), .. } => *deadline += overrun,
            _ => {}
        }
    }

    fn go_on(&mut self, now: Nanos, properties: &impl Properties) -> BringupAsk {
        loop {
            let asked = match self.advance(now, properties) {
                Err(AccessError::WouldBlock(until)) => return BringupAsk::Wait { until },
                Err(AccessError::Failed(error)) => {
                    self.fail(BringupCause::Property(error));
                    None
                }
                Ok(asked) => asked,
            };
            self.accesses.end_round();
            if let BringupState::Failed(error) = &self.state {
                return BringupAsk::Failed(error.clone());
            }
            if let Some(ask) = asked {
                return ask;
            }
        }
    }

    /// One transition; an answer if the executor has something to do.
    fn advance(&mut self, now: Nanos, properties: &impl Properties) -> Result<Option<BringupAsk>, AccessError> {
        let timeout = self.config.admin_timeout;
        let mut round = self.accesses.round(now, timeout, properties);
        match &mut self.state {
            BringupState::Start => self.start(now, properties)?,
            BringupState::Stopping(stop) => match stop.step(&mut round) {
                StopStatus::Again => {}
                StopStatus::Wait(until) => return Err(AccessError::WouldBlock(until)),
                StopStatus::Stopped => {
                    self.state = BringupState::Enabling;
                    return Ok(self.skip_nsid_list.then_some(BringupAsk::ReopenAdmin));
                }
                StopStatus::TimedOut(waited) => self.fail(BringupCause::NotStopped { waited }),
                StopStatus::Gone => self.fail(BringupCause::Gone),
                StopStatus::Failed(error) => return Err(AccessError::Failed(error)),
            },
            BringupState::Enabling => self.enable(now, properties)?,
            BringupState::Enabled { backoff, fatal } => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                // A status of before EN became 1 may not have been cleared yet: it says nothing of this attempt.
                *fatal &= csts.cfs() && !csts.rdy();
                match (csts.is_gone(), csts.cfs() && !*fatal, csts.rdy()) {
                    (true, ..) => self.fail(BringupCause::Gone),
                    (_, true, _) => self.fail(BringupCause::Fatal),
                    (_, _, true) => {
                        self.commands_since = now;
                        self.state = post(BringupCommand::Controller);
                    }
                    _ => match backoff.next(now) {
                        Ok(until) => return Ok(Some(BringupAsk::Wait { until })),
                        Err(_) if *fatal => self.fail(BringupCause::Fatal),
                        Err(waited) => self.fail(BringupCause::NotReady { waited }),
                    },
                }
            }
            BringupState::Admin { deadline: None, .. } if now - self.commands_since >= BRINGUP_TIMEOUT => {
                self.fail(BringupCause::TooLong { waited: now - self.commands_since });
            }
            BringupState::Admin { command, deadline: deadline @ None } => {
                let command = *command;
                *deadline = Some(now + timeout);
                return Ok(Some(BringupAsk::Admin(self.build(command))));
            }
            BringupState::Admin { deadline: Some(deadline), .. } => {
                let deadline = *deadline;
                return self.poll_reply(now, deadline, properties);
            }
            BringupState::Rings(n) => {
                let n = *n;
                match self.inventory.queues.get(n) {
                    Some(layout) => return Ok(Some(BringupAsk::Rings { id: layout.id, sizes: layout.sizes })),
                    None => self.state = BringupState::Ready,
                }
            }
            BringupState::Ready => return Ok(Some(BringupAsk::Ready(Box::new(self.inventory.clone())))),
            BringupState::Failed(_) => {}
        }
        Ok(None)
    }

    fn start(&mut self, now: Nanos, properties: &impl Properties) -> Result<(), AccessError> {
        let mut round = self.accesses.round(now, self.config.admin_timeout, properties);
        let cap = Cap::from_bits(round.get64(Property::Cap)?);
        if cap.into_bits() == u64::MAX || Csts::from_bits(round.get32(Property::Csts)?).is_gone() {
            self.fail(BringupCause::Gone);
            return Ok(());
        }
        if let Err(unusable) = Limits::check_cap(cap) {
            self.fail(BringupCause::Unusable(unusable));
            return Ok(());
        }
        if self.config.admin_sizes.sq_entries.max(self.config.admin_sizes.cq_entries) > Aqa::MAX_ENTRIES {
            self.fail(BringupCause::AdminQueueTooLarge { most: Aqa::MAX_ENTRIES });
            return Ok(());
        }
        let version = Version::from_bits(round.get32(Property::Vs)?);
        self.ready_timeout = ready_timeout(&mut round, cap)?;
        self.inventory = Inventory { cap, version, ..Inventory::default() };
        self.state = BringupState::Stopping(StopSequence::started(now, self.ready_timeout));
        Ok(())
    }

    fn enable(&mut self, now: Nanos, properties: &impl Properties) -> Result<(), AccessError> {
        let mut round = self.accesses.round(now, self.config.admin_timeout, properties);
        let sizes = self.config.admin_sizes;
        let fatal = Csts::from_bits(round.get32(Property::Csts)?).cfs();
        round.set(Property::Aqa, Aqa::of(sizes.sq_entries, sizes.cq_entries).into_bits())?;
        round.set(Property::Asq, self.config.admin_sq)?;
        round.set(Property::Acq, self.config.admin_cq)?;
        // One that names none has the NVM command set: there was no other when it was made.
        let offered = self.inventory.cap.css();
        let css = if offered == 0 || offered & Cap::CSS_NVM != 0 { Cc::CSS_NVM } else { Cc::CSS_ALL };
        let cc = Cc::new().with_css(css).with_mps(0).with_ams(Cc::AMS_ROUND_ROBIN);
        let cc = cc.with_iosqes(Sqe::SIZE_LOG2).with_iocqes(Cqe::SIZE_LOG2);
        // CSS, MPS and AMS may change while EN is 0 only (Base 3.1.4.5).
        round.set(Property::Cc, cc.into_bits())?;
        round.set(Property::Cc, cc.with_en(true).into_bits())?;
        self.state = BringupState::Enabled { backoff: Backoff::new(now, self.ready_timeout), fatal };
        Ok(())
    }

    /// Nothing but the reply is waited for, unless the controller breaks meanwhile.
    fn poll_reply(&mut self, now: Nanos, deadline: Nanos, properties: &impl Properties) -> Result<Option<BringupAsk>, AccessError> {
        let timeout = self.config.admin_timeout;
        let (csts, until) =
            self.status_poll.poll(now, PollTiming { timeout, interval: Backoff::MAX_INTERVAL }, properties).map_err(AccessError::Failed)?;
        csts.inspect(|&csts| self.accesses.record_csts(csts));
        if csts.is_some_and(Csts::is_gone) {
            self.fail(BringupCause::Gone);
        } else if csts.is_some_and(|csts| csts.cfs()) {
            self.fail(BringupCause::Fatal);
        } else if now >= deadline && self.may_skip_nsid_list() {
            // The list may still be written to its page: nothing else is asked for before the controller has stopped.
            self.skip_nsid_list = true;
            self.state = BringupState::Start;
        } else if now >= deadline {
            self.fail(BringupCause::NoReply { waited: timeout });
        } else {
            return Ok(Some(BringupAsk::Wait { until: until.min(deadline) }));
        }
        Ok(None)
    }

    fn build(&self, command: BringupCommand) -> AdminCommand {
        let identify = |cns, nsid| AdminCommand { sqe: Identify::new(cns, nsid, Dptr::NONE).to_sqe(), page: true };
        let plain = |sqe| AdminCommand { sqe, page: false };
        let layout = |n: usize| self.inventory.queues.get(n).copied();
        match command {
            BringupCommand::Controller => identify(cns::CONTROLLER, Nsid(0)),
            BringupCommand::NvmController => identify(cns::COMMAND_SET_CONTROLLER, Nsid(0)),
            BringupCommand::ActiveNamespaces { after } => identify(cns::ACTIVE_NAMESPACES, after),
            BringupCommand::Namespace(n) => identify(cns::NAMESPACE, self.nsid(n)),
            BringupCommand::NvmNamespace { n, .. } => identify(cns::COMMAND_SET_NAMESPACE, self.nsid(n)),
            BringupCommand::Descriptors(n) => identify(cns::NAMESPACE_DESCRIPTORS, self.nsid(n)),
            BringupCommand::NumberOfQueues => {
                let queues = self.wanted_queues() as u32;
                plain(SetFeatures::new(fid::NUMBER_OF_QUEUES, NumberOfQueues::of(queues, queues)).to_sqe())
            }
            BringupCommand::AsyncEvents => {
                let offered = AsyncEventConfig::from_bits(self.inventory.async_events_offered);
                let wanted = AsyncEventConfig::new().with_smart(0x1f).with_namespace_attribute(offered.namespace_attribute());
                let wanted = wanted.with_ana_change(offered.ana_change());
                plain(SetFeatures::new(fid::ASYNC_EVENT_CONFIG, wanted).to_sqe())
            }
            BringupCommand::Doorbells => {
                let (doorbells, events) = self.config.doorbells.unwrap_or_default();
                plain(doorbell_buffer_config(doorbells, events))
            }
            BringupCommand::KeepAlive => plain(SetFeatures::new(fid::KEEP_ALIVE_TIMER, self.wanted_keep_alive()).to_sqe()),
            BringupCommand::CreateCq(n) => plain(layout(n).map(|layout| create_cq(&layout)).unwrap_or_default()),
            BringupCommand::CreateSq(n) => plain(layout(n).map(|layout| create_sq(&layout)).unwrap_or_default()),
        }
    }

    /// The answer to the command that was asked for last. One that comes when none is awaited is ignored.
    pub fn completed(&mut self, reply: &AdminReply) {
        let BringupState::Admin { command, deadline: Some(_) } = self.state else { return };
        let next = if reply.status.is_success() { self.handle_reply(command, reply) } else { self.handle_error(command, reply.status) };
        match next {
            Ok(state) => self.state = state,
            Err(cause) => self.state = BringupState::Failed(self.error(cause)),
        }
    }

    /// The controller broke the protocol on the admin queue: what [`crate::Reaped::violation`] said.
    /// Its queue yields nothing more, so that the answer that is waited for would never come.
    pub fn violated(&mut self, violation: ProtocolViolation) {
        if !matches!(self.state, BringupState::Ready | BringupState::Failed(_)) {
            self.fail(BringupCause::Violation(violation));
        }
    }

    /// The answer to an access that was under way. One that nobody waits for is ignored.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.accesses.answered(ticket, answer);
        self.status_poll.answered(ticket, answer);
    }

    /// The memory of the queue pair that was asked for.
    pub fn rings(&mut self, sq: u64, cq: u64) {
        if let BringupState::Rings(n) = self.state
            && let Some(layout) = self.inventory.queues.get_mut(n)
        {
            (layout.sq, layout.cq) = (sq, cq);
            self.state = post(BringupCommand::CreateCq(n));
        }
    }

    fn wanted_queues(&self) -> usize {
        match &self.config.queues {
            WantedQueues::New { vectors, .. } => vectors.len(),
            WantedQueues::Again(layouts) => layouts.len(),
        }
    }

    /// KATO in milliseconds: what is wanted, in steps of KAS.
    fn wanted_keep_alive(&self) -> u32 {
        let step = (self.inventory.subsystem.keep_alive_step.0 / 1_000_000).max(1);
        let millis = self.config.keep_alive.0.div_ceil(1_000_000).checked_next_multiple_of(step);
        millis.and_then(|millis| u32::try_from(millis).ok()).unwrap_or(u32::MAX)
    }

    /// Whatever is wrong: where, what, and what the registers said.
    fn fail(&mut self, cause: BringupCause) {
        self.state = BringupState::Failed(self.error(cause));
    }

    fn error(&self, cause: BringupCause) -> BringupError {
        BringupError { phase: self.phase(), cause, registers: self.accesses.registers() }
    }

    /// Where it stands.
    pub fn phase(&self) -> BringupPhase {
        match &self.state {
            BringupState::Start => BringupPhase::Capabilities,
            BringupState::Stopping(_) => BringupPhase::Disable,
            BringupState::Enabling | BringupState::Enabled { .. } => BringupPhase::Enable,
            BringupState::Admin { command, .. } => match *command {
                BringupCommand::Controller => BringupPhase::IdentifyController,
                BringupCommand::NvmController => BringupPhase::IdentifyCommandSet,
                BringupCommand::ActiveNamespaces { .. } => BringupPhase::ActiveNamespaces,
                BringupCommand::Namespace(n) => BringupPhase::IdentifyNamespace(self.nsid(n)),
                BringupCommand::NvmNamespace { n, .. } => BringupPhase::IdentifyNamespaceCommandSet(self.nsid(n)),
                BringupCommand::Descriptors(n) => BringupPhase::NamespaceDescriptors(self.nsid(n)),
                BringupCommand::NumberOfQueues => BringupPhase::NumberOfQueues,
                BringupCommand::AsyncEvents => BringupPhase::AsyncEvents,
                BringupCommand::Doorbells => BringupPhase::Doorbells,
                BringupCommand::KeepAlive => BringupPhase::KeepAlive,
                BringupCommand::CreateCq(n) => BringupPhase::CreateCq(self.queue_id(n)),
                BringupCommand::CreateSq(n) => BringupPhase::CreateSq(self.queue_id(n)),
            },
            BringupState::Rings(n) => BringupPhase::CreateCq(self.queue_id(*n)),
            BringupState::Ready => BringupPhase::Ready,
            BringupState::Failed(error) => error.phase,
        }
    }

    fn nsid(&self, n: usize) -> Nsid {
        self.nsids.get(n).copied().unwrap_or_default()
    }

    fn queue_id(&self, n: usize) -> QueueId {
        self.inventory.queues.get(n).map_or(QueueId::ADMIN, |layout| layout.id)
    }
}

fn post(command: BringupCommand) -> BringupState {
    BringupState::Admin { command, deadline: None }
}

fn create_cq(layout: &QueueLayout) -> Sqe {
    let QueueLayout { id, sizes, cq, vector, .. } = *layout;
    CreateCq { queue: id, entries: sizes.cq_entries, addr: cq, contiguous: true, vector }.to_sqe()
}

fn create_sq(layout: &QueueLayout) -> Sqe {
    let QueueLayout { id, sizes, sq, .. } = *layout;
    CreateSq { queue: id, entries: sizes.sq_entries, addr: sq, contiguous: true, priority: 0, cq: id }.to_sqe()
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/oddities.rs"]
mod oddities;
#[cfg(all(test, not(loom)))]
mod tests;
