//! What the threads of a device share.
//!
//! | question | file |
//! | --- | --- |
//! | which requests are open, and who has their buffers? | `book.rs` |
//! | what may other threads touch of a queue? | `queue_shared.rs` |
//! | what do futures wait on? | `tickets.rs`, `future.rs` |
//! | what do the threads of one hardware queue share? | `hw_queue.rs`, `drain.rs` |
//! | how is the thread reached that looks after the controller? | `control.rs`, `reports.rs` |
//! | what is an open controller? which queues has it? | `controller.rs`, `roster.rs` |
//! | events of the device | `events.rs` |
//! | who is told of a path that comes or goes? | `board.rs` |

pub(crate) mod board;
pub(crate) mod book;
pub(crate) mod control;
pub(crate) mod controller;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod future;
pub(crate) mod hw_queue;
pub(crate) mod queue_shared;
pub(crate) mod reports;
pub(crate) mod roster;
pub(crate) mod tickets;
