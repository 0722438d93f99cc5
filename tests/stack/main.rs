//! The whole stack on the emulated controller and on files: one program, so that it is linked once.
//! What every transport has to do is in `links/`; tests that count allocations, stop the device
//! threads or are run by a script are programs of their own.

mod admin_commands;
mod checks;
mod common;
mod data;
mod events;
mod faults;
mod file_locks;
#[path = "../shared/forked.rs"]
mod forked;
#[path = "../shared/happened.rs"]
mod happened;
mod io_commands;
#[allow(dead_code, reason = "what only tests/links uses")]
mod load;
mod modes;
mod multipath;
mod odd_controllers;
mod processes;
mod queues;
mod slow_properties;
mod submit_iterators;
mod uris;
mod vectored;
#[path = "../links/work.rs"]
#[allow(dead_code, reason = "what only tests/links uses")]
mod work;
mod write_back;
mod zeroes;
