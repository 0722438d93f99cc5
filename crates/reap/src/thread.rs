//! One thread: how it polls, spins, naps and sleeps.
//!
//! | what | file |
//! | --- | --- |
//! | one thread's queue on one controller | `queue_pair.rs`, over a transport: of a file `transport/kernel/queue.rs`, else `ring_queue.rs`; which one it is: `path_queue.rs` |
//! | several queues of one thread | `event_loop.rs`; what a sleep costs here: `sleep_cost.rs` |
//! | one notification for several vectors in `posted` | `posting.rs` |
//! | whether other threads want its CPU | `contention.rs` |
//! | the thread that reaps in `threaded` | `drain_thread.rs` |
//! | futures | `block_on.rs` |

pub(crate) mod block_on;
mod contention;
mod drain_thread;
pub(crate) mod event_loop;
pub(crate) mod path_queue;
mod posting;
pub(crate) mod queue_pair;
pub(crate) mod ring_queue;
pub(crate) mod sleep_cost;
