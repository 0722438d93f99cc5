//! An association: one host's admin and I/O queue connections, and the controller allocated to them
//! by Connect (Base 2.2.2, 3.3).

use std::collections::BTreeMap;
use std::rc::Rc;

use nvme::fabrics::{self, Connect, ConnectData, Property};
use nvme::regs::{self, Aqa, Cc, Csts};
use nvme::{Cqe, QueueId, Registers, Sqe, Status};
use units::Nanos;

use super::fabric_host::{FabricHost, FabricPort};
use crate::{Config, Controller};

/// Identity of a host, from the data of Connect: HOSTNQN and HOSTID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostIdentity {
    pub(super) nqn: String,
    pub(super) id: [u8; 16],
}

/// A host and its controller.
pub(super) struct Association {
    pub(super) controller: Controller<FabricPort>,
    pub(super) link: Rc<FabricHost>,
    pub(super) host: HostIdentity,
    pub(super) subnqn: String,
    /// Index of the server's address.
    pub(super) port: usize,
    /// Connection of each queue.
    pub(super) queues: BTreeMap<QueueId, u64>,
    /// CIU and CIRN, which distinguish this association from earlier ones with the same CNTLID.
    pub(super) instance: (u8, u64),
    /// Time of the controller's next own event.
    pub(super) next: Option<Nanos>,
    /// The controller has to be stepped now.
    pub(super) moved: bool,
    /// The connections are lost; the controller may still execute writes that it has fetched.
    pub(super) alone: bool,
    admin_entries: u32,
}

/// Maximum entries of an admin queue.
pub(super) const ADMIN_ENTRIES: u32 = 256;

/// DW0 and status of a Connect with an invalid parameter. `offset`: where the parameter is, in the
/// data (`in_data`) or in the command.
pub(super) fn invalid(offset: usize, in_data: bool) -> (u32, Status) {
    (fabrics::invalid_parameter(offset, in_data), fabrics::INVALID_PARAMETERS.with_dnr())
}

/// Byte offsets of fields in a Connect command.
pub(super) const QID_AT: usize = 42;
pub(super) const SQSIZE_AT: usize = 44;

impl Association {
    /// Allocates a controller, built by `make`, for a Connect of an admin queue.
    pub(super) fn new(
        host: HostIdentity,
        subnqn: String,
        port: usize,
        connect: &Connect,
        config: Config,
        make: impl FnOnce(Config, FabricPort) -> Controller<FabricPort>,
    ) -> Association {
        let link = Rc::new(FabricHost::new(config.queue_pairs));
        let instance = config.fabric.as_ref().map_or((0, 0), |fabric| fabric.instance);
        let mut controller = make(config, FabricPort(link.clone()));
        controller.set_keep_alive(super::tcp::now(), connect.kato);
        Association {
            controller,
            link,
            host,
            subnqn,
            port,
            queues: BTreeMap::new(),
            instance,
            next: None,
            moved: true,
            alone: false,
            admin_entries: connect.entries,
        }
    }

    /// Handles a Connect of an I/O queue.
    pub(super) fn connect(&mut self, connect: &Connect) -> Result<(), (u32, Status)> {
        let made = self.controller.connect(
            connect.queue,
            connect.entries,
            FabricHost::ring_at(connect.queue),
        );
        made.map_err(|status| match status {
            Status::INVALID_QUEUE_ID => invalid(QID_AT, false),
            Status::INVALID_QUEUE_SIZE => invalid(SQSIZE_AT, false),
            other => (0, other.with_dnr()),
        })
    }

    /// Deletes an I/O queue and drops its commands.
    pub(super) fn disconnect(&mut self, queue: QueueId) {
        self.controller.disconnect(queue);
        // Buffers and entries of the queue go too: a new queue with this identifier reuses their
        // keys.
        self.link.forget(Some(queue));
        self.queues.remove(&queue);
    }

    /// Executes Property Get or Property Set and returns the completion entry.
    pub(super) fn property(&mut self, sqe: &Sqe, set: bool) -> Cqe {
        let property = Property::from_sqe(sqe);
        let end = |status: Status| Cqe::new(sqe.cid(), QueueId::ADMIN, 0, status, 0, false);
        let Some((wide, settable)) =
            Property::size(property.offset).filter(|(wide, _)| property.wide == Some(*wide))
        else {
            return end(Status::INVALID_FIELD.with_dnr());
        };
        let registers = &self.link.bar;
        if !set {
            let value = if wide {
                registers.read64(property.offset)
            } else {
                registers.read32(property.offset).into()
            };
            return Cqe { result: value as u32, dw1: (value >> 32) as u32, ..end(Status::SUCCESS) };
        }
        if !settable {
            return end(Status::INVALID_FIELD.with_dnr());
        }
        if property.offset == regs::CC && Cc::from_bits(property.value as u32).en() {
            // Registers that a PCIe host would have written. The ring has one entry more than the
            // queue, as a ring of N entries holds N − 1 commands.
            registers.write32(
                regs::AQA,
                Aqa::of(self.admin_entries + 1, self.admin_entries + 1).into_bits(),
            );
            registers.write64(regs::ASQ, FabricHost::ring_at(QueueId::ADMIN));
            registers.write64(regs::ACQ, FabricHost::ring_at(QueueId::ADMIN));
        }
        registers.write32(property.offset, property.value as u32);
        // The controller notices a register write only when it is stepped.
        self.moved = true;
        end(Status::SUCCESS)
    }

    /// CSTS as the host reads it.
    pub(super) fn csts(&self) -> Csts {
        Csts::from_bits(self.link.bar.read32(regs::CSTS))
    }

    /// Whether a Connect of an I/O queue names this host and subsystem.
    pub(super) fn is_of(&self, host: &HostIdentity, data: &ConnectData, port: usize) -> bool {
        self.host == *host
            && fabrics::nqn(&data.subnqn) == Some(&self.subnqn)
            && self.port == port
            && !self.alone
    }
}
