//! *When* to look at a completion queue. Pure: no clock, no thread, and nothing of NVMe.
//!
//! A [`Policy`] answers for one queue, a [`Group`] for the queues of one thread. Whoever executes the answers, the
//! engine of `reap` or the simulator, is told only what was seen. **Policies cannot arm**: they plan a
//! [`Plan::Sleep`], and the executor alone turns that into arm, fence, look, block.
#![forbid(unsafe_code)]

mod seen;

pub use seen::{Batch, Cause, Check, Done, Found, Plan, Seen, Woke};
