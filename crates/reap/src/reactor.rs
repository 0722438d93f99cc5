//! A reactor: a thread that drives a queue for futures of other threads.
//!
//! ```text
//! any thread: start_request -> arrivals + signal -> reactor thread: submit, poll, complete futures
//! ```

use std::fmt;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use hw::{DmaBuf, DmaPool};
use units::Nanos;

use crate::device::Device;
use crate::error::{IoError, QueueError};
use crate::namespace::Namespace;
use crate::queue::{self, Queue};
use crate::request::Request;
use crate::shared::future::{IoFuture, Pending};
use crate::shared::future_states::FutureStates;
use crate::thread::block_on::Signal;

/// A thread that drives one queue. Requests come from any thread, as futures that any executor may
/// poll. When the last handle is dropped, the thread ends as soon as nothing is in flight.
///
/// This is what `#[tokio::main]` and `tokio::spawn` need: a reactor and its futures are `Send`. A
/// queue of the caller's own thread costs less ([`Queue::block_on`], [`Queue::submit`]), since no
/// other thread is woken.
///
/// ```
/// use reap::{Device, Reactor};
///
/// let device = Device::open("mem:64M?profile=null")?;
/// let ns = device.namespaces()[0];
/// let reactor = Reactor::start(&device, None)?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
/// # runtime.block_on(async {
/// let tasks = (0..4).map(|n| {
///     let (reactor, mut buf) = (reactor.clone(), device.buffer(4096)?);
///     Ok(tokio::spawn(async move {
///         buf.fill(n);
///         let (result, buf) = reactor.write(&ns, u64::from(n) * 8, buf).await;
///         result?;
///         let (result, buf) = reactor.read(&ns, u64::from(n) * 8, buf).await;
///         result.map(|()| buf[0] == n)
///     }))
/// });
/// for task in tasks.collect::<Result<Vec<_>, reap::AllocError>>()? {
///     assert!(task.await??);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reactor(Arc<Handle>);

struct Handle(Arc<ReactorState>);

struct ReactorState {
    /// Requests that the thread has not taken yet, each with the ticket of its future.
    arrivals: Mutex<Vec<(Request, u32)>>,
    tickets: Arc<FutureStates>,
    signal: Arc<Signal>,
    /// The device's buffers.
    pool: DmaPool,
    closed: AtomicBool,
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").finish_non_exhaustive()
    }
}

impl Reactor {
    /// Starts a thread, pinned to `cpu` if given, with a queue of its own
    /// ([`Device::local_queue`]).
    ///
    /// # Errors
    /// The system has no thread left, or as of [`Device::local_queue`].
    pub fn start(device: &Device, cpu: Option<usize>) -> Result<Reactor, QueueError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let device = device.clone();
        let run = move || {
            if let Some(cpu) = cpu
                && let Err(error) = hw::pin(cpu)
            {
                tracing::warn!(cpu, %error, "the reactor is not pinned");
            }
            match device.local_queue() {
                Ok(queue) => {
                    // The queue keeps the device open as long as it needs it.
                    drop(device);
                    let shared = Arc::new(ReactorState::new(&queue));
                    if sender.send(Ok(shared.clone())).is_ok() {
                        shared.run(&queue);
                    }
                }
                Err(error) => _ = sender.send(Err(error)),
            }
        };
        let failed = |source| QueueError::System { what: "reactor thread", source };
        // Not joined, because drop must not block. The thread ends by itself when its queue is
        // empty.
        std::thread::Builder::new().name("reap-reactor".into()).spawn(run).map_err(failed)?;
        let shared = receiver
            .recv()
            .map_err(|_| failed(io::Error::other("it ended before it had a queue")))??;
        Ok(Reactor(Arc::new(Handle(shared))))
    }

    /// Reads blocks from `lba` on into `buf`, which comes back with the result.
    pub fn read(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        self.start_request(Request::read(namespace, lba, buf)).with_buffer()
    }

    /// Writes `buf` to the blocks from `lba` on; it comes back with the result.
    pub fn write(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> IoFuture {
        self.start_request(Request::write(namespace, lba, buf)).with_buffer()
    }

    /// Makes every completed write durable.
    pub fn flush(&self, namespace: &Namespace) -> Pending<Result<(), IoError>> {
        self.start_request(Request::flush(namespace)).without_buffer()
    }

    /// Starts any request as a future that the reactor's thread drives.
    pub fn start_request(&self, request: Request) -> Pending {
        let shared = &*self.0.0;
        let ticket = shared.tickets.issue();
        shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push((request, ticket));
        std::task::Wake::wake_by_ref(&shared.signal);
        Pending::new(shared.tickets.clone(), ticket, shared.pool.clone())
    }
}

impl ReactorState {
    fn new(queue: &Queue) -> ReactorState {
        let (signal, pool) = (queue.signal().clone(), queue.pool().clone());
        ReactorState {
            arrivals: Mutex::default(),
            tickets: queue.tickets(),
            signal,
            pool,
            closed: AtomicBool::new(false),
        }
    }

    fn run(&self, queue: &Queue) {
        let mut taken = Vec::new();
        loop {
            self.signal.clear();
            // Read before the arrivals: no request follows once the last handle is gone.
            let closed = self.closed.load(Acquire);
            std::mem::swap(
                &mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner),
                &mut taken,
            );
            if closed && taken.is_empty() && queue.in_flight() == 0 {
                return;
            }
            for (request, ticket) in taken.drain(..) {
                if let Err((why, request)) = queue.start_as(ticket, request) {
                    queue::refuse(&self.tickets, ticket, why, request);
                }
            }
            // A new request ends the drive by the signal; so does the last handle.
            queue.drive(Nanos::MAX, || {
                self.signal.is_signalled() || closed && queue.in_flight() == 0
            });
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.closed.store(true, Release);
        std::task::Wake::wake_by_ref(&self.0.signal);
    }
}
