//! What the threads of a device share.
//!
//! | question | file |
//! | --- | --- |
//! | which requests are open, and who has their buffers? | `requests.rs` |
//! | what may other threads touch of a queue? | `queue_shared.rs` |
//! | what do futures wait on? | `future_states.rs`, `future.rs` |
//! | what do the threads of one hardware queue share? | `hw_queue.rs`, `drain.rs` |
//! | how does a thread reach the controller task? | `control.rs`, `reports.rs` |
//! | what is an open controller? which queues has it? | `controller.rs`, `queue_table.rs` |
//! | events of the device | `events.rs` |
//! | which states have the paths of a multipath device? | `path_states.rs` |

pub(crate) mod control;
pub(crate) mod controller;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod future;
pub(crate) mod future_states;
pub(crate) mod hw_queue;
pub(crate) mod path_states;
pub(crate) mod queue_shared;
pub(crate) mod queue_table;
pub(crate) mod reports;
pub(crate) mod requests;
