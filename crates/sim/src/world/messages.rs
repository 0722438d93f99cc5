//! Messages of devices: sent, on their way, and arrived at a CPU or at the thread that sleeps on them.

use super::*;
use crate::irq::Irq;
use crate::path::Message;

/// In place of a device: the notification of posted interrupts, whose CPU stands in place of the vector.
const NOTIFICATION: u32 = u32::MAX;

impl World<'_> {
    /// A controller has raised these vectors: their messages set out, and what it writes behind them waits as it has to.
    #[inline]
    pub(super) fn send_messages(&mut self, n: usize) {
        if !self.raised.is_empty() {
            self.send_all(n);
        }
        if let Some(&(first, ..)) = self.messages.front() {
            self.calendar.set_by(self.sources.messages, first);
        }
    }

    fn send_all(&mut self, n: usize) {
        let tells = self.scenario.tells(n);
        let mut raised = std::mem::take(&mut self.raised);
        for vector in raised.drain(..).filter(|&vector| vector != ADMIN_VECTOR) {
            let now = self.now;
            let (busy, arrives) = if tells {
                (self.telling_cost(n, usize::from(vector.0)), now)
            } else {
                (Nanos::ZERO, now + self.scenario.machine.costs.interrupt.message_delay)
            };
            let (shared, arrives) = if tells { (now, arrives) } else { self.send_by_way(n, usize::from(vector.0), arrives) };
            let free_at = (self.devices[n].way_free_at.max(now) + busy).max(shared);
            self.devices[n].way_free_at = free_at;
            // A signal takes effect when most of its system call is over.
            let arrives = if tells { free_at } else { arrives };
            self.fly(arrives, n as u32, vector);
        }
        self.raised = raised;
    }

    /// When the shared way, if there is one, has taken a message, so that the device's writes go on, and when it arrives; `arrives`: with
    /// nobody in between.
    fn send_by_way(&mut self, n: usize, vector: usize, arrives: Nanos) -> (Nanos, Nanos) {
        let Some(way) = &mut self.way else { return (self.now, arrives) };
        let machine = &self.scenario.machine;
        let Some(route) = self.devices[n].routes.get(vector) else { return (self.now, arrives) };
        let posted = self.scenario.posts(self.mode);
        let (from, to) = (self.scenario.devices[n].node, machine.node_of(route.cpu));
        // Vectors of all devices: a controller has at most 2048.
        let entry = (n as u32) << 11 | vector as u32;
        let sent = way.send(self.now, Message { entry, from, to, posted });
        // The unit itself sets the bits.
        let delay = if posted { Nanos::ZERO } else { machine.costs.interrupt.message_delay };
        (sent.accepted, sent.arrives + delay)
    }

    /// The shared way has set a bit of a CPU's descriptor: if that asks for it, a notification follows, behind which the device's writes wait.
    fn post_by_way(&mut self, n: usize, vector: usize) {
        let Some(route) = self.devices[n].routes.get(vector) else { return };
        let cpu = route.cpu;
        if !self.cpus[cpu].descriptor.post(route.bit) {
            return;
        }
        let machine = &self.scenario.machine;
        let (from, to) = (self.scenario.devices[n].node, machine.node_of(cpu));
        let Some(sent) = self.way.as_mut().map(|way| way.notify(self.now, from, to)) else { return };
        self.devices[n].way_free_at = self.devices[n].way_free_at.max(sent.accepted);
        self.fly(sent.arrives + machine.costs.interrupt.message_delay, NOTIFICATION, Vector(cpu as u16));
    }

    fn fly(&mut self, arrives: Nanos, device: u32, vector: Vector) {
        let place = self.messages.partition_point(|(at, ..)| *at <= arrives);
        self.messages.insert(place, (arrives, device, vector));
    }

    /// Messages whose time has come.
    pub(super) fn messages_arrive(&mut self) {
        while let Some((_, device, vector)) = self.messages.pop_front_if(|(at, ..)| *at <= self.now) {
            let (device, vector) = (device as usize, usize::from(vector.0));
            if device == NOTIFICATION as usize {
                self.interrupt(vector, Irq::Posted);
            } else if self.scenario.tells(device) {
                let more = self.tell(device, vector);
                let free_at = self.devices[device].way_free_at.max(self.now) + more;
                self.devices[device].way_free_at = free_at;
            } else if self.way.is_some() && self.scenario.posts(self.mode) {
                self.post_by_way(device, vector);
            } else {
                self.message(device, vector);
            }
        }
        if let Some(&(first, ..)) = self.messages.front() {
            self.calendar.set(self.sources.messages, first);
        }
    }
}
