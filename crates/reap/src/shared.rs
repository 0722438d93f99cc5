//! State of a device that its threads share. What only a queue's own thread uses is in `thread`;
//! the controller's task is in `controller_task`.
//!
//! | what | file |
//! | --- | --- |
//! | a queue's open requests and their buffers | `requests.rs` |
//! | the part of a queue that other threads may use | `queue_shared.rs` |
//! | futures, and their results | `future.rs`, `future_states.rs` |
//! | a hardware queue, and its drain thread | `hw_queue.rs`, `drain.rs` |
//! | requests and reports to the controller task | `control.rs`, `reports.rs` |
//! | an open controller, and its queues | `controller.rs`, `queue_table.rs` |
//! | events of a device | `events.rs` |
//! | states of the paths of a multipath device | `path_states.rs` |

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
