//! One thread: how it looks, spins, naps and sleeps.
//!
//! | question | file |
//! | --- | --- |
//! | what does one thread have of one controller? | `path_queue.rs`: of a file `queue_pair.rs`, else `soft_queue.rs`, and `soft_queue/foreign.rs` for event loops of its own |
//! | how does it look? | `looker.rs`; when it waits, and in which order: `completion::Waiter`, upon `vector.rs` |
//! | where does it sleep? | `engine.rs`, and nowhere else; what a sleep costs here: `cycle.rs` |
//! | what is one notification in `posted`? | `posting.rs` |
//! | do others want its CPU? | `contention.rs` |
//! | who drains in `threaded`? | `draining.rs` |
//! | how does it run a future? | `executor.rs` |

mod contention;
pub(crate) mod cycle;
mod draining;
pub(crate) mod engine;
pub(crate) mod executor;
mod looker;
pub(crate) mod path_queue;
mod posting;
pub(crate) mod queue_pair;
pub(crate) mod soft_queue;
mod vector;
