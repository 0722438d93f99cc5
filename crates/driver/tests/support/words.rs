//! Shadow doorbells in plain memory, for this crate's tests.

use std::convert::Infallible;
use std::sync::Arc;

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::shadow::{self, ShadowDoorbell, ShadowDoorbells};

/// Doorbells, each with its EventIdx.
#[derive(Clone, Debug)]
pub struct Pages(Arc<[[AtomicU32; 2]]>);

impl Pages {
    /// For this number of queues, including the admin queue.
    pub fn new(queues: usize) -> Pages {
        Pages((0..2 * queues).map(|_| std::array::from_fn(|_| AtomicU32::new(0))).collect())
    }

    pub fn value(&self, n: usize) -> u32 {
        self.0[n][0].load(Acquire)
    }

    /// The controller is about to sleep. Returns the doorbell's value.
    pub fn arm(&self, n: usize, seen: u32) -> u32 {
        let Ok(now) = shadow::arm(&Words(&self.0[n]), seen);
        now
    }
}

impl ShadowDoorbells for Pages {
    type Doorbell<'a> = Words<'a>;

    fn doorbell(&self, n: usize) -> Option<Words<'_>> {
        self.0.get(n).map(Words)
    }
}

/// One of them.
#[derive(Debug)]
pub struct Words<'a>(&'a [AtomicU32; 2]);

impl ShadowDoorbell for Words<'_> {
    type Fault = Infallible;

    fn value(&self) -> Result<u32, Infallible> {
        Ok(self.0[0].load(Acquire))
    }

    fn set_value(&self, value: u32) -> Result<(), Infallible> {
        self.0[0].store(value, Release);
        Ok(())
    }

    fn event(&self) -> Result<u32, Infallible> {
        Ok(self.0[1].load(Relaxed))
    }

    fn set_event(&self, value: u32) -> Result<(), Infallible> {
        self.0[1].store(value, Relaxed);
        Ok(())
    }
}
