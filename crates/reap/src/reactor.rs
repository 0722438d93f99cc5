//! A reactor: a thread of Reap's that drives a queue for futures on other threads.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use hw::{AllocError, DmaBuf, DmaPool};
use units::Nanos;

use crate::device::Device;
use crate::error::{IoError, QueueError};
use crate::namespace::Namespace;
use crate::queue::Queue;
use crate::request::{Completion, Request};
use crate::shared::future::Pending;
use crate::thread::block_on::Signal;
use crate::wake;

/// A thread that drives one queue. Requests come from any thread, as futures that any executor may poll; dropping the last
/// handle ends the thread once what is in flight has been answered.
///
/// This is what `#[tokio::main]` and `tokio::spawn` need: a reactor and its futures are `Send`, and a task awaits them like any
/// other. A queue of one's own thread costs less ([`Queue::block_on`], [`Queue::submit`]), since no other thread is woken.
///
/// ```
/// use reap::{Device, Reactor};
///
/// let device = Device::open("mem:64M?profile=null")?;
/// let ns = device.namespaces()[0];
/// let reactor = Reactor::start_local(&device, None)?;
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

struct Handle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Requests that the thread has not taken yet, each with the cell its future waits on.
    arrivals: Mutex<Vec<(Request, Arc<Mutex<Cell>>)>>,
    signal: Arc<Signal>,
    /// The device's buffers.
    pool: DmaPool,
    closed: AtomicBool,
}

/// Where a request is, between the thread that waits and the one that drives.
enum Cell {
    /// The reactor has not submitted it; a waker once the future has been polled.
    Arriving(Option<Waker>),
    Submitted(Pending),
    Dropped,
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").finish_non_exhaustive()
    }
}

impl Reactor {
    /// Starts a thread that drives `queue`, pinned to `cpu` if given.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(queue: Queue, cpu: Option<usize>) -> Result<Reactor, QueueError> {
        let shared = Arc::new(Shared::new(&queue));
        let worker = shared.clone();
        let thread = spawn(cpu, move || worker.run(&queue))?;
        Ok(Reactor(Arc::new(Handle { shared, thread: Some(thread) })))
    }

    /// Starts a thread, pinned to `cpu` if given, that drives a queue of its own ([`Device::local_queue`]).
    ///
    /// # Errors
    /// The system has no thread left, or as of [`Device::local_queue`].
    pub fn start_local(device: &Device, cpu: Option<usize>) -> Result<Reactor, QueueError> {
        let (tell, told) = mpsc::sync_channel(1);
        let device = device.clone();
        let thread = spawn(cpu, move || match device.local_queue() {
            Ok(queue) => {
                // The queue keeps the device open for as long as it has to be.
                drop(device);
                let shared = Arc::new(Shared::new(&queue));
                if tell.send(Ok(shared.clone())).is_ok() {
                    shared.run(&queue);
                }
            }
            Err(error) => _ = tell.send(Err(error)),
        })?;
        let ended = || QueueError::System { what: "reactor thread", source: io::Error::other("it ended before it had a queue") };
        let shared = told.recv().map_err(|_| ended())??;
        Ok(Reactor(Arc::new(Handle { shared, thread: Some(thread) })))
    }

    /// Reads blocks from `lba` on into `buf`, which comes back with the result.
    pub fn read(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> SubmittedIo {
        SubmittedIo { request: self.start_request(Request::read(namespace, lba, buf)), pool: self.0.shared.pool.clone() }
    }

    /// Writes `buf` to the blocks from `lba` on; it comes back with the result.
    pub fn write(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> SubmittedIo {
        SubmittedIo { request: self.start_request(Request::write(namespace, lba, buf)), pool: self.0.shared.pool.clone() }
    }

    /// Makes every write that has completed durable.
    pub fn flush(&self, namespace: &Namespace) -> SubmittedFlush {
        SubmittedFlush(self.start_request(Request::flush(namespace)))
    }

    /// Makes blocks read as zeroes: see [`Request::write_zeroes`].
    pub fn write_zeroes(&self, namespace: &Namespace, lba: u64, blocks: u64) -> SubmittedFlush {
        SubmittedFlush(self.start_request(Request::write_zeroes(namespace, lba, blocks)))
    }

    /// Tells that nobody needs what blocks hold: see [`Request::deallocate`].
    pub fn deallocate(&self, namespace: &Namespace, lba: u64, blocks: u64) -> SubmittedFlush {
        SubmittedFlush(self.start_request(Request::deallocate(namespace, lba, blocks)))
    }

    /// Has the device compare `buf` with blocks: see [`Request::compare`].
    pub fn compare(&self, namespace: &Namespace, lba: u64, buf: DmaBuf) -> SubmittedIo {
        SubmittedIo { request: self.start_request(Request::compare(namespace, lba, buf)), pool: self.0.shared.pool.clone() }
    }

    /// Has the device make sure that blocks can be read: see [`Request::verify`].
    pub fn verify(&self, namespace: &Namespace, lba: u64, blocks: u64) -> SubmittedFlush {
        SubmittedFlush(self.start_request(Request::verify(namespace, lba, blocks)))
    }

    /// Makes blocks unreadable: see [`Request::write_uncorrectable`].
    pub fn write_uncorrectable(&self, namespace: &Namespace, lba: u64, blocks: u64) -> SubmittedFlush {
        SubmittedFlush(self.start_request(Request::write_uncorrectable(namespace, lba, blocks)))
    }

    /// A buffer from the device's pool.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn buffer(&self, len: usize) -> Result<DmaBuf, AllocError> {
        self.0.shared.pool.alloc(len)
    }

    /// Any request as a future, driven by the reactor's thread.
    pub fn start_request(&self, request: Request) -> Submitted {
        let cell = Arc::new(Mutex::new(Cell::Arriving(None)));
        let shared = &self.0.shared;
        lock(&shared.arrivals).push((request, cell.clone()));
        std::task::Wake::wake_by_ref(&shared.signal);
        Submitted(cell)
    }
}

fn spawn(cpu: Option<usize>, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, QueueError> {
    let pinned = move || {
        if let Some(cpu) = cpu
            && let Err(error) = hw::pin(cpu)
        {
            tracing::warn!(cpu, %error, "the reactor is not pinned");
        }
        run();
    };
    let spawned = std::thread::Builder::new().name("reap-reactor".into()).spawn(pinned);
    spawned.map_err(|source| QueueError::System { what: "reactor thread", source })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(queue: &Queue) -> Shared {
        Shared { arrivals: Mutex::default(), signal: queue.signal().clone(), pool: queue.pool().clone(), closed: AtomicBool::new(false) }
    }

    fn run(&self, queue: &Queue) {
        let mut taken = Vec::new();
        loop {
            self.signal.clear();
            std::mem::swap(&mut *lock(&self.arrivals), &mut taken);
            for (request, cell) in taken.drain(..) {
                let pending = queue.start(request);
                let mut cell = lock(&cell);
                if let Cell::Arriving(Some(waker)) = std::mem::replace(&mut *cell, Cell::Submitted(pending)) {
                    drop(cell);
                    wake::wake_all([waker]);
                }
            }
            if self.closed.load(Acquire) && queue.in_flight() == 0 && lock(&self.arrivals).is_empty() {
                return;
            }
            let closing = self.closed.load(Acquire);
            queue.drive(Nanos::MAX, || self.signal.is_told() || closing && queue.in_flight() == 0);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.closed.store(true, Release);
        std::task::Wake::wake_by_ref(&self.shared.signal);
        // Not joined: nothing blocks in a drop. The thread ends by itself once its queue is empty.
        drop(self.thread.take());
    }
}

/// A request that a reactor drives.
#[must_use = "the request is on its way, but its result and its buffer come back through the future"]
pub struct Submitted(Arc<Mutex<Cell>>);

impl fmt::Debug for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").finish_non_exhaustive()
    }
}

impl Future for Submitted {
    type Output = Completion;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        match &mut *lock(&self.0) {
            Cell::Arriving(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Cell::Submitted(pending) => Pin::new(pending).poll(cx),
            Cell::Dropped => Poll::Pending,
        }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        let mut cell = lock(&self.0);
        if let Cell::Submitted(_) = &*cell {
            *cell = Cell::Dropped;
        }
    }
}

/// A Read, a Write or a Compare that a reactor drives: its result and its buffer. After [`IoError::DeviceLost`] the buffer is an empty one,
/// because the controller may still write to the other.
#[must_use = "the request is on its way, but its result and its buffer come back through the future"]
pub struct SubmittedIo {
    request: Submitted,
    pool: DmaPool,
}

impl fmt::Debug for SubmittedIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmittedIo").finish_non_exhaustive()
    }
}

impl Future for SubmittedIo {
    type Output = (Result<(), IoError>, DmaBuf);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Pin::new(&mut this.request).poll(cx).map(|done| (done.result, done.buf.unwrap_or_else(|| this.pool.empty())))
    }
}

/// A request without data that a reactor drives: a Flush, a Write Zeroes, a Deallocate, a Verify or a Write Uncorrectable.
#[derive(Debug)]
#[must_use = "the request is on its way, but its result comes back through the future"]
pub struct SubmittedFlush(Submitted);

impl Future for SubmittedFlush {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|done| done.result)
    }
}
