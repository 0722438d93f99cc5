//! One thread: how it looks, spins, naps and sleeps.
//!
//! | question | file |
//! | --- | --- |
//! | what does one thread have of one controller? | `soft_queue.rs`, and `soft_queue/foreign.rs` for event loops of its own |
//! | how does it look? | `looker.rs`; when it waits, and in which order: `completion::Waiter`, upon `vector.rs` |
//! | where does it sleep? | `engine.rs`, and nowhere else; what a sleep costs here: `cycle.rs` |
//! | what is one notification in `posted`? | `posting.rs` |
//! | who drains in `threaded`? | `draining.rs` |
//! | how does it run a future? | `executor.rs` |

pub(crate) mod cycle;
mod draining;
pub(crate) mod engine;
pub(crate) mod executor;
mod looker;
mod posting;
pub(crate) mod soft_queue;
mod vector;
