//! Interrupt vectors: coalescing, masking, Pending bits.
//!
//! Without coalescing one message is attempted per entry. With it, entries are counted per vector
//! and one message announces several, by feature 08h or by a profile's unreported rules
//! ([`Hidden`]).
//!
//! A message to a masked vector sets the vector's Pending bit and is sent when the host unmasks it
//! (PCI Express Base, "Per-vector Masking and Function Masking"); [`PendingBit`] selects what
//! clears the bit before that.

use nvme::Vector;
use nvme::features::{InterruptCoalescing, VectorConfig};
use units::Nanos;

use crate::schedule::Bucket;
use crate::{Config, FaultInjector, Hidden, PendingBit, Port, SendResult};

/// Depth of the message bucket of [`Hidden::messages_per_s`].
const MESSAGE_BURST: u32 = 4;

/// State of one vector.
#[derive(Debug)]
struct VectorState {
    /// Feature 09h CD: coalescing by feature 08h is disabled.
    exempt: bool,
    /// Coalescing applies under the current settings.
    held: bool,
    /// Messages are not sent directly: they are coalesced, or faults may be injected.
    indirect: bool,
    /// Entries posted since the last message.
    since: u32,
    /// Time of the first entry that no message has announced; valid while [`VectorState::unseen`]
    /// is not 0.
    first: Nanos,
    /// Counts since the queues were created: entries posted, announced by messages, consumed by the
    /// host (only tracked with hidden rules), and charged to the bucket.
    posted: u64,
    announced: u64,
    taken: u64,
    charged: u64,
    /// A message was sent and the host has consumed no entry since: the host is about to reap.
    on_its_way: bool,
    /// The Pending bit.
    pending: bool,
    bucket: Option<Bucket>,
}

impl VectorState {
    /// Entries that were neither announced by a message nor consumed.
    fn unseen(&self) -> u64 {
        self.posted - self.announced.max(self.taken)
    }
}

/// All vectors of a controller.
#[derive(Debug)]
pub(crate) struct Interrupts {
    lines: Vec<VectorState>,
    coalescing: InterruptCoalescing,
    hidden: Hidden,
    /// Limit on the messages of the whole controller.
    ceiling: Option<Bucket>,
    keeps: PendingBit,
    faults: Option<FaultInjector>,
    /// Vectors with a Pending bit, in any order.
    pending: Vec<Vector>,
    /// Time of the earliest coalesced message; [`Nanos::MAX`]: none.
    next: Nanos,
    /// Messages attempted, and messages sent.
    pub(crate) attempted: u64,
    pub(crate) sent: u64,
}

impl Interrupts {
    pub(crate) fn new(config: &Config) -> Interrupts {
        let (vectors, hidden) = (config.vectors, config.profile.hidden);
        let bucket = (hidden.announced_per_s > 0)
            .then(|| Bucket::new(hidden.announced_per_s, hidden.announced_burst));
        let line = || VectorState {
            exempt: false,
            held: false,
            indirect: false,
            since: 0,
            first: Nanos::ZERO,
            posted: 0,
            announced: 0,
            taken: 0,
            charged: 0,
            on_its_way: false,
            pending: false,
            bucket,
        };
        let mut interrupts = Interrupts {
            lines: std::iter::repeat_with(line).take(usize::from(vectors)).collect(),
            coalescing: InterruptCoalescing::new(),
            hidden,
            ceiling: (hidden.messages_per_s > 0)
                .then(|| Bucket::new(hidden.messages_per_s, MESSAGE_BURST)),
            keeps: config.pending,
            faults: config.faults.clone(),
            pending: Vec::with_capacity(vectors.into()),
            next: Nanos::MAX,
            attempted: 0,
            sent: 0,
        };
        interrupts.apply();
        interrupts
    }

    /// Whether the vector exists.
    pub(crate) fn has(&self, vector: Vector) -> bool {
        usize::from(vector.0) < self.lines.len()
    }

    /// Whether the host can set features 08h and 09h, which is not so with hidden coalescing.
    pub(crate) fn is_changeable(&self) -> bool {
        !self.hidden.is_on()
    }

    /// Whether coalescing depends on consumed entries, so that head doorbells have to be read.
    #[inline]
    pub(crate) fn watches_host(&self) -> bool {
        self.hidden.announced_per_s > 0
    }

    /// Injects these faults into messages.
    pub(crate) fn inject(&mut self, faults: FaultInjector) {
        self.faults = Some(faults);
        self.apply();
    }

    /// Sets feature 08h.
    pub(crate) fn set_coalescing(&mut self, value: InterruptCoalescing) {
        self.coalescing = value;
        self.apply();
    }

    /// Sets feature 09h. Returns false if the vector does not exist.
    pub(crate) fn set_vector(&mut self, value: VectorConfig) -> bool {
        let Some(line) = self.lines.get_mut(usize::from(value.iv())) else { return false };
        line.exempt = value.cd();
        self.apply();
        true
    }

    /// Reads feature 09h; `None`: the vector does not exist.
    pub(crate) fn vector(&self, vector: u16) -> Option<VectorConfig> {
        let line = self.lines.get(usize::from(vector))?;
        Some(VectorConfig::new().with_iv(vector).with_cd(line.exempt))
    }

    fn apply(&mut self) {
        let (hidden, visible) = (self.hidden.is_on(), self.coalescing.is_on());
        for line in &mut self.lines {
            line.held = hidden || visible && !line.exempt;
            // The direct path does not consult the fault plan.
            line.indirect = line.held || self.faults.is_some();
        }
        // Re-evaluate coalesced messages under the new settings at the next step.
        self.next = Nanos::ZERO;
    }

    /// Controller reset: clears coalesced messages, Pending bits and feature 09h. The completion
    /// queues are gone.
    pub(crate) fn reset(&mut self, port: &impl Port) {
        // The entries that the messages would announce are gone.
        while let Some(vector) = self.pending.pop() {
            port.clear_pending(vector);
        }
        for line in &mut self.lines {
            (line.since, line.posted, line.announced, line.taken, line.charged) = (0, 0, 0, 0, 0);
            (line.exempt, line.on_its_way, line.pending) = (false, false, false);
        }
        self.next = Nanos::MAX;
    }

    /// Handles `n` new entries of an I/O completion queue with this vector; `None`: no interrupts.
    #[inline]
    pub(crate) fn posted(&mut self, now: Nanos, vector: Option<Vector>, n: u32, port: &impl Port) {
        let Some(vector) = vector else { return };
        let indirect = self.lines.get(usize::from(vector.0)).is_some_and(|line| line.indirect);
        for _ in 0..n {
            if indirect {
                self.hold(now, vector, port);
            } else {
                self.attempted += 1;
                let message = port.send_message(vector);
                self.note(vector, message, port);
            }
        }
    }

    /// Sends a message now: a coalesced one, or the admin queue's, which is never coalesced (Base
    /// 5.1.25.2.2).
    pub(crate) fn message(&mut self, vector: Vector, port: &impl Port) {
        self.attempted += 1;
        let message = match &self.faults {
            None => port.send_message(vector),
            Some(faults) => faults.message(vector, port, false),
        };
        self.note(vector, message, port);
    }

    /// Handles the result of sending a message.
    #[inline]
    fn note(&mut self, vector: Vector, message: SendResult, port: &impl Port) {
        match message {
            SendResult::Sent => self.sent += 1,
            SendResult::Masked if self.keeps == PendingBit::Absent => port.clear_pending(vector),
            SendResult::Masked => self.set_pending(vector),
            // Fault injection has dropped the message, or sends it later.
            SendResult::Lost => {}
        }
    }

    fn set_pending(&mut self, vector: Vector) {
        if let Some(line) = self.lines.get_mut(usize::from(vector.0)).filter(|line| !line.pending) {
            line.pending = true;
            self.pending.push(vector);
        }
    }

    /// Whether any Pending bit is set.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Handles Pending bits of unmasked vectors: sends the message, or clears the bit if the
    /// interrupt condition is satisfied. Returns whether there were any.
    pub(crate) fn send_pending(
        &mut self,
        port: &impl Port,
        mut is_satisfied: impl FnMut(Vector) -> bool,
    ) -> bool {
        let mut any = false;
        // The loop goes backwards, because swap_remove moves the last element to `n`.
        for n in (0..self.pending.len()).rev() {
            let Some(&vector) = self.pending.get(n).filter(|&&vector| !port.is_masked(vector))
            else {
                continue;
            };
            any = true;
            self.pending.swap_remove(n);
            if let Some(line) = self.lines.get_mut(usize::from(vector.0)) {
                line.pending = false;
            }
            if self.keeps == PendingBit::Cleared && is_satisfied(vector) {
                port.clear_pending(vector);
            } else {
                let message = match &self.faults {
                    None => port.send_pending(vector),
                    Some(faults) => faults.message(vector, port, true),
                };
                self.note(vector, message, port);
            }
        }
        any
    }

    fn hold(&mut self, now: Nanos, vector: Vector, port: &impl Port) {
        let Some(line) = self.lines.get_mut(usize::from(vector.0)) else { return };
        if line.unseen() == 0 {
            line.first = now;
        }
        line.since = line.since.saturating_add(1);
        line.posted += 1;
        if line.on_its_way {
            // The host will reap this entry together with those that the last message announced.
            line.charged = line.posted;
            if let Some(bucket) = &mut line.bucket {
                bucket.take(now, 1);
            }
        }
        self.send_if_due(now, vector, port);
    }

    /// Records that the host has consumed `n` entries of a completion queue with this vector.
    pub(crate) fn taken(&mut self, vector: Vector, n: u32) {
        if let Some(line) = self.lines.get_mut(usize::from(vector.0)) {
            line.taken = (line.taken + u64::from(n)).min(line.posted);
            line.on_its_way = false;
        }
    }

    /// Time at which the vector's message may be sent; `None`: no entries to announce.
    fn due(&self, line: &VectorState) -> Option<Nanos> {
        // Coalescing was switched off, or only faults apply: one message per entry, without delay.
        if !line.held && line.posted > line.announced {
            return Some(Nanos::ZERO);
        }
        if line.unseen() == 0 {
            return None;
        }
        let (entries, time) = match self.hidden.is_on() {
            true => (self.hidden.entries, self.hidden.time),
            false => (
                self.coalescing.threshold(),
                Nanos::from_micros(u64::from(self.coalescing.time()) * 100),
            ),
        };
        // The message is sent when the threshold or the aggregation time is reached, and both token
        // buckets allow it.
        let gathered = if line.since >= entries { Nanos::ZERO } else { line.first + time };
        let paid = line.bucket.map_or(Nanos::ZERO, |b| b.ready());
        let allowed = self.ceiling.map_or(Nanos::ZERO, |b| b.ready());
        Some(gathered.max(paid).max(allowed))
    }

    fn send_if_due(&mut self, now: Nanos, vector: Vector, port: &impl Port) {
        let Some(line) = self.lines.get(usize::from(vector.0)) else { return };
        match self.due(line) {
            None => return,
            Some(due) if due > now => {
                // Not due yet: let the owner sleep until then.
                self.next = self.next.min(due);
                return;
            }
            Some(_) => {}
        }
        let Some(line) = self.lines.get_mut(usize::from(vector.0)) else { return };
        // Entries that the host has reaped by polling take no tokens.
        let unpaid = line.posted - line.charged.max(line.taken);
        if let Some(bucket) = line.bucket.as_mut().filter(|_| unpaid > 0) {
            bucket.take(now, unpaid);
        }
        (line.since, line.announced, line.charged, line.on_its_way) =
            (0, line.posted, line.posted, true);
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.take(now, 1);
        }
        self.message(vector, port);
    }

    /// Sends the coalesced messages that are due. Returns whether there were any.
    pub(crate) fn tick(&mut self, now: Nanos, port: &impl Port) -> bool {
        if now < self.next {
            return false;
        }
        self.next = Nanos::MAX;
        let before = self.attempted;
        for n in 0..self.lines.len() {
            self.send_if_due(now, Vector(n as u16), port);
        }
        self.attempted != before
    }

    /// Time of the next coalesced message.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }
}

#[cfg(test)]
mod tests;
