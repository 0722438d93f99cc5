//! The only crate with hand-written `unsafe`: DMA memory, queue rings, registers and doorbells,
//! eventfds, epoll, io_uring, VFIO, clocks and CPU topology.
//!
//! Two rules keep it small. First, no Rust reference into memory that a device shares outlives one
//! access: ring words are atomics made inside the accessor, data is copied through raw pointers,
//! and a buffer is `[u8]` only while it is not lent to the device. Second, every function here is
//! safe to call: each precondition is checked or ruled out by a type, so that all other crates can
//! `forbid(unsafe_code)`. The exceptions are `unsafe` and say what they require: memory that the
//! caller names by address ([`RawMemory`], [`Memory`]).
//!
//! Two requirements cannot be checked, because the other party is a kernel, a bus device or another
//! process. A buffer that such a party may access must be taken back ([`Lent::take_back`]) only
//! after its command has completed, or with CSTS.RDY = 0. A process that receives the file of
//! memory from a [`Pinner`] must touch only lent buffers and rings.
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Reap runs on 64-bit Linux");

mod bar;
pub mod block;
mod clock;
mod cpu;
mod dma;
mod eventfd;
mod guarded;
mod guest;
mod mapping;
mod named_file;
pub mod passthrough;
pub mod pci;
mod poller;
mod process;
pub mod uring;
pub mod vfio;

pub use bar::Bar;
pub use clock::{
    ThreadCpuClock, Usage, children_cpu, now, process_cpu, set_timer_slack, sleep_until,
    thread_cpu, thread_usage,
};
pub use cpu::{
    Nodes, RunDelay, allowed_cpus, avoid_cpu, clear_affinity, cpus, current_cpu, memory_bytes, pin,
    pin_to, sched_idle, stolen_by_hypervisor,
};
pub use dma::{
    AllocError, Attachment, Backing, Chunk, ChunkId, CqRing, DmaBuf, DmaPool, DoorbellPages,
    DoorbellWords, Lent, Memory, Pages, PinError, Pinner, PoolKey, PoolOptions, RangeError,
    RawMemory, Region, RegisterError, RingMemory, Slots, SqRing,
};
pub use eventfd::{EventFd, Vectors, vectors};
pub use guarded::GuardedBuffer;
pub use guest::{DoorbellFile, GuestError, GuestMemory, GuestRange, Rights};
pub use named_file::{read_at_most, read_file, read_text};
pub use nvme::Vector;
pub use poller::Poller;
pub use process::{ForkGuard, Process};
