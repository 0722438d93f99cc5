//! The kernel's files and block devices as a device: what is known of one before its first request.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI say? | `uri.rs` |
//! | what is opened, and what is known of it? | `target.rs` |
//! | may it be opened for writing, and who holds it? | `hold.rs` |
//! | what does the system say of the disk? | `disk.rs` |
//! | how is I/O aligned, and does it pass the page cache? | `direct.rs` |
//! | how does a new file come about? | `layout.rs` |
#![allow(dead_code, unused_imports, reason = "the link that does I/O on a target takes it up")]

mod direct;
mod disk;
mod hold;
mod layout;
mod target;
mod uri;

pub(crate) use target::{Facts, Kind, Target};
pub(crate) use uri::SCHEME;
pub use uri::{Buffered, KernelUri};
