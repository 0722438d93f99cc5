//! What each fuzz target does with its bytes. A target panics if a law of what it drives is broken:
//! that is a crash, and its input is kept.
#![forbid(unsafe_code)]

mod bus;
mod source;

pub mod failover;
pub mod hostile_device;
pub mod hostile_host;
pub mod jobs;
pub mod orders;
pub mod pages;
pub mod profiles;
pub mod prp;
pub mod scenarios;
pub mod scripts;
pub mod sgl;
pub mod tcp_initiator;
pub mod tcp_pdus;
pub mod tcp_target;
pub mod uris;
pub mod verify;
pub mod vfio_user;
pub mod vfio_user_client;
