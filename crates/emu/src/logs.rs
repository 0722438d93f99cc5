//! Log pages and asynchronous events: error log, health, changed namespaces.

use std::collections::{BTreeSet, VecDeque};

use nvme::admin::{AsyncEvent, error_event, event_type, notice, smart_event};
use nvme::fabrics::CrossResetEntry;
use nvme::log::{ChangedNamespaces, CriticalWarning, ErrorEntry, Smart, lid};
use nvme::{Cid, Nsid, Page, QueueId, Sqe, Status};
use units::{Nanos, Op};
use zerocopy::IntoBytes;

/// Entries of the Error Information log (Identify Controller ELPE + 1).
pub(crate) const ERROR_ENTRIES: usize = 64;
/// Composite Temperature in kelvin: 40 °C.
pub(crate) const TEMPERATURE: u16 = 313;
/// Maximum outstanding Asynchronous Event Requests (AERL + 1).
pub(crate) const EVENT_REQUESTS: usize = 4;

/// Counters and lists of the log pages.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
    media_errors: u64,
    changed: BTreeSet<u32>,
    /// Cross-Controller Resets of other controllers that the host has requested of this one.
    pub(crate) cross_resets: Vec<CrossResetEntry>,
    /// Reads and writes: number of commands, bytes.
    reads: (u64, u64),
    writes: (u64, u64),
    started: Option<Nanos>,
    /// Power cycles, and those without a preceding shutdown.
    power_losses: u64,
    unsafe_shutdowns: u64,
}

impl Logs {
    /// Counts a power cycle.
    pub(crate) fn power_lost(&mut self, was_shut_down: bool) {
        self.power_losses += 1;
        self.unsafe_shutdowns += u64::from(!was_shut_down);
    }

    /// Counts a successful command. Compare counts as a Read; of Verify only the data are counted
    /// (Base 5.1.12.1.3).
    #[inline]
    pub(crate) fn count(&mut self, op: Op, bytes: u32) {
        let (commands, total) = match op {
            Op::Read | Op::Compare => &mut self.reads,
            Op::Write => &mut self.writes,
            // Commands without data transfer are not counted (Base 5.1.12.1.3).
            Op::Verify => return self.reads.1 += u64::from(bytes),
            Op::Flush | Op::WriteZeroes | Op::Deallocate | Op::WriteUncorrectable => return,
        };
        *commands += 1;
        *total += u64::from(bytes);
    }

    /// Records a failed command; `lba` is its first block, if it has one.
    pub(crate) fn command_failed(&mut self, sq: QueueId, sqe: &FailedCommand, status: Status) {
        // Compare Failure is not a media error: the blocks were readable.
        self.media_errors +=
            u64::from(status.code_type() == 2 && status.kind() != Status::COMPARE_FAILURE);
        self.push(ErrorEntry {
            sq_id: sq.0,
            cid: sqe.cid.0,
            status_and_phase: status.0 << 1,
            parameter_location: ErrorEntry::NONE,
            lba: sqe.lba,
            nsid: sqe.nsid.0,
            opcode: sqe.opcode,
            version: 1,
            ..ErrorEntry::default()
        });
    }

    /// Records an invalid doorbell value of `queue`.
    pub(crate) fn bad_doorbell(&mut self, queue: QueueId, value: u32) {
        tracing::warn!(%queue, value, "the host wrote an invalid doorbell value");
        self.push(ErrorEntry {
            sq_id: queue.0,
            cid: ErrorEntry::NONE,
            status_and_phase: Status::INVALID_FIELD.0 << 1,
            parameter_location: ErrorEntry::NONE,
            command_info: u64::from(value),
            ..ErrorEntry::default()
        });
    }

    /// Records an error that is not caused by a command.
    pub(crate) fn controller_failed(&mut self, status: Status) {
        let none = ErrorEntry::NONE;
        self.push(ErrorEntry {
            sq_id: none,
            cid: none,
            status_and_phase: status.0 << 1,
            parameter_location: none,
            ..ErrorEntry::default()
        });
    }

    fn push(&mut self, entry: ErrorEntry) {
        self.error_count += 1;
        // The oldest entry is dropped; the error count continues, so a host notices the gap.
        self.errors.truncate(ERROR_ENTRIES - 1);
        self.errors.push_front(ErrorEntry { error_count: self.error_count, ..entry });
    }

    /// The Error Information log, newest entry first.
    pub(crate) fn error_page(&self) -> Vec<u8> {
        let mut page = vec![0; ERROR_ENTRIES * ErrorEntry::LEN];
        for (slot, entry) in page.chunks_exact_mut(ErrorEntry::LEN).zip(&self.errors) {
            slot.copy_from_slice(entry.as_page());
        }
        page
    }

    /// Records the time of power-on.
    pub(crate) fn power_on(&mut self, now: Nanos) {
        self.started.get_or_insert(now);
    }

    /// SMART / Health Information, with these warnings.
    pub(crate) fn smart(&self, now: Nanos, critical_warning: CriticalWarning) -> Smart {
        // Rounded up: one sector read is one data unit (Base 5.1.12.1.3).
        let thousands_of_512 = |bytes: u64| u128::from(bytes.div_ceil(512_000)).into();
        Smart {
            critical_warning,
            temperature: TEMPERATURE.into(),
            available_spare: 100,
            available_spare_threshold: 10,
            data_units_read: thousands_of_512(self.reads.1),
            data_units_written: thousands_of_512(self.writes.1),
            host_reads: u128::from(self.reads.0).into(),
            host_writes: u128::from(self.writes.0).into(),
            // Power-on itself is the first cycle.
            power_cycles: u128::from(1 + self.power_losses).into(),
            unsafe_shutdowns: u128::from(self.unsafe_shutdowns).into(),
            power_on_hours: u128::from((now - self.started.unwrap_or(now)).0 / 3_600_000_000_000)
                .into(),
            media_errors: u128::from(self.media_errors).into(),
            error_log_entries: u128::from(self.error_count).into(),
            ..Smart::default()
        }
    }

    /// Adds a namespace to the changed list.
    pub(crate) fn namespace_changed(&mut self, nsid: Nsid) {
        self.changed.insert(nsid.0);
    }

    /// The Changed Attached Namespace List.
    pub(crate) fn changed(&self) -> ChangedNamespaces {
        if self.changed.len() > ChangedNamespaces::CAPACITY {
            // FFFFFFFFh: more namespaces have changed than fit (Base 5.1.12.1.5).
            return ChangedNamespaces::of([Nsid::ALL]);
        }
        ChangedNamespaces::of(self.changed.iter().map(|&id| Nsid(id)))
    }

    /// The Cross-Controller Reset log.
    pub(crate) fn cross_reset_page(&self) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[..2].copy_from_slice(&(self.cross_resets.len() as u16).to_le_bytes());
        for (bytes, entry) in page[8..].chunks_exact_mut(8).zip(&self.cross_resets) {
            bytes.copy_from_slice(entry.as_bytes());
        }
        page
    }

    /// The host has read a log page without Retain Asynchronous Event, which clears the list of
    /// changes (Base 5.1.12.1.5).
    pub(crate) fn acknowledge(&mut self, log: u8) {
        if log == lid::CHANGED_NAMESPACES {
            self.changed.clear();
        }
    }
}

/// The fields of a command that the error log reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedCommand {
    pub(crate) cid: Cid,
    pub(crate) opcode: u8,
    pub(crate) nsid: Nsid,
    pub(crate) lba: u64,
}

impl FailedCommand {
    /// From an I/O command that may not be valid.
    pub(crate) fn of(sqe: &Sqe) -> FailedCommand {
        let lba = u64::from(sqe.cdw10) | u64::from(sqe.cdw11) << 32;
        // Dataset Management has its blocks in a list, not in CDW10 and CDW11.
        let lba = if sqe.opcode == nvme::opcode::io::DATASET_MANAGEMENT { 0 } else { lba };
        FailedCommand { cid: sqe.cid(), opcode: sqe.opcode, nsid: sqe.nsid(), lba }
    }
}

/// State of one asynchronous event: reported once, then masked until the host reads its log page
/// (Base 5.1.2).
#[derive(Debug)]
struct Kind {
    event: AsyncEvent,
    pending: bool,
    masked: bool,
}

/// Asynchronous events, and the outstanding requests.
#[derive(Debug)]
pub(crate) struct ControllerEvents {
    requests: VecDeque<Cid>,
    kinds: [Kind; 6],
    /// An event is pending and not masked.
    reportable: bool,
}

/// Supported events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerEvent {
    /// Invalid doorbell write value.
    InvalidDoorbell,
    /// Transient internal error.
    Internal,
    /// Namespace attribute changed.
    NamespaceChanged,
    /// Asymmetric Namespace Access change.
    AnaChanged,
    /// Temperature threshold.
    Temperature,
    /// Cross-Controller Reset completed.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "only fabric controllers have it")
    )]
    CrossReset,
}

impl ControllerEvents {
    pub(crate) fn new() -> ControllerEvents {
        let kind = |event_type, info, log| Kind {
            event: AsyncEvent::new().with_event_type(event_type).with_info(info).with_lid(log),
            pending: false,
            masked: false,
        };
        ControllerEvents {
            requests: VecDeque::with_capacity(EVENT_REQUESTS),
            reportable: false,
            kinds: [
                kind(event_type::ERROR, error_event::INVALID_DOORBELL_VALUE, lid::ERROR),
                kind(event_type::ERROR, error_event::TRANSIENT_INTERNAL, lid::ERROR),
                kind(
                    event_type::NOTICE,
                    notice::NAMESPACE_ATTRIBUTE_CHANGED,
                    lid::CHANGED_NAMESPACES,
                ),
                kind(event_type::NOTICE, notice::ANA_CHANGE, lid::ANA),
                kind(event_type::SMART, smart_event::TEMPERATURE_THRESHOLD, lid::SMART),
                kind(
                    event_type::NOTICE,
                    notice::CROSS_RESET_COMPLETED,
                    lid::CROSS_CONTROLLER_RESET,
                ),
            ],
        }
    }

    /// Adds a request. Returns false if the limit (AERL) is exceeded.
    pub(crate) fn request(&mut self, cid: Cid) -> bool {
        if self.requests.len() == EVENT_REQUESTS {
            return false;
        }
        self.requests.push_back(cid);
        true
    }

    /// Removes an aborted request. Returns whether it was outstanding.
    pub(crate) fn withdraw(&mut self, cid: Cid) -> bool {
        let found = self.requests.iter().position(|&c| c == cid);
        found.and_then(|at| self.requests.remove(at)).is_some()
    }

    /// Raises an event.
    pub(crate) fn raise(&mut self, event: ControllerEvent) {
        self.set(event, true);
    }

    /// Sets or clears a condition whose event stays pending as long as it holds.
    pub(crate) fn set(&mut self, event: ControllerEvent, pending: bool) {
        self.kinds[event as usize].pending = pending;
        self.update_reportable();
    }

    fn update_reportable(&mut self) {
        self.reportable = self.kinds.iter().any(|k| k.pending && !k.masked);
    }

    /// The host has read a log page without Retain Asynchronous Event: unmasks its events.
    pub(crate) fn acknowledge(&mut self, log: u8) {
        for kind in self.kinds.iter_mut().filter(|k| k.event.lid() == log) {
            // An event that became pending while it was masked is reported now.
            kind.masked = false;
        }
        self.update_reportable();
    }

    /// Whether [`ControllerEvents::take`] would return an event.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.reportable && !self.requests.is_empty()
    }

    /// Removes the next event to report, with the request to complete.
    pub(crate) fn take(&mut self) -> Option<(Cid, AsyncEvent)> {
        let at = self.kinds.iter().position(|k| k.pending && !k.masked)?;
        let cid = self.requests.pop_front()?;
        self.kinds[at].pending = false;
        let event = self.kinds[at].event;
        // One report masks all events of its log page, as the page describes all of them.
        for kind in self.kinds.iter_mut().filter(|k| k.event.lid() == event.lid()) {
            kind.masked = true;
        }
        self.update_reportable();
        Some((cid, event))
    }
}
