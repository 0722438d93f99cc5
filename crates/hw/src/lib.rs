//! The machine: the only crate with hand-written `unsafe`. Memory that a device reaches, ring slots, registers and
//! doorbells, eventfds, epoll, clocks, CPUs.
//!
//! Two rules keep it small. Memory that a device shares is never behind a Rust reference that outlives one access: ring
//! words are atomics made inside the accessor, data is copied to and from raw pointers, and a buffer is `[u8]` only
//! while it is not lent. And what is here is safe to call: what a caller could get wrong is checked or is impossible by
//! type, so that every other crate can forbid `unsafe`. Only who brings memory by its address, or takes the pool's to
//! another process, has to give a promise.
//!
//! Two rules are neither checked nor a type, because who breaks them is not in this process. A buffer that a kernel or a device on a bus
//! has is taken back ([`Lent::take_back`]) once its command has completed, or with RDY=0, and not before. And another process, which has
//! the file of memory from a [`Pinner`], touches nothing of it but what is lent, and rings.
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
pub use clock::{ThreadCpuClock, Usage, children_cpu, now, process_cpu, set_timer_slack, sleep_until, thread_cpu, thread_usage};
pub use cpu::{Nodes, RunDelay, allowed_cpus, avoid, cpus, current_cpu, memory_bytes, pin, pin_to, roam, sched_idle, stolen_by_hypervisor};
pub use dma::{
    AllocError, Attachment, Backing, Chunk, CqRing, DmaBuf, DmaPool, DoorbellPages, DoorbellWords, Lent, Memory, Pages, Piece, PinError,
    Pinner, PoolKey, PoolOptions, RangeError, RawMemory, Region, RegisterError, RingMemory, Slots, SqRing,
};
pub use eventfd::{EventFd, Vectors, vectors};
pub use guarded::Guarded;
pub use guest::{DoorbellFile, GuestError, GuestMemory, GuestRange, Rights};
pub use named_file::{read_at_most, read_file, read_text};
pub use nvme::Vector;
pub use poller::Poller;
pub use process::{Birth, Process};
