//! The published figures, and how each figure is computed from the outcome of a simulator run.

use std::ops::Range;

use Role::{Calibrate, Predict, Shape};
use sim::Outcome;
use workload::Histogram;

/// What a row is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A constant of the simulator was fitted to this row.
    Calibrate,
    /// The simulator predicts the row, and the prediction is scored.
    Predict,
    /// The row is shown next to the simulated figure, but not scored, since the post says too
    /// little about its machine: only the order of such rows, or the shape of their histogram, must
    /// agree.
    Shape,
}

impl Role {
    /// The word in the table.
    pub fn name(self) -> &'static str {
        match self {
            Role::Calibrate => "calibrate",
            Role::Predict => "predict",
            Role::Shape => "shape",
        }
    }
}

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Post, case and figure.
    pub id: &'static str,
    /// The post's value.
    pub published: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// How the row is used.
    pub role: Role,
    /// The case from whose outcome the simulated value is computed.
    pub case: &'static str,
    /// Computes the simulated value.
    pub figure: fn(&Outcome) -> f64,
    /// For predictions: the baseline.
    pub against: Option<Against>,
}

/// The baseline of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct Against {
    /// The row that the effect is relative to.
    pub baseline: &'static str,
    /// The case that differs only in that it lacks the mechanism whose effect is predicted.
    pub without: &'static str,
}

const fn row(
    id: &'static str,
    published: f64,
    unit: &'static str,
    role: Role,
    case: &'static str,
    figure: fn(&Outcome) -> f64,
) -> Spec {
    Spec { id, published, unit, role, case, figure, against: None }
}

const fn predicted(
    id: &'static str,
    published: f64,
    unit: &'static str,
    case: &'static str,
    figure: fn(&Outcome) -> f64,
    baseline: &'static str,
    without: &'static str,
) -> Spec {
    Spec {
        id,
        published,
        unit,
        role: Predict,
        case,
        figure,
        against: Some(Against { baseline, without }),
    }
}

const fn share(
    id: &'static str,
    published: f64,
    case: &'static str,
    figure: fn(&Outcome) -> f64,
) -> Spec {
    row(id, published, "share", Shape, case, figure)
}

fn iops(o: &Outcome) -> f64 {
    o.iops()
}

fn messages(o: &Outcome) -> f64 {
    o.per_second(o.messages)
}

/// Interrupts per second; with posted MSI, notifications.
fn interrupts(o: &Outcome) -> f64 {
    o.per_second(o.all_cpus.interrupts)
}

fn per_interrupt(o: &Outcome) -> f64 {
    o.counts.completed as f64 / o.all_cpus.interrupts.max(1) as f64
}

/// Mean IOPS of a drive.
fn iops_a_drive(o: &Outcome) -> f64 {
    iops(o) / o.devices.len().max(1) as f64
}

/// Mean interrupts per second of a vector, of which there are 32.
fn int_a_vector(o: &Outcome) -> f64 {
    o.per_second(o.all_cpus.vectors_handled) / 32.0
}

fn slat(o: &Outcome) -> f64 {
    o.stats.read.slat.moments.mean() / 1e3
}

/// CPU time of choosing the path, per I/O, in microseconds.
fn path(o: &Outcome) -> f64 {
    o.counts.choosing.0 as f64 / o.counts.completed.max(1) as f64 / 1e3
}

/// Share of the values of a histogram in `range`.
fn share_in(histogram: &Histogram, range: Range<u64>) -> f64 {
    let inside: u64 =
        histogram.buckets().filter(|(value, _)| range.contains(value)).map(|(_, n)| n).sum();
    inside as f64 / histogram.total().max(1) as f64
}

/// Share of interrupts after which the poller polled within `from..to` microseconds.
fn delay(o: &Outcome, from: u64, to: u64) -> f64 {
    share_in(&o.poll_delays, from * 1_000..to * 1_000)
}

/// Share of interrupts after which the poller took `from..to` completions before it enabled the
/// interrupt again.
fn taken(o: &Outcome, from: u64, to: u64) -> f64 {
    share_in(&o.per_cycle, from..to)
}

/// For each of these, the rows whose names begin with it are a published histogram. A test requires
/// its total variation from the simulated histogram to be at most 0.05
/// ([`super::total_variation`]).
pub const HISTOGRAMS: [&str; 4] =
    ["002.one.delay", "002.five.delay", "002.one.completions", "002.deep.completions"];

const U4_IRQ: &str = "003.u4.irq.iops";
const U4_INT: &str = "003.u4.irq.int";

/// All rows, in the order of the table.
pub const SPECS: &[Spec] = &[
    row("000.irq.iops", 130e3, "IOPS", Calibrate, "000.irq", iops),
    // The post says 13 to 14 thousand.
    row("000.irq.messages_at_110k", 13.5e3, "1/s", Calibrate, "000.irq.110k", messages),
    predicted("000.check.iops", 424e3, "IOPS", "000.check", iops, "000.irq.iops", "000.irq"),
    row("001.off.512.iops", 25_168.0, "IOPS", Calibrate, "001.off.512", iops),
    row("001.off.512.int", 19_500.0, "1/s", Calibrate, "001.off.512", interrupts),
    row("001.off.512.per_int", 1.3, "I/Os", Calibrate, "001.off.512", per_interrupt),
    row("001.off.4096.iops", 25_612.0, "IOPS", Calibrate, "001.off.4096", iops),
    row("001.off.4096.int", 21_500.0, "1/s", Calibrate, "001.off.4096", interrupts),
    row("001.off.4096.per_int", 1.2, "I/Os", Calibrate, "001.off.4096", per_interrupt),
    row("001.on.512.iops", 30_355.0, "IOPS", Shape, "001.on.512", iops),
    row("001.on.512.int", 750.0, "1/s", Shape, "001.on.512", interrupts),
    row("001.on.512.per_int", 40.0, "I/Os", Shape, "001.on.512", per_interrupt),
    row("001.on.4096.iops", 30_231.0, "IOPS", Shape, "001.on.4096", iops),
    row("001.on.4096.int", 1_200.0, "1/s", Shape, "001.on.4096", interrupts),
    row("001.on.4096.per_int", 25.0, "I/Os", Shape, "001.on.4096", per_interrupt),
    // "They perform identically": with the poller the CPU usage is lower, but the post gives no
    // figure.
    row("001.fast.off.iops", 50e3, "IOPS", Shape, "001.fast.off", iops),
    row("001.fast.off.int", 55e3, "1/s", Shape, "001.fast.off", interrupts),
    row("001.fast.on.iops", 50e3, "IOPS", Shape, "001.fast.on", iops),
    // The post says 39 to 40 thousand.
    row("001.fast.on.int", 39.5e3, "1/s", Shape, "001.fast.on", interrupts),
    // The post has counts: 7,310, 11, 10, 20 and 1 of 7,352.
    share("002.one.delay.0-1", 0.9943, "002.one", |o| delay(o, 0, 2)),
    share("002.one.delay.2-3", 0.0015, "002.one", |o| delay(o, 2, 4)),
    share("002.one.delay.4-7", 0.0014, "002.one", |o| delay(o, 4, 8)),
    share("002.one.delay.8-15", 0.0027, "002.one", |o| delay(o, 8, 16)),
    // All five queues together: 2,264, 435, 156, 75, 24, 2 and 1 of 2,957.
    share("002.five.delay.0-1", 0.7656, "002.five", |o| delay(o, 0, 2)),
    share("002.five.delay.2-3", 0.1471, "002.five", |o| delay(o, 2, 4)),
    share("002.five.delay.4-7", 0.0528, "002.five", |o| delay(o, 4, 8)),
    share("002.five.delay.8-15", 0.0254, "002.five", |o| delay(o, 8, 16)),
    share("002.five.delay.16-31", 0.0081, "002.five", |o| delay(o, 16, 32)),
    // The post has counts: 11,690, 46 and 1.
    share("002.one.completions.1", 0.9960, "002.one", |o| taken(o, 1, 2)),
    share("002.one.completions.2", 0.0039, "002.one", |o| taken(o, 2, 3)),
    // "I also tried QD=1024, histogram is still the same."
    share("002.deep.completions.1", 0.9960, "002.deep", |o| taken(o, 1, 2)),
    row("003.u4.polled.iops", 20.36e6, "IOPS", Calibrate, "003.u4.polled", iops),
    row("003.u5.polled.iops", 25.7e6, "IOPS", Calibrate, "003.u5.polled", iops),
    row(U4_IRQ, 14.37e6, "IOPS", Calibrate, "003.u4.irq", iops),
    row(U4_INT, 2.82e6, "1/s", Calibrate, "003.u4.irq", interrupts),
    // Mean of three runs: 14.73, 14.90 and 14.90 million.
    predicted("003.u4.posted.iops", 14.84e6, "IOPS", "003.u4.posted", iops, U4_IRQ, "003.u4.irq"),
    predicted(
        "003.u4.posted.int",
        2.34e6,
        "1/s",
        "003.u4.posted",
        interrupts,
        U4_INT,
        "003.u4.irq",
    ),
    predicted("003.u5.irq.iops", 21.41e6, "IOPS", "003.u5.irq", iops, U4_IRQ, "003.u4.irq"),
    predicted(
        "003.u5.posted.iops",
        21.90e6,
        "IOPS",
        "003.u5.posted",
        iops,
        "003.u5.irq.iops",
        "003.u5.irq",
    ),
    row("003.l4.irq.iops", 1.615e6, "IOPS", Calibrate, "003.l4.irq", iops_a_drive),
    row("003.l4.irq.int_vector", 185_545.0, "1/s", Calibrate, "003.l4.irq", int_a_vector),
    // The sum over the 32 vectors.
    row("003.l4.irq.int", 32.0 * 185_545.0, "1/s", Calibrate, "003.l4.irq", interrupts),
    predicted(
        "003.l4.posted.iops",
        2.184e6,
        "IOPS",
        "003.l4.posted",
        iops_a_drive,
        "003.l4.irq.iops",
        "003.l4.irq",
    ),
    predicted(
        "003.l4.posted.int_vector",
        220_128.0,
        "1/s",
        "003.l4.posted",
        int_a_vector,
        "003.l4.irq.int_vector",
        "003.l4.irq",
    ),
    predicted(
        "003.l4.posted.notifications",
        5.50e6,
        "1/s",
        "003.l4.posted",
        interrupts,
        "003.l4.irq.int",
        "003.l4.irq",
    ),
    // `queue-depth` with a counter per hardware queue, which the choice of a path adds up ("sum"),
    // and with one counter per controller ("atomic").
    row("004.sum.path", 46.147, "µs", Calibrate, "004.sum", path),
    row("004.atomic.path", 0.456, "µs", Shape, "004.atomic", path),
    predicted("004.sum.slat", 78.35, "µs", "004.sum", slat, "004.sum.path", "004.atomic"),
    predicted("004.atomic.slat", 32.51, "µs", "004.atomic", slat, "004.sum.slat", "004.sum"),
    row("004.sum.iops", 490.0, "IOPS", Shape, "004.sum", iops),
    row("004.atomic.iops", 493.0, "IOPS", Shape, "004.atomic", iops),
];
