//! The document of `--json`, schema 1.

use crate::counts::{Counts, PLACES, Places};
use crate::histogram::{Linear, Log2};
use crate::settings::{Mode, Settings};
use serde_json::{Value, json};

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
    let one = |line: &crate::counts::Line| {
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
    let one = |queue: &crate::counts::Queue| {
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
