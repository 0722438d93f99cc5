//! Prints the counts of an interval as text, and builds the document of `--json` (schema 1). A line
//! is an interrupt line of a block device.

use crate::counts::{CONTEXTS, ContextCounts, Counts, LOST, Latency, LineCounts, QueueCounts};
use crate::histogram::{Linear, Log2};
use crate::settings::{Mode, Settings};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, Write};

/// Column headings for [`CONTEXTS`].
const CONTEXT_HEADS: [&str; CONTEXTS.len()] =
    ["in irq", "softirq", "other CPU", "polled", "elsewhere"];

/// In `latency`, a class of requests gets a histogram if at least one in this many requests belongs
/// to the class. All classes get a table row.
const DRAWN_ONE_IN: u64 = 100;

/// Prints one interval, or the whole run, as text.
pub(crate) fn text(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    match settings.mode {
        Mode::Completions => completions(out, settings, counts)?,
        Mode::Delay => delay(out, settings, counts)?,
        Mode::Rate => rate(out, settings, counts)?,
        Mode::Latency => latency(out, settings, counts)?,
    }
    writeln!(out, "{}", summary(settings, counts))
}

/// Prints a histogram under its title, unless it is empty.
fn draw(out: &mut impl Write, title: impl Display, histogram: impl Display) -> io::Result<()> {
    match histogram.to_string() {
        empty if empty.is_empty() => Ok(()),
        lines => writeln!(out, "{title}\n{lines}"),
    }
}

/// A table row: its name, and a cell per column.
type Row = (String, Vec<String>);

/// Prints a table, if it has rows. `head`: heading of the first column, which is as wide as the
/// longest name; `columns`: headings and widths of the other columns.
fn table(
    out: &mut impl Write,
    head: &str,
    columns: &[(&str, usize)],
    rows: Vec<Row>,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    // At least 16 wide, so that the columns of most tables line up.
    let name_width =
        rows.iter().map(|(name, _)| name.len()).chain([head.len(), 16]).max().unwrap_or(0);
    let heads = (head.to_owned(), columns.iter().map(|(head, _)| head.to_string()).collect());
    for (name, cells) in std::iter::once(heads).chain(rows) {
        let cells: String = cells
            .iter()
            .zip(columns)
            .map(|(cell, (_, width))| format!(" {cell:>width$}"))
            .collect();
        writeln!(out, "{name:<name_width$}{cells}")?;
    }
    Ok(())
}

fn dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

fn completions(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    // Sampled cycles are counted by line, so with -Q, where rows are queues, the table has no
    // column `sampled`.
    let sampled = settings.freq > 1 && !settings.args.queues;
    let mut rows = Vec::new();
    // A row without interrupts and completions is left out.
    let mut row = |name: String, line: Option<&LineCounts>, contexts: ContextCounts| {
        if line.is_none_or(|line| line.interrupts == 0) && contexts == ContextCounts::default() {
            return;
        }
        let mut cells = vec![dash(line.map(|line| line.interrupts))];
        cells.extend(sampled.then(|| dash(line.map(|line| line.per_interrupt.total()))));
        cells.push(contexts.iter().sum::<u64>().to_string());
        cells.push(dash(
            line.and_then(|line| line.per_interrupt.mean()).map(|mean| format!("{mean:.2}")),
        ));
        cells.extend(contexts.map(|n| n.to_string()));
        rows.push((name, cells));
    };
    if settings.args.queues {
        for queue in &counts.queues {
            let name = format!("{}{}", queue.name(), on_line(counts, queue));
            draw(out, format_args!("queue = {name}"), queue.per_interrupt.draw("completions"))?;
            row(name, None, queue.contexts);
        }
    } else {
        for line in &counts.lines {
            draw(
                out,
                format_args!("line = {}", line.name),
                line.per_interrupt.draw("completions"),
            )?;
            row(line.name.clone(), Some(line), counts.contexts_of(Some(line.irq)));
        }
        without_line(counts).into_iter().for_each(|(name, contexts)| row(name, None, contexts));
    }
    let mut columns = vec![("interrupts", 11)];
    columns.extend(sampled.then_some(("sampled", 9)));
    columns.extend([("completions", 11), ("per int", 7)]);
    columns.extend(CONTEXT_HEADS.map(|head| (head, 10)));
    table(out, if settings.args.queues { "queue" } else { "line" }, &columns, rows)
}

fn on_line(counts: &Counts, queue: &QueueCounts) -> String {
    let line = counts.lines.iter().find(|line| Some(line.irq) == queue.irq);
    line.map(|line| format!(" ({})", line.name)).unwrap_or_default()
}

/// Devices with completions that belong to no line: polled, or line unknown.
fn without_line(counts: &Counts) -> Vec<(String, ContextCounts)> {
    let mut rows: Vec<(String, ContextCounts)> = Vec::new();
    for queue in counts.queues.iter().filter(|queue| queue.irq.is_none()) {
        let name =
            format!("{} ({})", queue.disk, if queue.polled { "poll queues" } else { "no line" });
        match rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1 = crate::counts::sum([row.1, queue.contexts].into_iter()),
            None => rows.push((name, queue.contexts)),
        }
    }
    rows
}

fn delay(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    let unit = unit(settings);
    let count = |time: Option<&Log2>| dash(time.map(Log2::total));
    // The table's means are in microseconds, even where histograms are in milliseconds.
    let mean =
        |time: Option<&Log2>| dash(time.and_then(Log2::mean).map(|ns| format!("{:.2}", ns / 1e3)));
    let mut rows = Vec::new();
    for line in counts.lines.iter().filter(|line| line.interrupts > 0) {
        draw(
            out,
            format_args!("line = {}, interrupt -> softirq", line.name),
            line.to_softirq.draw(unit),
        )?;
        draw(
            out,
            format_args!("line = {}, interrupt -> completion", line.name),
            line.to_completion.draw(unit),
        )?;
        // With -Q each queue has a row of its own for the completions.
        let (softirq, completion) =
            (Some(&line.to_softirq), (!settings.args.queues).then_some(&line.to_completion));
        let cells = vec![
            line.interrupts.to_string(),
            count(softirq),
            mean(softirq),
            count(completion),
            mean(completion),
        ];
        rows.push((line.name.clone(), cells));
    }
    for queue in counts.queues.iter().filter(|queue| !queue.to_completion.is_empty()) {
        let (name, time) =
            (format!("{}{}", queue.name(), on_line(counts, queue)), Some(&queue.to_completion));
        draw(
            out,
            format_args!("queue = {name}, interrupt -> completion"),
            queue.to_completion.draw(unit),
        )?;
        rows.push((name, vec!["-".into(), "-".into(), "-".into(), count(time), mean(time)]));
    }
    table(
        out,
        "line",
        &["interrupts", "softirqs", "mean usecs", "completions", "mean usecs"]
            .map(|head| (head, 11)),
        rows,
    )
}

fn rate(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    const COLUMNS: [(&str, usize); 5] = [
        ("interrupts/s", 13),
        ("completions/s", 13),
        ("per int", 13),
        ("hard irq %", 13),
        ("softirq %", 13),
    ];
    // Never divide by zero: the last interval may be empty.
    let seconds = counts.time.as_secs_f64().max(1e-9);
    let per_second = |n: u64| format!("{:.1}", n as f64 / seconds);
    // ns / 1e9 / seconds * 100.
    let percent = |ns: u64| format!("{:.2}", ns as f64 / 1e7 / seconds);
    // The arguments are sums over the interval; `ns` is the time in hard interrupt and in softirq.
    let cells = |interrupts: Option<u64>, completions: u64, ns: Option<(u64, u64)>| {
        let per_interrupt =
            interrupts.filter(|&n| n > 0).map(|n| format!("{:.2}", completions as f64 / n as f64));
        let (hard, soft) = (dash(ns.map(|ns| percent(ns.0))), dash(ns.map(|ns| percent(ns.1))));
        vec![
            dash(interrupts.map(per_second)),
            per_second(completions),
            dash(per_interrupt),
            hard,
            soft,
        ]
    };
    let mut rows = Vec::new();
    for line in counts.lines.iter().filter(|line| line.interrupts > 0) {
        let ns =
            line.per_cpu.iter().fold((0, 0), |sum, cpu| (sum.0 + cpu.hard_ns, sum.1 + cpu.soft_ns));
        rows.push((
            line.name.clone(),
            cells(Some(line.interrupts), counts.contexts_of(Some(line.irq)).iter().sum(), Some(ns)),
        ));
    }
    let others: Vec<(String, ContextCounts)> = match settings.args.queues {
        true => counts
            .queues
            .iter()
            .map(|queue| (format!("{}{}", queue.name(), on_line(counts, queue)), queue.contexts))
            .collect(),
        false => without_line(counts),
    };
    let others = others
        .into_iter()
        .map(|(name, contexts)| (name, contexts.iter().sum()))
        .filter(|&(_, completions)| completions > 0);
    rows.extend(others.map(|(name, completions)| (name, cells(None, completions, None))));
    table(out, "line", &COLUMNS, rows)?;

    let queue_cpus = counts.queues.iter().map(|queue| queue.per_cpu.len());
    let cpus =
        queue_cpus.chain(counts.lines.iter().map(|line| line.per_cpu.len())).max().unwrap_or(0);
    let mut rows = Vec::new();
    // The second table: the same sums by CPU, without idle CPUs.
    for cpu in 0..cpus {
        let shares = counts.lines.iter().filter_map(|line| line.per_cpu.get(cpu));
        let sum = shares.fold((0, 0, 0), |sum, on| {
            (sum.0 + on.interrupts, sum.1 + on.hard_ns, sum.2 + on.soft_ns)
        });
        let completions = counts.queues.iter().filter_map(|queue| queue.per_cpu.get(cpu)).sum();
        if sum.0 > 0 || completions > 0 {
            rows.push((cpu.to_string(), cells(Some(sum.0), completions, Some((sum.1, sum.2)))));
        }
    }
    table(out, "CPU", &COLUMNS, rows)
}

fn latency(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    let used: Vec<_> = counts.latencies.iter().filter(|class| !class.time.is_empty()).collect();
    let all: u64 = used.iter().map(|class| class.time.total()).sum();
    for class in used.iter().filter(|class| class.time.total() * DRAWN_ONE_IN >= all) {
        let what = if settings.args.queues { "queue" } else { "device" };
        let title =
            format_args!("{what} = {}, {}, {}", class.name, class.op_name(), class.size_name());
        draw(out, title, class.time.draw(unit(settings)))?;
    }
    let row = |class: &&Latency| {
        let mean = format!("{:.1}", class.time.mean().unwrap_or(0.0) / 1e3);
        // Operations are left-aligned like the names: padded here, because `table` aligns right.
        let op = format!("{:<12}", class.op_name());
        (class.name.clone(), vec![op, class.size_name(), class.time.total().to_string(), mean])
    };
    let columns = [("operation   ", 12), ("size", 8), ("requests", 11), ("mean usecs", 11)];
    table(out, "device", &columns, used.iter().map(row).collect())
}

/// The last line: totals and lost events.
fn summary(settings: &Settings, counts: &Counts) -> String {
    let parts = counts
        .lost
        .iter()
        .zip(LOST)
        .filter(|(n, _)| **n > 0)
        .map(|(n, (_, what))| format!("{n} {what}"));
    let lost = match counts.lost.iter().sum::<u64>() {
        0 => "0 lost".to_owned(),
        n => format!("{n} lost ({})", parts.collect::<Vec<_>>().join(", ")),
    };
    let seconds = counts.time.as_secs_f64();
    if settings.mode == Mode::Latency {
        let requests: u64 = counts.latencies.iter().map(|class| class.time.total()).sum();
        let sampled = if settings.freq > 1 {
            format!(" (1 in {} sampled)", settings.freq)
        } else {
            String::new()
        };
        return format!("total: {requests} requests{sampled} in {seconds:.2} s, {lost}");
    }
    let (interrupts, contexts) = (counts.interrupts(), counts.contexts());
    let completions: u64 = contexts.iter().sum();
    let sampled = match settings.freq {
        0 | 1 => String::new(),
        n => format!(" (1 in {n} sampled; only their completions are counted)"),
    };
    let where_: Vec<_> = contexts
        .iter()
        .zip(CONTEXT_HEADS)
        .filter(|(n, _)| **n > 0)
        .map(|(n, place)| format!("{n} {place}"))
        .collect();
    let where_ =
        if where_.is_empty() { String::new() } else { format!(" ({})", where_.join(", ")) };
    format!(
        "total: {interrupts} interrupts{sampled}, {completions} completions{where_} in {seconds:.2} s, {lost}"
    )
}

fn unit(settings: &Settings) -> &'static str {
    if settings.args.milliseconds { "msecs" } else { "usecs" }
}

/// The document of `--json`: `{"schema":1,"mode",…,"intervals":[…],"total":…}`; an interval and the
/// total have the same fields. Bucket `i` of a time histogram ranges from 2^i (the first from 0) to
/// 2^(i+1)-1 of `unit`. Histograms of completions have one bucket per count, the last for 128 and
/// more.
pub(crate) fn document(
    settings: &Settings,
    kernel: &str,
    intervals: &[Counts],
    total: &Counts,
) -> Value {
    json!({
        "schema": 1,
        "mode": settings.mode.name(),
        "kernel": kernel,
        "freq": settings.freq,
        "unit": if settings.args.milliseconds { "ms" } else { "us" },
        "per_queue": settings.args.queues,
        "intervals": intervals.iter().map(|counts| interval(settings, counts)).collect::<Vec<_>>(),
        "total": interval(settings, total),
    })
}

fn interval(settings: &Settings, counts: &Counts) -> Value {
    let mut value = json!({ "seconds": counts.time.as_secs_f64() });
    let Some(fields) = value.as_object_mut() else { return value };
    if settings.mode == Mode::Latency {
        let classes = counts.latencies.iter().filter(|class| !class.time.is_empty());
        let classes = classes.map(|class| {
            // Bounded: the value comes from the kernel, and the shift must not overflow.
            let (op, size) = (class.op_name(), 512u64 << class.size.min(40));
            json!({ "device": class.name, "operation": op, "up_to_bytes": size, "time": times(&class.time) })
        });
        fields.insert("classes".into(), classes.collect());
    } else {
        fields.insert("interrupts".into(), counts.interrupts().into());
        fields.insert("completions".into(), contexts(&counts.contexts()));
        fields.insert("lines".into(), lines(settings.mode, counts));
        fields.insert("queues".into(), queues(settings, counts));
    }
    fields.insert(
        "lost".into(),
        LOST.iter().zip(counts.lost).map(|((name, _), n)| (name.to_string(), n)).collect(),
    );
    value
}

fn lines(mode: Mode, counts: &Counts) -> Value {
    let one = |line: &LineCounts| {
        let mut value = json!({
            "line": line.name,
            "irq": line.irq,
            "interrupts": line.interrupts,
            "completions": contexts(&counts.contexts_of(Some(line.irq))),
        });
        let Some(fields) = value.as_object_mut() else { return value };
        match mode {
            Mode::Completions => {
                fields.insert("per_interrupt".into(), values(&line.per_interrupt));
            }
            Mode::Delay => {
                fields.insert("to_softirq".into(), times(&line.to_softirq));
                fields.insert("to_completion".into(), times(&line.to_completion));
            }
            Mode::Rate | Mode::Latency => {
                let cpus = line.per_cpu.iter().enumerate().map(
                    |(cpu, on)| json!({ "cpu": cpu, "interrupts": on.interrupts, "hard_irq_ns": on.hard_ns, "softirq_ns": on.soft_ns }),
                );
                fields.insert("cpus".into(), cpus.collect());
            }
        }
        value
    };
    counts.lines.iter().map(one).collect()
}

fn queues(settings: &Settings, counts: &Counts) -> Value {
    let one = |queue: &QueueCounts| {
        let mut value = json!({
            "device": queue.disk,
            "queue": queue.number,
            "polled": queue.polled,
            "irq": queue.irq,
            "completions": contexts(&queue.contexts),
            "completions_by_cpu": queue.per_cpu,
        });
        if let (true, Some(fields)) = (settings.args.queues, value.as_object_mut()) {
            match settings.mode {
                Mode::Completions => {
                    fields.insert("per_interrupt".into(), values(&queue.per_interrupt))
                }
                Mode::Delay => fields.insert("to_completion".into(), times(&queue.to_completion)),
                Mode::Rate | Mode::Latency => None,
            };
        }
        value
    };
    counts.queues.iter().map(one).collect()
}

fn contexts(counts: &ContextCounts) -> Value {
    let mut value: serde_json::Map<String, Value> =
        CONTEXTS.iter().zip(counts).map(|(place, &n)| (place.to_string(), n.into())).collect();
    value.insert("total".into(), counts.iter().sum::<u64>().into());
    Value::Object(value)
}

fn values(histogram: &Linear) -> Value {
    json!({ "count": histogram.total(), "sum": histogram.sum(), "buckets": histogram.counts() })
}

fn times(histogram: &Log2) -> Value {
    // The maximum of an interval is unknown, so an interval has the maximum since the start.
    json!({ "count": histogram.total(), "sum_ns": histogram.sum(), "max_ns_since_start": histogram.max(), "buckets": histogram.counts() })
}

#[cfg(test)]
mod tests;
