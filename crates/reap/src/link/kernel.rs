//! The kernel's files, block devices and NVMe namespaces as a device, through io_uring.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI say? | `uri.rs` |
//! | what is opened, and what is known of it? | `target.rs`; what does an NVMe controller say? `namespace.rs` |
//! | may it be opened for writing, and who holds it? | `hold.rs` |
//! | what does the system say of the disk? | `hw::block` |
//! | how is I/O aligned, and does it pass the page cache? | `direct.rs` |
//! | how does a new file come about? | `layout.rs` |
//! | what do the queues of one share? | `link.rs` |
//! | how does one queue post and take? | `lane.rs` |
//! | which rings does the kernel poll, or submit by itself? | `lane/kinds.rs` |
//! | what is out on a ring, and what does an answer mean? | `lane/state.rs` |
//! | what is one request to the kernel? | `command.rs`; as an NVMe command that passes through: `passthrough.rs` |
//! | does the kernel pass commands through at all? | `trial.rs` |
//! | how are blocks zeroed, and given back? | `ways.rs` |
//! | which memory does a ring know already? | `buffers.rs` |

mod buffers;
mod command;
mod direct;
mod lane;
mod layout;
mod link;
mod namespace;
mod passthrough;
mod target;
mod trial;
mod uri;
mod ways;

pub(crate) use lane::{UringLane, UringPosting};
pub(crate) use link::KernelLink;
pub(crate) use uri::SCHEME;
pub use uri::{Buffered, KernelUri};
