//! What is printed, and the document of `--json` (schema 1), from one interval's counts.

use crate::counts::{Counts, Line, PLACES, Places, Queue};
use crate::histogram::{Linear, Log2};
use crate::settings::{Mode, Settings};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Column heads of [`PLACES`].
const PLACE_HEADS: [&str; PLACES.len()] = ["in irq", "softirq", "other CPU", "polled", "elsewhere"];

/// Classes of requests that are less than this part of all stand in the table of `latency` only.
const DRAWN_SHARE: u64 = 100;

/// One interval, or the whole run, as text.
pub(crate) fn text(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    match settings.mode {
        Mode::Completions => completions(out, settings, counts)?,
        Mode::Delay => delay(out, settings, counts)?,
        Mode::Rate => rate(out, settings, counts)?,
        Mode::Latency => latency(out, settings, counts)?,
    }
    writeln!(out, "{}", summary(settings, counts))
}

fn completions(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    if settings.queues {
        for queue in counts.queues.iter().filter(|queue| !queue.per_interrupt.is_empty()) {
            writeln!(out, "queue = {}{}", queue.name(), on_line(counts, queue))?;
            writeln!(out, "{}", queue.per_interrupt.draw("completions"))?;
        }
        let rows = counts.queues.iter().map(|queue| (format!("{}{}", queue.name(), on_line(counts, queue)), None, queue.places));
        return places_table(out, "queue", rows);
    }
    for line in counts.lines.iter().filter(|line| !line.per_interrupt.is_empty()) {
        writeln!(out, "line = {}", line.name)?;
        writeln!(out, "{}", line.per_interrupt.draw("completions"))?;
    }
    let lines = counts.lines.iter().map(|line| {
        let cycles = (settings.freq > 1).then(|| line.per_interrupt.total());
        (line.name.clone(), Some((line.interrupts, cycles, line.per_interrupt.mean())), counts.places_of(Some(line.irq)))
    });
    let others = without_line(counts).into_iter().map(|(name, places)| (name, None, places));
    places_table(out, "line", lines.chain(others))
}

fn on_line(counts: &Counts, queue: &Queue) -> String {
    let line = counts.lines.iter().find(|line| Some(line.irq) == queue.irq);
    line.map(|line| format!(" ({})", line.name)).unwrap_or_default()
}

/// Devices whose completions come without an interrupt line: polled, or none that is known.
fn without_line(counts: &Counts) -> Vec<(String, Places)> {
    let mut rows: Vec<(String, Places)> = Vec::new();
    for queue in counts.queues.iter().filter(|queue| queue.irq.is_none()) {
        let name = format!("{} ({})", queue.disk, if queue.polled { "poll queues" } else { "no line" });
        match rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1 = crate::counts::sum([row.1, queue.places].into_iter()),
            None => rows.push((name, queue.places)),
        }
    }
    rows
}

/// Interrupts, the sampled ones if not all were, and completions per interrupt.
type Cycles = Option<(u64, Option<u64>, Option<f64>)>;

/// One row per line or queue; rows in which nothing happened are left out.
fn places_table(out: &mut impl Write, head: &str, rows: impl Iterator<Item = (String, Cycles, Places)>) -> io::Result<()> {
    let rows: Vec<_> = rows.filter(|(_, cycles, places)| places.iter().any(|&n| n > 0) || cycles.is_some_and(|c| c.0 > 0)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let sampled = rows.iter().any(|row| row.1.is_some_and(|cycles| cycles.1.is_some()));
    let width = name_width(head, rows.iter().map(|row| row.0.as_str()));
    write!(out, "{head:<width$} {:>11}", "interrupts")?;
    if sampled {
        write!(out, " {:>9}", "sampled")?;
    }
    write!(out, " {:>11} {:>7}", "completions", "per int")?;
    for place in PLACE_HEADS {
        write!(out, " {place:>10}")?;
    }
    writeln!(out)?;
    for (name, cycles, places) in rows {
        write!(out, "{name:<width$} {:>11}", dash(cycles.map(|c| c.0)))?;
        if sampled {
            write!(out, " {:>9}", dash(cycles.and_then(|c| c.1)))?;
        }
        let mean = cycles.and_then(|c| c.2).map_or("-".into(), |mean| format!("{mean:.2}"));
        write!(out, " {:>11} {mean:>7}", places.iter().sum::<u64>())?;
        for n in places {
            write!(out, " {n:>10}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn delay(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    let unit = unit(settings);
    let mut rows = Vec::new();
    for line in counts.lines.iter().filter(|line| line.interrupts > 0) {
        if !line.to_softirq.is_empty() {
            writeln!(out, "line = {}, interrupt -> softirq", line.name)?;
            writeln!(out, "{}", line.to_softirq.draw(unit))?;
        }
        if !line.to_completion.is_empty() {
            writeln!(out, "line = {}, interrupt -> completion", line.name)?;
            writeln!(out, "{}", line.to_completion.draw(unit))?;
        }
        rows.push((line.name.clone(), Some(line.interrupts), Some(&line.to_softirq), (!settings.queues).then_some(&line.to_completion)));
    }
    for queue in counts.queues.iter().filter(|queue| !queue.to_completion.is_empty()) {
        let name = format!("{}{}", queue.name(), on_line(counts, queue));
        writeln!(out, "queue = {name}, interrupt -> completion")?;
        writeln!(out, "{}", queue.to_completion.draw(unit))?;
        rows.push((name, None, None, Some(&queue.to_completion)));
    }
    let width = name_width("line", rows.iter().map(|row| row.0.as_str()));
    if !rows.is_empty() {
        let heads = ["interrupts", "softirqs", "mean usecs", "completions", "mean usecs"].map(|head| format!(" {head:>11}"));
        writeln!(out, "{:<width$}{}", "line", heads.concat())?;
    }
    for (name, interrupts, softirq, completion) in rows {
        let count = |time: Option<&Log2>| dash(time.map(Log2::total));
        let mean = |time: Option<&Log2>| time.and_then(Log2::mean).map_or("-".into(), |ns| format!("{:.2}", ns / 1e3));
        let cells = [dash(interrupts), count(softirq), mean(softirq), count(completion), mean(completion)];
        writeln!(out, "{name:<width$}{}", cells.map(|cell| format!(" {cell:>11}")).concat())?;
    }
    Ok(())
}

/// A row of `rate`, in sums over the interval.
#[derive(Default)]
struct RateRow {
    name: String,
    interrupts: Option<u64>,
    completions: u64,
    /// In hard interrupt and in softirq.
    ns: Option<(u64, u64)>,
}

fn rate(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    let mut rows = Vec::new();
    for line in counts.lines.iter().filter(|line| line.interrupts > 0) {
        rows.push(RateRow {
            name: line.name.clone(),
            interrupts: Some(line.interrupts),
            completions: counts.places_of(Some(line.irq)).iter().sum(),
            ns: Some(line.per_cpu.iter().fold((0, 0), |sum, cpu| (sum.0 + cpu.hard_ns, sum.1 + cpu.soft_ns))),
        });
    }
    let others: Vec<(String, Places)> = match settings.queues {
        true => counts.queues.iter().map(|queue| (format!("{}{}", queue.name(), on_line(counts, queue)), queue.places)).collect(),
        false => without_line(counts),
    };
    let others = others.into_iter().map(|(name, places)| RateRow { name, completions: places.iter().sum(), ..RateRow::default() });
    rows.extend(others.filter(|row| row.completions > 0));
    rate_table(out, "line", counts, &rows)?;

    let queue_cpus = counts.queues.iter().map(|queue| queue.per_cpu.len());
    let cpus = queue_cpus.chain(counts.lines.iter().map(|line| line.per_cpu.len())).max().unwrap_or(0);
    let row = |cpu: usize| {
        let shares = counts.lines.iter().filter_map(|line| line.per_cpu.get(cpu));
        let sum = shares.fold((0, 0, 0), |sum, on| (sum.0 + on.interrupts, sum.1 + on.hard_ns, sum.2 + on.soft_ns));
        let completions = counts.queues.iter().filter_map(|queue| queue.per_cpu.get(cpu)).sum();
        RateRow { name: cpu.to_string(), interrupts: Some(sum.0), completions, ns: Some((sum.1, sum.2)) }
    };
    let rows: Vec<RateRow> = (0..cpus).map(row).filter(|row| row.interrupts > Some(0) || row.completions > 0).collect();
    rate_table(out, "CPU", counts, &rows)
}

fn rate_table(out: &mut impl Write, head: &str, counts: &Counts, rows: &[RateRow]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let seconds = counts.time.as_secs_f64().max(1e-9);
    let percent = |ns: u64| format!("{:.2}", ns as f64 / 1e7 / seconds);
    let per_second = |n: u64| format!("{:.1}", n as f64 / seconds);
    let width = name_width(head, rows.iter().map(|row| row.name.as_str()));
    let heads = ["interrupts/s", "completions/s", "per int", "hard irq %", "softirq %"].map(|head| format!(" {head:>13}"));
    writeln!(out, "{head:<width$}{}", heads.concat())?;
    for row in rows {
        let per_interrupt = row.interrupts.filter(|&n| n > 0).map(|n| format!("{:.2}", row.completions as f64 / n as f64));
        let cells = [
            row.interrupts.map(per_second),
            Some(per_second(row.completions)),
            per_interrupt,
            row.ns.map(|ns| percent(ns.0)),
            row.ns.map(|ns| percent(ns.1)),
        ];
        let cells = cells.map(|cell| format!(" {:>13}", cell.unwrap_or("-".into())));
        writeln!(out, "{:<width$}{}", row.name, cells.concat())?;
    }
    Ok(())
}

fn latency(out: &mut impl Write, settings: &Settings, counts: &Counts) -> io::Result<()> {
    let used: Vec<_> = counts.latencies.iter().filter(|class| !class.time.is_empty()).collect();
    let all: u64 = used.iter().map(|class| class.time.total()).sum();
    for class in used.iter().filter(|class| class.time.total() * DRAWN_SHARE >= all) {
        writeln!(out, "{} = {}, {}, {}", if settings.queues { "queue" } else { "device" }, class.name, class.op, class.size)?;
        writeln!(out, "{}", class.time.draw(unit(settings)))?;
    }
    if used.is_empty() {
        return Ok(());
    }
    let width = name_width("device", used.iter().map(|class| class.name.as_str()));
    writeln!(out, "{:<width$} {:<12} {:>8} {:>11} {:>11}", "device", "operation", "size", "requests", "mean usecs")?;
    for class in used {
        let (op, size) = (class.op.to_string(), class.size.to_string());
        let mean = class.time.mean().unwrap_or(0.0) / 1e3;
        writeln!(out, "{:<width$} {op:<12} {size:>8} {:>11} {mean:>11.1}", class.name, class.time.total())?;
    }
    Ok(())
}

/// One line: totals, and what was lost.
fn summary(settings: &Settings, counts: &Counts) -> String {
    let lost = match counts.lost.total() {
        0 => "0 lost".to_owned(),
        n => {
            let lost = &counts.lost;
            let parts = [
                (lost.interrupts, "interrupts that the kernel did not show, with what they brought"),
                (lost.program_runs, "program runs left out by the kernel"),
                (lost.lines, "interrupts without room for their line"),
                (lost.queues, "completions without room for their queue"),
                (lost.requests, "requests without room for their start"),
                (lost.classes, "completions without room for their class"),
            ];
            let parts: Vec<_> = parts.iter().filter(|part| part.0 > 0).map(|(n, what)| format!("{n} {what}")).collect();
            format!("{n} lost ({})", parts.join(", "))
        }
    };
    let seconds = counts.time.as_secs_f64();
    if settings.mode == Mode::Latency {
        let requests: u64 = counts.latencies.iter().map(|class| class.time.total()).sum();
        let sampled = if settings.freq > 1 { format!(" (1 in {} sampled)", settings.freq) } else { String::new() };
        return format!("total: {requests} requests{sampled} in {seconds:.2} s, {lost}");
    }
    let (interrupts, places) = (counts.interrupts(), counts.places());
    let completions: u64 = places.iter().sum();
    let sampled = match settings.freq {
        0 | 1 => String::new(),
        n => format!(" (1 in {n} sampled, the completions are theirs)"),
    };
    let where_: Vec<_> = places.iter().zip(PLACE_HEADS).filter(|(n, _)| **n > 0).map(|(n, place)| format!("{n} {place}")).collect();
    let where_ = if where_.is_empty() { String::new() } else { format!(" ({})", where_.join(", ")) };
    format!("total: {interrupts} interrupts{sampled}, {completions} completions{where_} in {seconds:.2} s, {lost}")
}

fn unit(settings: &Settings) -> &'static str {
    if settings.milliseconds { "msecs" } else { "usecs" }
}

fn dash(n: Option<u64>) -> String {
    n.map_or("-".into(), |n| n.to_string())
}

fn name_width<'a>(head: &str, names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).max().unwrap_or(0).max(head.len()).max(16)
}

/// Everything that was counted: `{"schema":1,"mode",…,"intervals":[…],"total":…}`, intervals and total alike. Histograms of time have their
/// bucket `i` from 2^i (the first from 0) to 2^(i+1)-1 of `unit`; those of completions have one bucket per count, the last for 128 and more.
pub(crate) fn document(settings: &Settings, kernel: &str, intervals: &[Counts], total: &Counts) -> Value {
    json!({
        "schema": 1,
        "mode": settings.mode.name(),
        "kernel": kernel,
        "freq": settings.freq,
        "unit": if settings.milliseconds { "ms" } else { "us" },
        "per_queue": settings.queues,
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
            let (op, size) = (class.op.to_string(), 512u64 << class.size.0.min(40));
            json!({ "device": class.name, "operation": op, "up_to_bytes": size, "time": times(&class.time) })
        });
        fields.insert("classes".into(), classes.collect());
    } else {
        fields.insert("interrupts".into(), counts.interrupts().into());
        fields.insert("completions".into(), places(&counts.places()));
        fields.insert("lines".into(), lines(settings.mode, counts));
        fields.insert("queues".into(), queues(settings, counts));
    }
    fields.insert("lost".into(), json!(counts.lost));
    value
}

fn lines(mode: Mode, counts: &Counts) -> Value {
    let one = |line: &Line| {
        let mut value = json!({
            "line": line.name,
            "irq": line.irq,
            "interrupts": line.interrupts,
            "completions": places(&counts.places_of(Some(line.irq))),
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
    let one = |queue: &Queue| {
        let mut value = json!({
            "device": queue.disk,
            "queue": queue.number,
            "polled": queue.polled,
            "irq": queue.irq,
            "completions": places(&queue.places),
            "completions_by_cpu": queue.per_cpu,
        });
        if let (true, Some(fields)) = (settings.queues, value.as_object_mut()) {
            match settings.mode {
                Mode::Completions => fields.insert("per_interrupt".into(), values(&queue.per_interrupt)),
                Mode::Delay => fields.insert("to_completion".into(), times(&queue.to_completion)),
                Mode::Rate | Mode::Latency => None,
            };
        }
        value
    };
    counts.queues.iter().map(one).collect()
}

fn places(counts: &Places) -> Value {
    let mut value: serde_json::Map<String, Value> = PLACES.iter().zip(counts).map(|(place, &n)| (place.to_string(), n.into())).collect();
    value.insert("total".into(), counts.iter().sum::<u64>().into());
    Value::Object(value)
}

fn values(histogram: &Linear) -> Value {
    json!({ "count": histogram.total(), "sum": histogram.sum(), "buckets": histogram.counts() })
}

fn times(histogram: &Log2) -> Value {
    json!({ "count": histogram.total(), "sum_ns": histogram.sum(), "max_ns_since_start": histogram.max(), "buckets": histogram.counts() })
}

#[cfg(test)]
mod tests;
