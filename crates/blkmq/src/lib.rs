//! *Where* a request goes: by which path, to which hardware queue, under which tag, in how many parts. Pure, and named
//! after the block layer that the words come from (blk-mq).
#![warn(missing_docs, unnameable_types, missing_debug_implementations)]
#![cfg_attr(not(test), warn(unreachable_pub))]
#![forbid(unsafe_code)]

mod map;
pub mod paths;
mod split;
mod tags;

pub use map::{MapError, QueueMap};
pub use split::{Part, Parts, Split, SplitError, Splitter};
pub use tags::{ReturnBatch, Returner, Tag, Tags, Taker};
