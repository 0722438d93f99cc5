//! One thread: how it polls, spins, naps and sleeps.
//!
//! | what | file |
//! | --- | --- |
//! | one thread's queue on one controller | `queue_pair.rs`, over a transport: of a file `link/kernel/queue.rs`, else `ring_queue.rs`; which one it is: `path_queue.rs` |
//! | several queues of one thread | `engine.rs`; what a sleep costs here: `cycle.rs` |
//! | one notification for several vectors in `posted` | `posting.rs` |
//! | whether other threads want its CPU | `contention.rs` |
//! | the thread that reaps in `threaded` | `draining.rs` |
//! | futures | `executor.rs` |

mod contention;
pub(crate) mod cycle;
mod draining;
pub(crate) mod engine;
pub(crate) mod executor;
pub(crate) mod path_queue;
mod posting;
pub(crate) mod queue_pair;
pub(crate) mod ring_queue;
