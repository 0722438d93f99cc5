//! The kernel's files, block devices and NVMe namespaces as a device, through io_uring.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI say? | `uri.rs` |
//! | what is opened, and what is known of it? | `target.rs`; what does an NVMe controller say? `namespace.rs` |
//! | may it be opened for writing, and who holds it? | `transport/file_lock.rs` |
//! | what does the system say of the disk? | `hw::block` |
//! | how is I/O aligned, and does it pass the page cache? | `direct.rs` |
//! | how does a new file come about? | `layout.rs` |
//! | what do the queues of one share? | `file.rs` |
//! | which rings does a queue have? | `queue.rs` |
//! | how does one ring post, reap and sleep? | `command_ring.rs` |
//! | what is one request to the kernel? | `command.rs`; as an NVMe command that passes through: `passthrough.rs` |
//! | does the kernel pass commands through at all? | `probe.rs` |
//! | how are blocks zeroed, and given back? | `zeroing.rs` |
//! | which memory does a ring know already? | `buffers.rs` |

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
