//! What one thread does with its queues: submit, poll, spin, nap and sleep. Policies (crate
//! `completion`) decide when; this module carries it out. State that threads share is in `shared`.
//!
//! | what | file |
//! | --- | --- |
//! | one thread's queue on one controller, over any transport | `queue_pair.rs` |
//! | the transport of controllers; that of files is `transport/kernel/queue.rs` | `ring_queue.rs` |
//! | which of the two transports a queue has | `path_queue.rs` |
//! | several queues of one thread | `event_loop.rs` |
//! | measuring the cost of a sleep | `sleep_cost.rs` |
//! | one notification for several vectors (`posted`) | `posted_msi.rs` |
//! | whether other threads want this CPU | `contention.rs` |
//! | the thread that reaps in `threaded` | `drain_thread.rs` |
//! | `block_on` | `block_on.rs` |

pub(crate) mod block_on;
mod contention;
mod drain_thread;
pub(crate) mod event_loop;
pub(crate) mod path_queue;
mod posted_msi;
pub(crate) mod queue_pair;
pub(crate) mod ring_queue;
pub(crate) mod sleep_cost;
