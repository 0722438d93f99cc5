//! `reap sim`: scenarios in virtual time.
//!
//! [`scenario`] runs a file's scenario under several modes and makes of it the rows that `compare` prints too; [`replay`] puts the I/Os of fio's lists in place of its jobs; [`pool`] spreads runs over the cores. What is simulated is the crate `sim`'s.

mod pool;
mod replay;
mod scenario;

pub use scenario::run as sim;
