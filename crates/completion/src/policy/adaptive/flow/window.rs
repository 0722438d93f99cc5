//! How much may be found late: a window, as TCP has one for what a network carries.

use super::trial::{Noise, Shown};
use crate::policy::adaptive::forecast::{MEMORY, STRETCH, UNSEEN};

/// A device that does so much of what it does where none is found late is as quick.
const AS_QUICK: f32 = 1.0 - UNSEEN;

/// Which part of what is in flight may be found late, as a window is found in TCP: twice as much each time, until the device does less for it;
/// then as much as before, and slowly more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) part: f32,
    /// It has once been too large; and stretches until a larger one is tried.
    met: bool,
    pause: u32,
    /// By what it is divided if it is too large.
    grew: f32,
    /// Stretches in this window, and their rate as a share of what the device does.
    stretches: u32,
    share: f32,
    noise: Noise,
}

impl Window {
    pub(super) fn new() -> Window {
        Window { part: UNSEEN * STRETCH as f32, met: false, pause: 0, grew: 2.0, stretches: 0, share: 0.0, noise: Noise::UNKNOWN }
    }

    /// A stretch is over, at this rate of a device that did `full` where none was found late, as far as is known.
    pub(super) fn judge(&mut self, rate: f32, full: &Shown) {
        self.noise.see(rate);
        if !full.is_known() {
            return;
        }
        self.stretches = (self.stretches + 1).min(MEMORY);
        self.share += (rate / full.rate - self.share) / self.stretches as f32;
        self.pause = self.pause.saturating_sub(1);
        let error = self.noise.between(self.stretches, full.stretches);
        if self.share + error < AS_QUICK {
            // What is tried in vain costs a small part of the whole.
            self.pause = ((1.0 - self.share) * (MEMORY * STRETCH) as f32) as u32;
            self.met = true;
            let grew = std::mem::replace(&mut self.grew, 2.0);
            self.moves(1.0 / grew);
        } else if self.share - error >= AS_QUICK && self.pause == 0 && self.part < 1.0 {
            self.grew = if self.met { 1.0 + 1.0 / STRETCH as f32 } else { 2.0 };
            self.moves(self.grew);
        }
    }

    fn moves(&mut self, times: f32) {
        (self.part, self.stretches) = ((self.part * times).clamp(UNSEEN, 1.0), 0);
        self.noise.begins_anew();
    }
}
