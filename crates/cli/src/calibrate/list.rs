//! From what was measured to a price list, and which of its prices were not.

use std::fmt::Write;

use ::sim::Costs;
use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};
use serde_json::Value;
use units::Nanos;

use crate::rows::Estimate;
use crate::rows::table::{fitted, wrap};

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
    /// A sleep that the other CPU ends.
    pub sleep: Option<Sleep>,
    /// For how long a CPU without work stays awake.
    pub awake: Option<Estimate>,
    pub arm: Option<Estimate>,
    pub mask: Option<Estimate>,
    /// A cache line from one CPU to the other.
    pub line: Option<Estimate>,
    /// Of the library: submit, take, hand over; each per call and per I/O.
    pub library: Option<[Estimate; 6]>,
    /// A command of 4 KiB, to the thread of an embedded device: served, and its data copied.
    pub serve: Option<Estimate>,
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

/// One price.
#[derive(Clone, Debug)]
pub struct Price {
    group: String,
    name: String,
    ns: u64,
    /// How it was come by; `None`: not measured here, the figure that ships.
    how: Option<String>,
}

/// What is wrong with a list in which something that costs time everywhere is free; `None`: nothing. These prices are differences of what was
/// measured: where the noise is greater than the difference, nothing was found.
pub fn free(costs: &Costs) -> Option<String> {
    let prices = [("thread.idle_exit", costs.thread.idle_exit), ("thread.timer", costs.thread.timer)];
    let free: Vec<&str> = prices.into_iter().filter(|(_, price)| price.0 == 0).map(|(name, _)| name).collect();
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

/// Group and name of each price that was measured, nanoseconds, and how it was come by: a difference of measurements has the noise of both.
/// `shipped` stands for what was not measured.
fn measured(found: &Found, shipped: &Costs) -> Vec<(&'static str, &'static str, f64, String)> {
    let value = |e: Option<Estimate>, shipped: Nanos| e.map_or(shipped.0 as f64, |e| e.value);
    let library = |n: usize| found.library.map(|parts| parts[n]);
    let direct = [
        ("thread", "syscall", found.syscall),
        ("thread", "signal", found.signal),
        ("thread", "rouse", found.sleep.map(|sleep| sleep.signal)),
        ("memory", "line_node", found.line),
        ("memory", "device_line", found.line),
        ("library", "submit", library(1)),
        ("library", "entry", library(3)),
        ("library", "deliver", library(5)),
        ("library", "serve", found.serve),
        ("library", "arm", found.arm),
        ("library", "mask", found.mask),
    ];
    let direct = direct.into_iter().filter_map(|(group, name, e)| e.map(|e| (group, name, e.value, directly(e))));
    let mut list: Vec<_> = direct.collect();
    let mut put = |group, name, ns: f64, how: String| list.push((group, name, ns.max(0.0), how));

    // What blocking costs beyond a system call.
    let (syscall, signal) = (value(found.syscall, shipped.thread.syscall), value(found.signal, shipped.thread.signal));
    let mut block = shipped.thread.block.0 as f64;
    if let (Some(signal), Some(both)) = (found.signal, found.signal_and_return) {
        block = (both.value - signal.value - syscall).max(0.0);
        put("thread", "block", block, format!("a wait that returns at once, {:.0}, less system call", both.value - signal.value));
    }

    if let Some(Sleep { cpu, delay, .. }) = found.sleep {
        // The simulated thread pays for what brings it back. Between two threads of one CPU there is no way to idle: one signals, the
        // other is woken, and the first blocks.
        let (back, wake) = ((cpu.value - syscall - block).max(0.0), shipped.thread.wake.0 as f64);
        let (switch, how) = match found.switch {
            Some(half) => (
                (half.value - signal - wake - syscall - block).clamp(0.0, back),
                format!("from thread to thread, {:.0}, less signal, wake, system call and block", half.value),
            ),
            None => (back, format!("CPU of a sleep, {:.0}, less system call and block", cpu.value)),
        };
        put("thread", "switch", switch, how);
        put("thread", "from_idle", back - switch, format!("CPU of a sleep, {:.0}, less system call, block and switch", cpu.value));
        if let Some(awake) = found.awake {
            let how = format!("a signal {:.0} after the call finds the CPU asleep, less system call and block", awake.value);
            put("thread", "idle_after", awake.value - syscall - block, how);
        }
        // The simulated signal takes effect when it and two cache lines are over.
        let effect = signal + 2.0 * value(found.line, shipped.memory.line_node);
        let idle = (delay.value - back - effect).max(0.0);
        put("thread", "idle_exit", idle, format!("delay of a wake-up, {:.0}, less switch, from_idle and the signal", delay.value));
        if let Some((nap, late)) = found.nap {
            put("thread", "timer", nap.value - cpu.value, format!("CPU of a nap, {:.0}, less that of a sleep", nap.value));
            let i = &shipped.interrupt;
            let around = (i.entry + i.timer + i.end + i.exit).0 as f64;
            // Half of the timers are later by less than ln 2 of an exponential delay's mean.
            let jitter = shipped.thread.timer_jitter.0 as f64 * std::f64::consts::LN_2;
            let rest = (late.value - around - jitter - wake - back).max(0.0);
            let how = format!("a timer is {:.0} late, less interrupt, jitter, wake-up and the way back", late.value);
            put("thread", "timer_exit", rest.min(idle), how);
            put(
                "thread",
                "timer_slack",
                (rest - idle).max(0.0),
                format!("a timer is {:.0} late, less those and the idle exit", late.value),
            );
        }
    }

    if let Some(e) = found.line {
        put("memory", "mmio_delay", e.value, "the doorbell of an embedded device is a cache line".to_owned());
    }
    if let Some([submit, _, take, _, hand, _]) = found.library {
        put("memory", "mmio", submit.value, format!("doorbell and lock of a submission: {}", directly(submit)));
        let reap = take.value + hand.value - submit.value - shipped.library.decide.0 as f64;
        put("library", "reap", reap, format!("a wait that finds one, {:.0}, less its doorbell", take.value));
    }
    list
}

fn directly(e: Estimate) -> String {
    let between = e.interval.map_or(", too few samples".to_owned(), |[low, high]| format!(", {low:.0}–{high:.0}"));
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

/// For people: what was measured, and the rest.
pub fn table(prices: &[Price], machine: &str, width: u16) -> String {
    let mut list = Table::new();
    list.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    list.remove_style(TableComponent::HorizontalLines);
    list.set_header(["price", "ns", "how"]);
    for price in prices {
        let Some(how) = &price.how else { continue };
        let ns = Cell::new(price.ns).set_alignment(CellAlignment::Right);
        list.add_row(vec![Cell::new(format!("{}.{}", price.group, price.name)), ns, Cell::new(how)]);
    }
    for column in list.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let rest: Vec<String> = prices.iter().filter(|p| p.how.is_none()).map(|p| format!("{}.{} {}", p.group, p.name, p.ns)).collect();
    let rest = format!("Not measured here, the figures that ship for virtual machines: {}.", rest.join(", "));
    let [rest, machine] = [rest, format!("Machine: {machine}.")].map(|line| wrap(&line, width.into()));
    format!("{}{rest}\n{machine}\n", fitted(list, width))
}

#[cfg(test)]
mod tests;
