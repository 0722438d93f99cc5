//! `reap sim`: scenarios in virtual time.
//!
//! [`scenario`] runs a file's scenario under several modes and makes of it the rows that `compare` prints too; [`replay`] makes a scenario of a recording; [`pool`] spreads runs over the cores. What is simulated is the crate `sim`'s.

mod files;
mod pool;
mod replay;
mod scenario;

pub use scenario::run as sim;
