//! One thread's queue on one controller, over either kind of transport. Each call matches the
//! transport once, here; below this module the type is known at compile time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use completion::{AdaptiveState, Mode, Plan, PollLimits, Spin};
use hw::{DmaPool, Lent, Poller};
use nvme::{QueueId, Sqe};
use units::Nanos;

use super::block_on::Signal;
use super::event_loop::{LoopQueue, Slept};
use super::queue_pair::{PollStatus, QueuePair};
use super::ring_queue::RingQueue;
use crate::admin;
use crate::counters::{Counters, HardwareCounters};
use crate::error::{QueueError, Refused, WouldDeadlock};
use crate::namespace::Namespace;
use crate::request::{Completion, Request};
use crate::shared::controller::OpenController;
use crate::shared::future_states::FutureStates;
use crate::transport::{IoCommand, Transport, UringQueue};
use crate::wakeups::Wakeups;

/// One thread's queue on one controller. A [`crate::Queue`] has one, or one for each path.
#[allow(
    clippy::large_enum_variant,
    reason = "one for each queue; a box would cost each call a load"
)]
pub(crate) enum PathQueue {
    /// Of a file or block device: io_uring instances of the queue's own.
    File(QueuePair<UringQueue>),
    /// Of a controller: a hardware queue, which other threads may share.
    Controller(QueuePair<RingQueue>),
}

/// Methods that both variants have.
macro_rules! each {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $out:ty)?;)*) => {
        $($(#[$meta])* $vis fn $name(&self $(, $arg: $type)*) $(-> $out)? {
            match self {
                PathQueue::File(queue) => queue.$name($($arg),*),
                PathQueue::Controller(queue) => queue.$name($($arg),*),
            }
        })*
    };
}

impl PathQueue {
    /// Takes a queue of `controller` for the calling thread, in `mode` or in the controller's.
    /// `bound`: no other thread will ever use it, so a ring may be SINGLE_ISSUER.
    ///
    /// # Errors
    /// All queues are taken, the process has no descriptor left, or the kernel refuses a ring.
    pub(crate) fn take(
        controller: &OpenController,
        bound: bool,
        mode: Option<Mode>,
    ) -> Result<PathQueue, QueueError> {
        let poller = Poller::new()
            .map_err(|source| QueueError::System { what: "epoll instance", source })?;
        let poller = Arc::new(poller);
        let Transport::Kernel(transport) = controller.transport() else {
            let (hardware, index) =
                controller.take_queue(mode.unwrap_or_else(|| controller.mode()))?;
            let shared = hardware.users[usize::from(index)].clone();
            // A closure, evaluated twice: the device's mode may change while this runs.
            shared
                .mode
                .begin(|| controller.mode_on(None, mode.unwrap_or_else(|| controller.mode())));
            // The mode may need other coalescing settings of the controller.
            controller.wake_task();
            let fork_guard = hardware.pair.fork_guard();
            let rings = RingQueue::new(hardware, index, poller.clone());
            let queue = QueuePair::new(
                controller.clone(),
                shared.clone(),
                index,
                rings,
                poller,
                fork_guard,
            );
            return queue
                .map(PathQueue::Controller)
                .inspect_err(|_| controller.release_queue(&shared));
        };
        let shared = controller.add_queue(mode)?;
        let asked = shared.made_for.unwrap_or(Mode::INTERRUPT);
        let (id, depth, wake) =
            (QueueId(shared.id), controller.description().depth, (&*shared.wake, &shared.counts));
        let queue = UringQueue::new(transport, id, depth, wake, bound, asked, poller.clone())
            .and_then(|rings| {
                let fork_guard = rings.fork_guard();
                QueuePair::new(controller.clone(), shared.clone(), 0, rings, poller, fork_guard)
            });
        queue.map(PathQueue::File).inspect_err(|_| controller.release_queue(&shared))
    }

    each! {
        pub(crate) fn namespaces(&self) -> &[Namespace];
        pub(crate) fn pool(&self) -> &DmaPool;
        #[inline]
        pub(crate) fn reap(&self, out: &mut Vec<Completion>) -> usize;
        #[inline]
        pub(crate) fn finished(&self) -> usize;
        #[inline]
        pub(crate) fn in_flight(&self) -> u32;
        pub(crate) fn is_submitting(&self) -> bool;
        #[inline]
        pub(crate) fn wait(&self, min: usize, until: Nanos, idle: bool) -> Result<usize, WouldDeadlock>;
        pub(crate) fn tickets(&self) -> Arc<FutureStates>;
        pub(crate) fn start(&self, ticket: u32, request: Request, command: Option<Box<IoCommand>>) -> Result<(), (Refused, Request)>;
        pub(crate) fn commit(&self);
        pub(crate) fn set_mode(&self, mode: Mode);
        pub(crate) fn set_spin(&self, spin: Spin);
        pub(crate) fn set_next_due(&self, due: Option<Nanos>);
        #[cfg(feature = "testing")]
        pub(crate) fn next_due(&self) -> Option<Nanos>;
        pub(crate) fn mode(&self) -> Mode;
        pub(crate) fn counters(&self) -> Counters;
        pub(crate) fn take_counters(&self) -> Counters;
        pub(crate) fn hardware_counters(&self) -> HardwareCounters;
        pub(crate) fn adaptive_state(&self) -> Option<AdaptiveState>;
        pub(crate) fn count_wakeups(&self);
        pub(crate) fn wakeups(&self) -> Wakeups;
        pub(crate) fn hardware_queue(&self) -> u16;
        pub(crate) fn same_process(&self) -> bool;
        pub(crate) fn signal(&self) -> &Arc<Signal>;
        pub(crate) fn poll_events(&self, budget: u32) -> PollStatus;
        pub(crate) fn prepare(&self, lent: &Lent);
        pub(crate) fn allow_external_sleep(&self);
        pub(crate) fn leave_loop(&self);
        pub(crate) fn next_deadline(&self) -> Option<Nanos>;
    }

    /// See [`crate::Queue::submit`] and [`crate::Queue::post`].
    #[inline]
    pub(crate) fn submit(
        &self,
        now: Nanos,
        waits: bool,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        match self {
            PathQueue::File(queue) => apart(|| queue.submit(now, waits, requests)),
            PathQueue::Controller(queue) => queue.submit(now, waits, requests),
        }
    }

    /// Drives the queue until `wanted` requests can be reaped or `enough` is true, even with
    /// nothing in flight: the caller may wait for another thread. `enough` must not use the queue.
    pub(crate) fn drive(&self, until: Nanos, wanted: Option<u32>, enough: impl Fn() -> bool) {
        match self {
            PathQueue::File(queue) => queue.run(until, true, wanted, enough),
            PathQueue::Controller(queue) => queue.run(until, true, wanted, enough),
        }
    }

    /// See [`crate::Queue::io_command`]: `request` has the buffer, `ticket` is its future's, and
    /// `result` will be dword 0 of the completion.
    ///
    /// # Errors
    /// It cannot be carried out.
    pub(crate) fn io_command(
        &self,
        ticket: u32,
        command: &Sqe,
        request: Request,
        result: Arc<AtomicU32>,
    ) -> Result<(), (Refused, Request)> {
        let refused =
            |why, request| Err((Refused::Command { opcode: command.opcode, why }, request));
        let PathQueue::Controller(queue) = self else {
            // io_uring returns dword 0 only in CQEs of 32 bytes (IORING_SETUP_CQE32), which would
            // make every completion dearer.
            return refused(
                "the kernel drives this device; `nvme io-passthru` has its driver send it",
                request,
            );
        };
        let named = self.namespaces().iter().find(|namespace| namespace.nsid().0 == command.nsid);
        if let Err(why) = admin::check_io(
            command,
            request.buf.as_ref(),
            named,
            queue.controller.transport().takes_sgls(),
        ) {
            return refused(why, request);
        }
        // Without the caller's CID, flags and pointers: the transport fills these in.
        let &Sqe { opcode, nsid, cdw2, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } = command;
        let sqe =
            Sqe { opcode, nsid, cdw2, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() };
        let bytes = request.buf.as_ref().map_or(0, |buf| buf.len()) as u32;
        queue.start(ticket, request, Some(Box::new(IoCommand { sqe, bytes, result })))
    }

    /// Calls `take` for each finished request. `take` must not use the queue.
    #[inline]
    pub(crate) fn reap_each(&self, take: impl FnMut(Completion)) {
        match self {
            PathQueue::File(queue) => queue.reap_each(take),
            PathQueue::Controller(queue) => queue.reap_each(take),
        }
    }

    /// Whether both are queues of one controller, so that they can share a notification.
    pub(crate) fn shares_controller(&self, other: &PathQueue) -> bool {
        let (PathQueue::Controller(one), PathQueue::Controller(other)) = (self, other) else {
            return false;
        };
        one.transport().hardware().pair.shares_controller(&other.transport().hardware().pair)
    }

    /// In `posted`, messages of this queue notify `first`, a queue of the same thread on the same
    /// controller.
    pub(crate) fn share_notification(&self, first: &PathQueue) {
        let (PathQueue::Controller(queue), PathQueue::Controller(first)) = (self, first) else {
            return;
        };
        // A statement of its own ends the borrow of `first`, which may be `queue`.
        let target = first.transport().own_vector();
        target.into_iter().for_each(|target| queue.share_notification(target));
    }

    /// The queue of a controller.
    #[cfg(test)]
    pub(crate) fn controller(&self) -> &QueuePair<RingQueue> {
        if let PathQueue::Controller(queue) = self { queue } else { panic!("a queue of a file") }
    }

    /// The queue of a file.
    #[cfg(test)]
    pub(crate) fn file(&self) -> &QueuePair<UringQueue> {
        if let PathQueue::File(queue) = self { queue } else { panic!("a queue of a controller") }
    }

    /// The thread is done with the queue.
    pub(crate) fn close(self) {
        match self {
            PathQueue::File(queue) => queue.close(),
            PathQueue::Controller(queue) => queue.close(),
        }
    }
}

impl LoopQueue for PathQueue {
    each! {
        #[inline] fn in_flight(&self) -> u32;
        fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan;
        fn poll(&self, budget: u32) -> (u32, Option<Nanos>);
        fn spin_started(&self);
        #[inline] fn poll_ready(&self) -> bool;
        fn limits(&self) -> PollLimits;
        fn spin_ended(&self, now: Nanos);
        fn yields_cpu(&self) -> bool;
        fn arm(&self);
        fn check_before_sleep(&self) -> bool;
        fn measures_sleeps(&self) -> bool;
        fn drain_events(&self) -> io::Result<bool>;
        fn woken(&self, slept: &Slept);
        fn leave(&self);
    }
}

impl AsFd for PathQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            PathQueue::File(queue) => queue.as_fd(),
            PathQueue::Controller(queue) => queue.as_fd(),
        }
    }
}

/// Keeps the loops of the two transports in two functions: inlined into one, each gets fewer
/// registers.
#[inline(never)]
fn apart<R>(submit: impl FnOnce() -> R) -> R {
    submit()
}
