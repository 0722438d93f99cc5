//! Who looks, who sleeps, who is told: the few hand-overs between threads, each half in the host and half in the
//! device or in another thread of the host, each with its loom model and a broken twin that the model must catch.
#![forbid(unsafe_code)]

mod bell;
pub mod sync;

pub use bell::Bell;
