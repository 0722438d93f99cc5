//! From what was measured to a price list, and which of its prices were not.

use std::fmt::Write;

use ::sim::Costs;
use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::Value;

use crate::rows::Estimate;
use crate::rows::fit::{self, wrap};

/// What was measured, in nanoseconds; `None`: it could not be.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Reading the clock.
    pub clock: Option<Estimate>,
    /// A system call that does nothing.
    pub syscall: Option<Estimate>,
    /// Signalling an eventfd on which nobody sleeps; and with a wait that returns at once.
    pub signal: Option<Estimate>,
    pub signal_and_return: Option<Estimate>,
    /// From one thread of a CPU to another by eventfd: half a round.
    pub switch: Option<Estimate>,
    /// A sleep of 50 µs by timer: CPU time, and how late it ended.
    pub nap: Option<(Estimate, Estimate)>,
    /// A sleep that the other CPU ends, and one that it ends at once.
    pub sleep: Option<Sleep>,
    pub short_sleep: Option<Sleep>,
    /// For how long a CPU without work stays awake.
    pub awake: Option<Estimate>,
    /// A CPU that a signal catches on its way to idle.
    pub caught: Option<Caught>,
    pub arm: Option<Estimate>,
    pub mask: Option<Estimate>,
    /// A cache line from one CPU to the other.
    pub line: Option<Estimate>,
    /// Of the library: submit, take, hand over; each per call and per I/O.
    pub library: Option<[Estimate; 6]>,
    /// An I/O whose message came before it was waited for.
    pub announced: Option<Estimate>,
    /// A command of 4 KiB, to the thread of an embedded device: served, and its data copied.
    pub serve: Option<Estimate>,
    /// Of io_uring: a call that submits, each entry, each completion, waiting in that call, waiting in one of its own, each completion
    /// as task work queued, a call that runs task work, each completion taken.
    pub ring: Option<[Estimate; 8]>,
}

/// A sleep that another CPU ends.
#[derive(Clone, Copy, Debug)]
pub struct Sleep {
    /// CPU time of the sleeper.
    pub cpu: Estimate,
    /// From the signal until it runs.
    pub delay: Estimate,
    /// What the signal costs its giver.
    pub signal: Estimate,
}

/// Signals that catch a CPU on its way to idle.
#[derive(Clone, Copy, Debug)]
pub struct Caught {
    /// How long the way is.
    pub within: Estimate,
    /// What it costs the sleeper more than another sleep.
    pub cpu: Estimate,
    /// From the signal until it runs.
    pub delay: Estimate,
    /// What the signal costs its giver.
    pub signal: Estimate,
}

/// One price.
#[derive(Clone, Debug)]
pub struct Price {
    group: String,
    name: String,
    ns: u64,
    /// How it was come by; `None`: not measured here, the figure that ships.
    how: Option<String>,
}

/// Prices that are differences of what was measured, and are nowhere 0: where the noise is greater than the difference, nothing was found.
const NEVER_FREE: [(&str, &str); 2] = [("thread", "idle_exit"), ("thread", "timer")];

/// What is wrong with a list in which something that costs time everywhere is free; `None`: nothing.
pub fn free(costs: &Costs) -> Option<String> {
    let prices = [costs.thread.idle_exit, costs.thread.timer];
    let free = NEVER_FREE.iter().zip(prices).filter(|(_, price)| price.0 == 0);
    let free: Vec<String> = free.map(|((group, name), _)| format!("{group}.{name}")).collect();
    (!free.is_empty()).then(|| format!("{} came out as 0. No machine has that: what was measured is noise", free.join(" and ")))
}

/// The list itself.
///
/// # Errors
/// It is no list that the simulator reads.
pub fn costs(prices: &[Price]) -> Result<Costs> {
    Ok(::sim::file::read_costs("the prices", &toml(prices, ""))?)
}

/// The whole list: what was measured, and for the rest the list for virtual machines that ships.
///
/// # Errors
/// Never, unless a price that is set here has no place in the list.
pub fn prices(found: &Found) -> Result<Vec<Price>> {
    let shipped = Costs::VIRTUAL;
    let mut prices = Vec::new();
    if let Value::Object(groups) = serde_json::to_value(shipped)? {
        for (group, list) in groups {
            for (name, ns) in list.as_object().into_iter().flatten() {
                prices.push(Price { group: group.clone(), name: name.clone(), ns: ns.as_u64().unwrap_or(0), how: None });
            }
        }
    }
    for (group, name, ns, how) in measured(found, &shipped) {
        let price = prices.iter_mut().find(|price| price.group == group && price.name == name);
        let price = price.with_context(|| format!("there is no price {group}.{name}"))?;
        (price.ns, price.how) = (ns.round().max(0.0) as u64, Some(how));
    }
    Ok(prices)
}

/// Group and name of a price, nanoseconds, and how it was come by.
type Measured = (&'static str, &'static str, f64, String);

/// What is a difference of what was measured says so, for it has the noise of both.
fn measured(found: &Found, shipped: &Costs) -> Vec<Measured> {
    let mut list = Derived { found, shipped, list: Vec::new() };
    let block = list.calls();
    list.sleeps(block);
    list.memory();
    list.library();
    list.ring();
    list.list
}

/// Prices as they are derived from what was measured.
struct Derived<'a> {
    found: &'a Found,
    /// What stands for what was not.
    shipped: &'a Costs,
    list: Vec<Measured>,
}

impl Derived<'_> {
    fn put(&mut self, group: &'static str, name: &'static str, ns: f64, how: impl Into<String>) {
        self.list.push((group, name, ns.max(0.0), how.into()));
    }

    /// What was measured by itself.
    fn direct(&mut self, group: &'static str, name: &'static str, estimate: Option<Estimate>) {
        if let Some(e) = estimate {
            self.put(group, name, e.value, directly(e));
        }
    }

    fn syscall(&self) -> f64 {
        self.found.syscall.map_or(self.shipped.thread.syscall.0 as f64, |e| e.value)
    }

    /// System calls that put nobody to sleep. What blocking costs beyond one is returned.
    fn calls(&mut self) -> f64 {
        let (found, syscall) = (self.found, self.syscall());
        self.direct("thread", "syscall", found.syscall);
        self.direct("thread", "signal", found.signal);
        let mut block = self.shipped.thread.block.0 as f64;
        if let (Some(signal), Some(both)) = (found.signal, found.signal_and_return) {
            block = (both.value - signal.value - syscall).max(0.0);
            self.put("thread", "block", block, format!("a wait that returns at once, {:.0}, less system call", both.value - signal.value));
        }
        // An I/O that is polled for, from its look on, and its submission.
        let polled = found.library.map(|parts| parts.iter().map(|part| part.value).sum::<f64>());
        if let (Some(announced), Some(polled)) = (found.announced, polled) {
            let how =
                format!("an I/O whose message waits, {:.0}, less one that is polled for, {polled:.0}, and system call", announced.value);
            self.put("thread", "ready", announced.value - polled - syscall, how);
        }
        block
    }

    /// Sleeps, and what ends them.
    fn sleeps(&mut self, block: f64) {
        let (found, syscall) = (self.found, self.syscall());
        let Some(Sleep { cpu, delay, signal: rouse }) = found.sleep else { return };
        self.direct("thread", "rouse", Some(rouse));
        // The simulated thread pays for what brings it back; the way to idle is nobody's. Between two threads of a CPU there is none: one
        // signals, the other is woken, and the first blocks.
        let back = (cpu.value - syscall - block).max(0.0);
        let of = |e: Option<Estimate>, shipped: units::Nanos| e.map_or(shipped.0 as f64, |e| e.value);
        let (signal, wake) = (of(found.signal, self.shipped.thread.signal), self.shipped.thread.wake.0 as f64);
        let switch = match found.switch {
            Some(half) => {
                let switch = (half.value - signal - wake - syscall - block).clamp(0.0, back);
                let how = format!("from thread to thread, {:.0}, less signal, wake, system call and block", half.value);
                self.put("thread", "switch", switch, how);
                switch
            }
            None => {
                self.put("thread", "switch", back, format!("CPU of a sleep, {:.0}, less system call and block", cpu.value));
                back
            }
        };
        let how = format!("CPU of a sleep, {:.0}, less system call, block and switch", cpu.value);
        self.put("thread", "from_idle", back - switch, how);
        if let Some(awake) = found.awake {
            let how = format!("a signal {:.0} after the call finds the CPU asleep, less system call and block", awake.value);
            self.put("thread", "idle_after", awake.value - syscall - block, how);
        }
        // The simulated signal takes effect when this is over.
        let effect = signal + 2.0 * of(found.line, self.shipped.memory.line_node);
        if let Some(Caught { within, cpu: more, delay, signal }) = found.caught {
            self.direct("thread", "caught_within", Some(within));
            self.direct("thread", "catch", Some(signal));
            self.direct("thread", "caught", Some(more));
            let exit = delay.value - back - more.value - effect;
            self.put(
                "thread",
                "caught_exit",
                exit,
                format!("delay of such a wake-up, {:.0}, less switch, from_idle, caught, and the signal", delay.value),
            );
        }
        let idle = (delay.value - back - effect).max(0.0);
        self.put("thread", "idle_exit", idle, format!("delay of a wake-up, {:.0}, less switch, from_idle and the signal", delay.value));
        if let Some((nap, late)) = found.nap {
            self.put("thread", "timer", nap.value - cpu.value, format!("CPU of a nap, {:.0}, less that of a sleep", nap.value));
            let i = &self.shipped.interrupt;
            let around = (i.entry + i.timer + i.end + i.exit).0 as f64;
            // Half of the timers are later by less than ln 2 of an exponential delay's mean.
            let jitter = self.shipped.thread.timer_jitter.0 as f64 * std::f64::consts::LN_2;
            let rest = (late.value - around - jitter - wake - back).max(0.0);
            let exit = rest.min(idle);
            let how = format!("a timer is {:.0} late, less interrupt, jitter, wake-up and the way back", late.value);
            self.put("thread", "timer_exit", exit, how);
            self.put("thread", "timer_slack", rest - exit, format!("a timer is {:.0} late, less those and the idle exit", late.value));
        }
    }

    fn memory(&mut self) {
        self.direct("memory", "line_node", self.found.line);
        self.direct("memory", "device_line", self.found.line);
        if let Some(e) = self.found.line {
            self.put("memory", "mmio_delay", e.value, "the doorbell of an embedded device is a cache line");
        }
    }

    /// What Reap itself costs.
    fn library(&mut self) {
        let found = self.found;
        if let Some([submit_call, submit, take_call, take, hand_call, hand]) = found.library {
            self.direct("library", "submit", Some(submit));
            self.put("memory", "mmio", submit_call.value, format!("doorbell and lock of a submission: {}", directly(submit_call)));
            self.direct("library", "entry", Some(take));
            let reap = take_call.value + hand_call.value - submit_call.value - self.shipped.library.decide.0 as f64;
            self.put("library", "reap", reap, format!("a wait that finds one, {:.0}, less its doorbell", take_call.value));
            self.direct("library", "deliver", Some(hand));
        }
        self.direct("library", "serve", found.serve);
        self.direct("library", "arm", found.arm);
        self.direct("library", "mask", found.mask);
    }
}

impl Derived<'_> {
    /// What io_uring costs.
    fn ring(&mut self) {
        let Some([call, submit, event, fused, wait, queue, run, take]) = self.found.ring else { return };
        let (syscall, less) = (self.syscall(), "less system call");
        let enter = (call.value - syscall).max(0.0);
        self.put("kernel", "enter", enter, format!("a call that submits, {:.0}, {less}", call.value));
        for (name, estimate) in [("submit", submit), ("event", event), ("fused", fused), ("queue", queue), ("take", take)] {
            self.direct("kernel", name, Some(estimate));
        }
        let calls = syscall + enter;
        self.put("kernel", "wait", wait.value - calls, format!("a wait that returns at once, {:.0}, {less} and enter", wait.value));
        self.put("kernel", "run", run.value - calls, format!("a call that runs task work, {:.0}, {less} and enter", run.value));
    }
}

fn directly(e: Estimate) -> String {
    let between = e.interval.map_or(String::new(), |[low, high]| format!(", {low:.0}–{high:.0}"));
    format!("measured{between}")
}

/// The price list as a file that scenarios can name.
pub fn toml(prices: &[Price], machine: &str) -> String {
    let mut text = format!("# Written by reap calibrate. Prices in nanoseconds.\n# {machine}\n");
    let mut group = "";
    for price in prices {
        if price.group != group {
            group = &price.group;
            _ = write!(text, "\n[{group}]\n");
        }
        let how = price.how.as_deref().unwrap_or(SHIPPED);
        _ = writeln!(text, "{} = {} # {how}", price.name, price.ns);
    }
    text
}

const SHIPPED: &str = "not measured here: the figure that ships";

/// For people: what was measured as such, and the prices.
pub fn table(found: &Found, prices: &[Price], machine: &str, width: u16) -> String {
    let mut measured = new(&["measured", "ns", "95 % interval"]);
    let pair = |p: Option<(Estimate, Estimate)>, second: bool| p.map(|(a, b)| if second { b } else { a });
    let sleep = |n: usize| found.sleep.map(|s| [s.cpu, s.delay, s.signal][n]);
    let short = |n: usize| found.short_sleep.map(|s| [s.cpu, s.delay][n]);
    let caught = |n: usize| found.caught.map(|c| [c.within, c.cpu, c.delay, c.signal][n]);
    let library = |n: usize| found.library.map(|figures| figures[n]);
    let ring = |n: usize| found.ring.map(|figures| figures[n]);
    let lines = [
        ("reading the clock", found.clock),
        ("a system call", found.syscall),
        ("signal on an eventfd, nobody asleep", found.signal),
        ("the same, and a wait that returns at once", found.signal_and_return),
        ("from thread to thread on one CPU, by eventfd", found.switch),
        ("a sleep that another CPU ends: CPU time (B)", sleep(0)),
        ("… delay until the thread runs (D)", sleep(1)),
        ("… cost to the thread that signals", sleep(2)),
        ("one that ends at once: CPU time", short(0)),
        ("… delay until the thread runs", short(1)),
        ("without work a CPU stays awake for at most", found.awake),
        ("for how long it can be caught on its way to idle", caught(0)),
        ("… CPU time of a sleep that ends so, more than B", caught(1)),
        ("… delay until the thread runs", caught(2)),
        ("… cost to the thread that signals", caught(3)),
        ("a nap of 50 µs: CPU time", pair(found.nap, false)),
        ("… how late it ends", pair(found.nap, true)),
        ("a cache line to the other CPU", found.line),
        ("arming a vector", found.arm),
        ("masking it", found.mask),
        ("submit: a call, doorbell included", library(0)),
        ("… each I/O", library(1)),
        ("look and take: a call", library(2)),
        ("… each entry", library(3)),
        ("hand over: a call", library(4)),
        ("… each completion", library(5)),
        ("an I/O, its message there before it is waited for", found.announced),
        ("an embedded device's thread: each command", found.serve),
        ("io_uring: a call that submits", ring(0)),
        ("… each entry that does nothing", ring(1)),
        ("… its completion", ring(2)),
        ("… waiting in that call, for what is there", ring(3)),
        ("… a call that only waits, for what is there", ring(4)),
        ("… a completion queued as task work", ring(5)),
        ("… a call that runs what is queued", ring(6)),
        ("… taking a completion", ring(7)),
    ];
    for (what, estimate) in lines {
        let between = |e: Estimate| e.interval.map_or("too few samples".into(), |[low, high]| format!("{}–{}", digits(low), digits(high)));
        let (value, interval) = estimate.map_or(("–".into(), "not measured".into()), |e| (digits(e.value), between(e)));
        measured.add_row(vec![Cell::new(what), right(value), right(interval)]);
    }
    let mut list = new(&["price", "ns", "how"]);
    for price in prices.iter().filter(|price| price.how.is_some()) {
        let how = price.how.clone().unwrap_or_default();
        list.add_row(vec![Cell::new(format!("{}.{}", price.group, price.name)), right(price.ns.to_string()), Cell::new(how)]);
    }
    let rest: Vec<String> = prices.iter().filter(|p| p.how.is_none()).map(|p| format!("{}.{} {}", p.group, p.name, p.ns)).collect();
    let rest = format!("Not measured from user space, the figures that ship for virtual machines: {}.", rest.join(", "));
    let [rest, machine] = [rest, format!("Machine: {machine}.")].map(|line| wrap(&line, width.into()));
    format!("{}\n{}\n{rest}\n{machine}\n", fit::first(width, [measured]), fit::first(width, [list]))
}

fn new(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn digits(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

#[cfg(test)]
mod tests;
