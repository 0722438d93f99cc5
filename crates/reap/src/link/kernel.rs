//! The kernel's files and block devices as a device, through io_uring.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI say? | `uri.rs` |
//! | what is opened, and what is known of it? | `target.rs` |
//! | may it be opened for writing, and who holds it? | `hold.rs` |
//! | what does the system say of the disk? | `disk.rs` |
//! | how is I/O aligned, and does it pass the page cache? | `direct.rs` |
//! | how does a new file come about? | `layout.rs` |
//! | what do the queues of one share? | `link.rs` |
//! | how does one queue post and take? | `lane.rs` |
//! | what is one request to the kernel? | `command.rs` |
//! | how are blocks zeroed, and given back? | `ways.rs` |
//! | which memory does a ring know already? | `buffers.rs` |

mod buffers;
mod command;
mod direct;
mod disk;
mod hold;
mod lane;
mod layout;
mod link;
mod target;
mod uri;
mod ways;

pub(crate) use lane::{UringLane, UringPosting};
pub(crate) use link::KernelLink;
pub(crate) use uri::SCHEME;
pub use uri::{Buffered, KernelUri};
