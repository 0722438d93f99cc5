//! Bring-up: takes a controller from any state to one whose namespaces are known and whose I/O
//! queues exist, by the initialisation sequence of the specification (Base 3.5.1).
//!
//! The machine does no I/O. The executor steps it with the time and the controller's properties,
//! and carries out the [`BringupAction`] that each step returns:
//!
//! ```text
//!   read CAP, VS     stop (CC.EN = 0, RDY = 0)     enable (CC.EN = 1, RDY = 1)
//!   Identify Controller (01h, 06h)     active namespaces (02h)     per namespace: 00h, 05h, 03h
//!   Number of Queues     Async Event Configuration     Doorbell Buffer Config
//!   per queue pair: Create CQ, Create SQ     Keep Alive Timer     ready
//! ```
//!
//! It ends in `Ready` or `Failed`. Each wait has a deadline, and so has the whole sequence.

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
    AdminCommand, AdminReply, Answer, Limits, Namespace, PropertyError, ProtocolViolation,
    QueueSizes, RegisterValues, Ticket, UnsupportedNamespace, Unusable,
};

/// Configuration of a bring-up.
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
    /// The keep-alive time-out (KATO) to set, rounded up to the controller's granularity; zero: no
    /// keep-alive. A host that sets a time-out has to send Keep Alive at least twice in
    /// [`Inventory::keep_alive`].
    pub keep_alive: Nanos,
    /// The Command Quiesce Time that is assumed of a controller that reports none (CQT = 0). Over
    /// fabrics it is not zero: only once it has passed is a lost controller certain to have
    /// stopped.
    pub quiesce_time: Nanos,
    /// Bus addresses of two zeroed pages for shadow doorbells and their EventIdx. `None`: the host
    /// uses none.
    pub doorbells: Option<(u64, u64)>,
}

/// An action for the executor, to be carried out before the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum BringupAction {
    /// Step again when the reply or the property value has arrived, and at `until` at the latest.
    Wait {
        /// When.
        until: Nanos,
    },
    /// Post this command on the admin queue, and pass the reply to [`Bringup::completed`].
    Admin(AdminCommand),
    /// The controller has stopped without completing the last command, and will be enabled again:
    /// call [`crate::Exclusive::abandon`] and [`crate::Exclusive::reopen`] on the admin queue pair.
    /// The command's page belongs to the host again.
    ReopenAdmin,
    /// Allocate the memory of this queue pair, and pass its addresses to [`Bringup::rings`].
    Rings {
        /// The queue.
        id: QueueId,
        /// Its sizes.
        sizes: QueueSizes,
    },
    /// The controller is ready. Every later step returns this too.
    Ready(Box<Inventory>),
    /// Bring-up has failed. Every later step returns this too. The controller may be enabled:
    /// before its memory is freed, stop it with a [`crate::Shutdown`], for which an empty
    /// [`Inventory`] is enough.
    Failed(BringupError),
}

/// The I/O queue pairs wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedQueues {
    /// New queue pairs, as many as the controller grants.
    New {
        /// Commands in flight on each queue pair, as far as the controller allows.
        depth: u32,
        /// One entry for each queue pair: its interrupt vector, or `None` for a polled queue.
        vectors: Vec<Option<Vector>>,
    },
    /// After a reset: the same queue pairs with the same memory. It is an error if the controller
    /// now grants fewer.
    Existing(Vec<QueueLayout>),
}

/// An I/O queue pair to create.
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
    /// The interrupt vector of its completions.
    pub vector: Option<Vector>,
}

/// A controller that has been brought up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// CAP.
    pub cap: Cap,
    /// VS.
    pub version: Version,
    /// Model, serial number and firmware.
    pub model: Model,
    /// The NVM subsystem.
    pub subsystem: Subsystem,
    /// Limits of its commands and queues. Always `Some` once bring-up is ready.
    pub limits: Option<Limits>,
    /// The active namespaces that this driver can use.
    pub namespaces: Vec<Namespace>,
    /// The active namespaces that it cannot use, and why.
    pub refused: Vec<UnsupportedNamespace>,
    /// I/O submission and completion queues granted.
    pub granted: (u32, u32),
    /// The I/O queue pairs created.
    pub queues: Vec<QueueLayout>,
    /// The keep-alive time-out in force; zero: none.
    pub keep_alive: Nanos,
    /// OAES: the asynchronous events that the controller supports.
    pub async_events_offered: u32,
    /// LPA: log pages can be read from an offset on.
    pub log_offsets: bool,
    /// OACS: Doorbell Buffer Config is supported.
    pub shadow_doorbells_supported: bool,
    /// Shadow doorbells are in use, in the pages of [`crate::BringupConfig::doorbells`], until the
    /// controller is reset.
    pub shadow_doorbells_active: bool,
    /// RTD3E in microseconds: how long a shutdown may take; 0: not reported.
    pub shutdown_micros: u32,
}

/// Model, serial number and firmware of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// MN.
    pub model: String,
    /// SN.
    pub serial: String,
    /// FR.
    pub firmware: String,
}

/// The NVM subsystem of a controller, and the fields that matter with several paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subsystem {
    /// SUBNQN.
    pub nqn: String,
    /// CNTLID of this controller.
    pub controller: u16,
    /// ANATT, if the controller reports asymmetric namespace access (CMIC.ANARS): the longest that
    /// an ANA state change takes.
    pub ana_transition: Option<Nanos>,
    /// ANAGRPMAX: the highest ANA group; 0 without ANA.
    pub ana_groups: u32,
    /// KAS: the granularity of the keep-alive time-out; zero: keep-alive is not supported.
    pub keep_alive_granularity: Nanos,
    /// CTRATT.TBKAS: any traffic counts as keep-alive.
    pub traffic_keep_alive: bool,
    /// CQT: how long after its keep-alive time-out the controller may still execute commands.
    pub quiesce_time: Nanos,
    /// CIU and CIRN: with CNTLID they identify this association of the controller.
    pub instance: (u8, u64),
    /// CCRL: how many other controllers this controller can reset at a time (Cross-Controller
    /// Reset).
    pub cross_resets: u8,
}

impl Subsystem {
    pub(super) fn new(controller: &identify::Controller) -> Subsystem {
        let ana = controller.cmic.ana();
        Subsystem {
            nqn: controller.subnqn.to_string(),
            controller: controller.cntlid,
            ana_transition: ana.then(|| Nanos::from_secs(controller.anatt.into())),
            ana_groups: if ana { controller.anagrpmax } else { 0 },
            // KAS counts units of 100 ms.
            keep_alive_granularity: Nanos::from_millis(u64::from(controller.kas) * 100),
            traffic_keep_alive: controller.ctratt & identify::Controller::CTRATT_TBKAS != 0,
            quiesce_time: Nanos::from_millis(controller.cqt.into()),
            instance: (controller.ciu, controller.cirn),
            cross_resets: controller.ccrl,
        }
    }
}

/// Bring-up failed: the phase, the cause and the registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller cannot be brought up; {phase}: {cause} ({registers})")]
#[non_exhaustive]
pub struct BringupError {
    /// The phase that failed.
    pub phase: BringupPhase,
    /// The cause.
    pub cause: BringupCause,
    /// The registers as last read or written.
    pub registers: RegisterValues,
}

/// A phase of the sequence (Base 3.5.1).
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
            BringupPhase::IdentifyCommandSet => {
                f.write_str("Identify Controller of the NVM command set")
            }
            BringupPhase::ActiveNamespaces => f.write_str("Identify, active namespaces"),
            BringupPhase::IdentifyNamespace(nsid) => write!(f, "Identify Namespace {nsid}"),
            BringupPhase::IdentifyNamespaceCommandSet(nsid) => {
                write!(f, "Identify Namespace {nsid} of the NVM command set")
            }
            BringupPhase::NamespaceDescriptors(nsid) => {
                write!(f, "Identify, descriptors of namespace {nsid}")
            }
            BringupPhase::NumberOfQueues => f.write_str("Set Features, Number of Queues"),
            BringupPhase::AsyncEvents => {
                f.write_str("Set Features, Asynchronous Event Configuration")
            }
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
        /// The time waited.
        waited: Nanos,
    },
    /// CSTS.RDY did not become 1.
    #[error("CSTS.RDY is still 0 after {waited} (CAP.TO)")]
    NotReady {
        /// For how long.
        waited: Nanos,
    },
    /// An admin command did not complete.
    #[error("no completion after {waited}")]
    NoReply {
        /// For how long.
        waited: Nanos,
    },
    /// The controller broke the protocol on the admin queue.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// Each command completed within its time-out, but the sequence as a whole takes too long.
    #[error(
        "not complete {waited} after CSTS.RDY = 1: the controller has too many namespaces, or is too slow"
    )]
    TooLong {
        /// For how long.
        waited: Nanos,
    },
    /// A required admin command was rejected.
    #[error("the controller rejected the command: {status}")]
    Rejected {
        /// Its status.
        status: Status,
    },
    /// A property could not be read or written.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// This driver cannot use the controller.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The executor passed fewer bytes than an Identify page has.
    #[error(transparent)]
    ShortPage(TooShort),
    /// The active namespace list is not in ascending order.
    #[error(
        "the list of active namespaces has {nsid} after {after}: it must be in ascending order"
    )]
    BadNamespaceList {
        /// The namespace identifier.
        nsid: Nsid,
        /// The identifier before it.
        after: Nsid,
    },
    /// More namespaces than this driver supports.
    #[error("the controller has more than {max} namespaces, the maximum of this driver")]
    TooManyNamespaces {
        /// The maximum.
        max: usize,
    },
    /// The configured admin queue is larger than AQA can express.
    #[error("the admin queue is too large: it may have at most {max} entries")]
    AdminQueueTooLarge {
        /// The maximum.
        max: u32,
    },
    /// After a reset the controller no longer grants the queues that existed.
    #[error("after the reset the controller allows fewer or smaller queues than before")]
    Changed,
}

/// How long everything after CSTS.RDY = 1 may take. Each command has a time-out of its own, but the
/// controller determines how many commands there are: three per namespace, up to 16,384 namespaces.
const BRINGUP_TIMEOUT: Nanos = Nanos::from_secs(60);

/// The bring-up state machine.
#[derive(Clone, Debug)]
pub struct Bringup {
    config: BringupConfig,
    state: BringupState,
    ready_timeout: Nanos,
    /// When CSTS.RDY became 1. [`BRINGUP_TIMEOUT`] counts from here.
    commands_since: Nanos,
    inventory: Inventory,
    /// Namespaces to identify.
    nsids: Vec<Nsid>,
    /// The controller has no list of active namespaces (CNS 02h): `nsids` has all identifiers from
    /// 1 to NN, and each may be inactive.
    sequential_scan: bool,
    /// CNS 02h did not complete: the controller is brought up again without that command.
    skip_nsid_list: bool,
    /// NN: the highest namespace identifier.
    max_nsid: u32,
    accesses: Accesses,
    /// Polls CSTS while a command is in flight.
    status_poll: StatusPoll,
    step_timer: StepTimer,
}

#[derive(Clone, Debug)]
enum BringupState {
    Start,
    Stopping(StopSequence),
    Enabling,
    /// Waiting for CSTS.RDY = 1. `fatal`: CSTS.CFS has been 1 since before CC.EN was set.
    Enabled {
        backoff: Backoff,
        fatal: bool,
    },
    /// An admin command. While `deadline` is `None` it has to be posted; then its reply is awaited.
    Admin {
        command: BringupCommand,
        deadline: Option<Nanos>,
    },
    /// Waiting for the ring addresses of the n-th queue pair.
    Rings(usize),
    Ready,
    Failed(BringupError),
}

/// The admin commands of bring-up. A `usize` is an index into `nsids` or into the queue pairs.
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
    /// A bring-up that begins at the first phase.
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

    /// Advances as far as possible. If the executor steps later than it was asked to, the excess
    /// counts towards no deadline.
    pub fn step(&mut self, now: Nanos, properties: &impl Properties) -> BringupAction {
        let overrun = self.step_timer.overrun(now);
        self.commands_since += overrun;
        match &mut self.state {
            BringupState::Stopping(stop) => stop.extend(overrun),
            BringupState::Enabled { backoff, .. } => backoff.extend(overrun),
            BringupState::Admin { deadline: Some(deadline), .. } => *deadline += overrun,
            _ => {}
        }
        // Transitions without an action for the executor follow each other within one step.
        let mut ask = loop {
            let action = match self.advance(now, properties) {
                // The round continues at the next step, so its accesses are kept.
                Err(AccessError::WouldBlock(until)) => break BringupAction::Wait { until },
                Err(AccessError::Failed(error)) => {
                    self.fail(BringupCause::Property(error));
                    None
                }
                Ok(action) => action,
            };
            // The transition is complete: its accesses must not be replayed by the next one.
            self.accesses.end_round();
            if let BringupState::Failed(error) = &self.state {
                break BringupAction::Failed(error.clone());
            }
            if let Some(action) = action {
                break action;
            }
        };
        // A long wait is divided, so that an overrun of the executor is noticed.
        if let BringupAction::Wait { until } = &mut ask {
            self.step_timer.schedule_within(now, until);
        }
        ask
    }

    /// Makes one transition. Returns an action if the executor has something to do.
    fn advance(
        &mut self,
        now: Nanos,
        properties: &impl Properties,
    ) -> Result<Option<BringupAction>, AccessError> {
        let timeout = self.config.admin_timeout;
        let mut round = self.accesses.round(now, timeout, properties);
        match &mut self.state {
            BringupState::Start => self.start(now, properties)?,
            BringupState::Stopping(stop) => match stop.step(&mut round) {
                StopStatus::Again => {}
                StopStatus::Wait(until) => return Err(AccessError::WouldBlock(until)),
                StopStatus::Stopped => {
                    self.state = BringupState::Enabling;
                    // Only if CNS 02h did not complete, a command is left on the admin queue.
                    return Ok(self.skip_nsid_list.then_some(BringupAction::ReopenAdmin));
                }
                StopStatus::TimedOut(waited) => self.fail(BringupCause::NotStopped { waited }),
                StopStatus::Gone => self.fail(BringupCause::Gone),
                StopStatus::Failed(error) => return Err(AccessError::Failed(error)),
            },
            BringupState::Enabling => self.enable(now, properties)?,
            BringupState::Enabled { backoff, fatal } => {
                let csts = Csts::from_bits(round.get32(Property::Csts)?);
                // A CFS that was set before EN = 1 may not have been cleared yet. It is an error
                // only if it stays set until the time-out.
                *fatal &= csts.cfs() && !csts.rdy();
                match (csts.is_gone(), csts.cfs() && !*fatal, csts.rdy()) {
                    // All ones also reads as CFS = 1 and RDY = 1, so removal is tested first.
                    (true, ..) => self.fail(BringupCause::Gone),
                    (_, true, _) => self.fail(BringupCause::Fatal),
                    (_, _, true) => {
                        self.commands_since = now;
                        // From here on everything is learnt by admin commands.
                        self.state = post(BringupCommand::Controller);
                    }
                    _ => match backoff.next(now) {
                        Ok(until) => return Ok(Some(BringupAction::Wait { until })),
                        Err(_) if *fatal => self.fail(BringupCause::Fatal),
                        Err(waited) => self.fail(BringupCause::NotReady { waited }),
                    },
                }
            }
            // The time-out of the sequence is tested between commands only: a command in flight has
            // a deadline of its own.
            BringupState::Admin { deadline: None, .. }
                if now - self.commands_since >= BRINGUP_TIMEOUT =>
            {
                self.fail(BringupCause::TooLong { waited: now - self.commands_since });
            }
            BringupState::Admin { command, deadline: deadline @ None } => {
                let command = *command;
                *deadline = Some(now + timeout);
                return Ok(Some(BringupAction::Admin(self.build(command))));
            }
            BringupState::Admin { deadline: Some(deadline), .. } => {
                let deadline = *deadline;
                return self.poll_reply(now, deadline, properties);
            }
            BringupState::Rings(n) => {
                let n = *n;
                match self.inventory.queues.get(n) {
                    Some(layout) => {
                        return Ok(Some(BringupAction::Rings {
                            id: layout.id,
                            sizes: layout.sizes,
                        }));
                    }
                    // Cannot happen: `next_queue` checks the index. Not worth a panic.
                    None => self.state = BringupState::Ready,
                }
            }
            BringupState::Ready => {
                return Ok(Some(BringupAction::Ready(Box::new(self.inventory.clone()))));
            }
            BringupState::Failed(_) => {}
        }
        Ok(None)
    }

    fn start(&mut self, now: Nanos, properties: &impl Properties) -> Result<(), AccessError> {
        let mut round = self.accesses.round(now, self.config.admin_timeout, properties);
        let cap = Cap::from_bits(round.get64(Property::Cap)?);
        // A removed PCIe device reads as all ones.
        if cap.into_bits() == u64::MAX || Csts::from_bits(round.get32(Property::Csts)?).is_gone() {
            self.fail(BringupCause::Gone);
            return Ok(());
        }
        if let Err(unusable) = Limits::check_cap(cap) {
            self.fail(BringupCause::Unusable(unusable));
            return Ok(());
        }
        if self.config.admin_sizes.sq_entries.max(self.config.admin_sizes.cq_entries)
            > Aqa::MAX_ENTRIES
        {
            self.fail(BringupCause::AdminQueueTooLarge { max: Aqa::MAX_ENTRIES });
            return Ok(());
        }
        let version = Version::from_bits(round.get32(Property::Vs)?);
        self.ready_timeout = ready_timeout(&mut round, cap)?;
        self.inventory = Inventory { cap, version, ..Inventory::default() };
        // Firmware, a boot loader or a killed process may have left the controller enabled.
        self.state = BringupState::Stopping(StopSequence::started(now, self.ready_timeout));
        Ok(())
    }

    fn enable(&mut self, now: Nanos, properties: &impl Properties) -> Result<(), AccessError> {
        let mut round = self.accesses.round(now, self.config.admin_timeout, properties);
        let sizes = self.config.admin_sizes;
        // Read before EN = 1: see `Enabled`.
        let fatal = Csts::from_bits(round.get32(Property::Csts)?).cfs();
        round.set(Property::Aqa, Aqa::of(sizes.sq_entries, sizes.cq_entries).into_bits())?;
        round.set(Property::Asq, self.config.admin_sq)?;
        round.set(Property::Acq, self.config.admin_cq)?;
        // CAP.CSS = 0: a controller from before the field existed has the NVM command set only.
        let offered = self.inventory.cap.css();
        let css =
            if offered == 0 || offered & Cap::CSS_NVM != 0 { Cc::CSS_NVM } else { Cc::CSS_ALL };
        // MPS = 0 is 4 KiB pages, as `check_cap` requires; every controller has round robin (AMS =
        // 0).
        let cc = Cc::new().with_css(css).with_mps(0).with_ams(Cc::AMS_ROUND_ROBIN);
        let cc = cc.with_iosqes(Sqe::SIZE_LOG2).with_iocqes(Cqe::SIZE_LOG2);
        // CSS, MPS and AMS may change only while EN is 0 (Base 3.1.4.5), hence two writes.
        round.set(Property::Cc, cc.into_bits())?;
        round.set(Property::Cc, cc.with_en(true).into_bits())?;
        self.state =
            BringupState::Enabled { backoff: Backoff::new(now, self.ready_timeout), fatal };
        Ok(())
    }

    /// Waits for the reply, and fails early if CSTS shows that none will come.
    fn poll_reply(
        &mut self,
        now: Nanos,
        deadline: Nanos,
        properties: &impl Properties,
    ) -> Result<Option<BringupAction>, AccessError> {
        let timeout = self.config.admin_timeout;
        let (csts, until) = self
            .status_poll
            .poll(now, PollTiming { timeout, interval: Backoff::MAX_INTERVAL }, properties)
            .map_err(AccessError::Failed)?;
        csts.inspect(|&csts| self.accesses.record_csts(csts));
        if csts.is_some_and(Csts::is_gone) {
            self.fail(BringupCause::Gone);
        } else if csts.is_some_and(|csts| csts.cfs()) {
            self.fail(BringupCause::Fatal);
        } else if now >= deadline && self.may_skip_nsid_list() {
            // The controller may still write the list to the command's page, so it is stopped
            // before that page is reused.
            self.skip_nsid_list = true;
            self.state = BringupState::Start;
        } else if now >= deadline {
            self.fail(BringupCause::NoReply { waited: timeout });
        } else {
            return Ok(Some(BringupAction::Wait { until: until.min(deadline) }));
        }
        Ok(None)
    }

    fn build(&self, command: BringupCommand) -> AdminCommand {
        let identify = |cns, nsid| AdminCommand {
            sqe: Identify::new(cns, nsid, Dptr::NONE).to_sqe(),
            needs_page: true,
        };
        let plain = |sqe| AdminCommand { sqe, needs_page: false };
        let layout = |n: usize| self.inventory.queues.get(n).copied();
        match command {
            BringupCommand::Controller => identify(cns::CONTROLLER, Nsid(0)),
            BringupCommand::NvmController => identify(cns::COMMAND_SET_CONTROLLER, Nsid(0)),
            BringupCommand::ActiveNamespaces { after } => identify(cns::ACTIVE_NAMESPACES, after),
            BringupCommand::Namespace(n) => identify(cns::NAMESPACE, self.nsid(n)),
            BringupCommand::NvmNamespace { n, .. } => {
                identify(cns::COMMAND_SET_NAMESPACE, self.nsid(n))
            }
            BringupCommand::Descriptors(n) => identify(cns::NAMESPACE_DESCRIPTORS, self.nsid(n)),
            BringupCommand::NumberOfQueues => {
                let queues = self.wanted_queues() as u32;
                // Sent before any I/O queue is created, as the specification requires.
                plain(
                    SetFeatures::new(fid::NUMBER_OF_QUEUES, NumberOfQueues::of(queues, queues))
                        .to_sqe(),
                )
            }
            BringupCommand::AsyncEvents => {
                let offered = AsyncEventConfig::from_bits(self.inventory.async_events_offered);
                // Only events that the driver handles are enabled: SMART warnings, namespace
                // attributes and ANA.
                let wanted = AsyncEventConfig::new()
                    .with_smart(0x1f)
                    .with_namespace_attribute(offered.namespace_attribute());
                let wanted = wanted.with_ana_change(offered.ana_change());
                plain(SetFeatures::new(fid::ASYNC_EVENT_CONFIG, wanted).to_sqe())
            }
            BringupCommand::Doorbells => {
                let (doorbells, events) = self.config.doorbells.unwrap_or_default();
                plain(doorbell_buffer_config(doorbells, events))
            }
            BringupCommand::KeepAlive => {
                plain(SetFeatures::new(fid::KEEP_ALIVE_TIMER, self.wanted_keep_alive()).to_sqe())
            }
            BringupCommand::CreateCq(n) => {
                plain(layout(n).map(|layout| create_cq(&layout)).unwrap_or_default())
            }
            BringupCommand::CreateSq(n) => {
                plain(layout(n).map(|layout| create_sq(&layout)).unwrap_or_default())
            }
        }
    }

    /// The reply to the last command. Ignored if no command is in flight.
    pub fn completed(&mut self, reply: &AdminReply) {
        let BringupState::Admin { command, deadline: Some(_) } = self.state else { return };
        // An optional command may fail without failing bring-up.
        let next = if reply.status.is_success() {
            self.handle_reply(command, reply)
        } else {
            self.handle_error(command, reply.status)
        };
        match next {
            Ok(state) => self.state = state,
            Err(cause) => self.state = BringupState::Failed(self.error(cause)),
        }
    }

    /// The controller broke the protocol on the admin queue ([`crate::Reaped::violation`]). The
    /// queue takes no more entries, so the pending reply would never arrive.
    pub fn violated(&mut self, violation: ProtocolViolation) {
        if !matches!(self.state, BringupState::Ready | BringupState::Failed(_)) {
            self.fail(BringupCause::Violation(violation));
        }
    }

    /// The value of a property access in progress. Ignored if the access is no longer pending.
    pub fn answered(&mut self, ticket: Ticket, answer: Answer) {
        self.accesses.answered(ticket, answer);
        // Tickets are unique, so at most one of `accesses` and `status_poll` takes the answer.
        self.status_poll.answered(ticket, answer);
    }

    /// The ring memory of the queue pair that [`BringupAction::Rings`] named.
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
            WantedQueues::Existing(layouts) => layouts.len(),
        }
    }

    /// KATO in milliseconds, rounded up to the granularity of KAS.
    fn wanted_keep_alive(&self) -> u32 {
        let step = (self.inventory.subsystem.keep_alive_granularity.0 / 1_000_000).max(1);
        // Rounded up: a shorter time-out than asked for could expire between two Keep Alives.
        let millis = self.config.keep_alive.0.div_ceil(1_000_000).checked_next_multiple_of(step);
        millis.and_then(|millis| u32::try_from(millis).ok()).unwrap_or(u32::MAX)
    }

    /// Ends in `Failed`, with the current phase and the registers.
    fn fail(&mut self, cause: BringupCause) {
        self.state = BringupState::Failed(self.error(cause));
    }

    fn error(&self, cause: BringupCause) -> BringupError {
        BringupError { phase: self.phase(), cause, registers: self.accesses.registers() }
    }

    /// The current phase.
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
                BringupCommand::NvmNamespace { n, .. } => {
                    BringupPhase::IdentifyNamespaceCommandSet(self.nsid(n))
                }
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
    // The CQ is created first: Create I/O Submission Queue names the CQ of its completions.
    CreateCq { queue: id, entries: sizes.cq_entries, addr: cq, contiguous: true, vector }.to_sqe()
}

fn create_sq(layout: &QueueLayout) -> Sqe {
    let QueueLayout { id, sizes, sq, .. } = *layout;
    CreateSq {
        queue: id,
        entries: sizes.sq_entries,
        addr: sq,
        contiguous: true,
        priority: 0,
        cq: id,
    }
    .to_sqe()
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/oddities.rs"]
mod oddities;
#[cfg(all(test, not(loom)))]
mod tests;
