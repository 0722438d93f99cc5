//! What runs on a CPU: the threads of jobs, and the parties that take completions for them. Each has its effect at once and says
//! how long the CPU is busy with it; whatever happens in that time (entries posted, interrupts, a switch of mode) meets
//! it before its next step. So a step is as small as what another party may come between: arming, the look after it,
//! and blocking are three.

pub(crate) mod application;
pub(crate) mod drain;
pub(crate) mod draining;
pub(crate) mod ground;
pub(crate) mod head;
pub(crate) mod lane;
pub(crate) mod paths;
pub(crate) mod thread;

pub(crate) use ground::{Context, Effect, Ground, Owner, Progress};
