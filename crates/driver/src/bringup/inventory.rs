//! What is known of a controller that has been brought up.

use nvme::identify;
use nvme::regs::{Cap, Version};
use units::Nanos;

use super::queues::QueueLayout;
use crate::{Limits, Namespace, RefusedFormat};

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
    /// ANAGRPMAX: the highest ANA group; 0 without ANA.
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
