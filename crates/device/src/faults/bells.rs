//! Doorbell writes on their way: the controller sees each some time after the host has written it.

use std::collections::VecDeque;

use nvme::QueueId;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use units::Nanos;

/// Which doorbell: a queue's, and whether it is the completion queue's.
pub(super) type Doorbell = (QueueId, bool);

/// Every doorbell's writes, each with an instant of its own at which it arrives. Writes to one doorbell arrive in order, because they
/// are posted writes to one address. Those to different doorbells arrive in any order.
#[derive(Debug)]
pub(super) struct LateBells {
    /// How late a write may be at most. Zero: none is late.
    most: Nanos,
    dice: Xoshiro256PlusPlus,
    /// By queue: tail and head. `None`: not looked at yet.
    ways: Vec<[Option<Way>; 2]>,
}

/// The way of one doorbell's writes.
#[derive(Clone, Debug)]
struct Way {
    /// What has arrived last, and what was written last.
    arrived: u32,
    written: u32,
    /// Writes on their way, in order.
    coming: VecDeque<(Nanos, u32)>,
}

impl Way {
    fn at_rest(value: u32) -> Way {
        Way { arrived: value, written: value, coming: VecDeque::new() }
    }
}

impl LateBells {
    pub(super) fn new((most, seed): (Nanos, u64)) -> LateBells {
        LateBells { most, dice: Xoshiro256PlusPlus::seed_from_u64(seed), ways: Vec::new() }
    }

    /// Whether any write can be late.
    pub(super) fn is_on(&self) -> bool {
        self.most > Nanos::ZERO
    }

    /// What the controller sees at `now` of a doorbell that the host has set to `written`.
    pub(super) fn see(&mut self, doorbell: Doorbell, written: u32, now: Nanos) -> u32 {
        if !self.is_on() {
            return written;
        }
        // From none to the most: of 64 random bits the share of that range.
        let late = Nanos((((u128::from(self.most.0) + 1) * u128::from(self.dice.next_u64())) >> 64) as u64);
        // What was written before anybody looked has arrived.
        let way = self.way(doorbell).get_or_insert_with(|| Way::at_rest(written));
        if way.written != written {
            way.written = written;
            let behind = way.coming.back().map_or(Nanos::ZERO, |&(at, _)| at);
            way.coming.push_back((behind.max(now + late), written));
        }
        while let Some((_, value)) = way.coming.pop_front_if(|(at, _)| *at <= now) {
            way.arrived = value;
        }
        way.arrived
    }

    /// The controller sets a doorbell itself, for a queue that begins: what is on its way belongs to an earlier one.
    pub(super) fn set(&mut self, doorbell: Doorbell, value: u32) {
        if self.is_on() {
            *self.way(doorbell) = Some(Way::at_rest(value));
        }
    }

    /// When the next write arrives that has not arrived by `now`. One that has, at a doorbell that nobody looks at, is no event.
    pub(super) fn next(&self, now: Nanos) -> Option<Nanos> {
        let coming = self.ways.iter().flatten().flatten().flat_map(|way| &way.coming);
        coming.map(|&(at, _)| at).filter(|&at| at > now).min()
    }

    fn way(&mut self, (queue, completion): Doorbell) -> &mut Option<Way> {
        let n = usize::from(queue.0);
        if self.ways.len() <= n {
            self.ways.resize(n + 1, Default::default());
        }
        &mut self.ways[n][usize::from(completion)]
    }
}
