//! Files, block devices and NVMe character devices, driven by the kernel through io_uring.
//!
//! ```text
//!   request ─► part ─► RingCommand ─► SQE ─► kernel ─► file system / block device / NVMe driver
//!                          ▲                   │
//!                          └── CQE: done, or resubmit what is left
//! ```
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI mean? | `uri.rs` |
//! | what is opened, and what are its limits? | `target.rs`; as an NVMe controller reports them: `namespace.rs` |
//! | may it be opened for writing? | `transport/file_lock.rs` |
//! | what does sysfs report of the disk? | `hw::block` |
//! | direct or buffered I/O, and which alignment? | `direct.rs` |
//! | how is a new file laid out? | `layout.rs` |
//! | what do all queues of a target share? | `file.rs` |
//! | which rings does a queue have? | `queue.rs` |
//! | how does one ring post, reap and sleep? | `command_ring.rs` |
//! | what is one request to the kernel? | `command.rs`; as an NVMe pass-through command: `passthrough.rs` |
//! | does this kernel support pass-through? | `probe.rs` |
//! | how are blocks zeroed and deallocated? | `zeroing.rs` |
//! | which memory is registered with a ring? | `buffers.rs` |

mod buffers;
mod command;
mod command_ring;
mod direct;
mod file;
mod layout;
mod namespace;
mod passthrough;
mod probe;
mod queue;
mod target;
mod uri;
mod zeroing;

pub(crate) use file::KernelFile;
pub(crate) use queue::UringQueue;
pub(crate) use uri::SCHEME;
pub use uri::{Buffered, KernelUri};
