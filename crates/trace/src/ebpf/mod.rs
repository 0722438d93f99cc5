//! Runs the tracer, and prints the counts of each interval until COUNT, `--duration`, a signal or a
//! closed output ends the run.

mod layout;
mod tracer;

use crate::Error;
use crate::counts::Counts;
use crate::machine::Topology;
use crate::preflight;
use crate::report;
use crate::settings::{Mode, Settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;
use tracer::{Tracer, selected};

/// Runs `reap trace` and returns the document of `--json`.
pub(crate) fn run(
    settings: &Settings,
    mut out: &mut dyn Write,
) -> Result<serde_json::Value, Error> {
    let mut machine = Topology::read(Path::new("/"));
    // Installed before tracing starts: from here on a signal ends the loop below, not the process.
    let stopped = stop_signals()
        .map_err(|source| Error::Output { what: "install a signal handler", source })?;
    let (disks, lines) = selected(settings, &machine)?;
    preflight::missing_for(&[settings.mode]).into_iter().next().map_or(Ok(()), Err)?;
    let mut tracer = Tracer::start(settings, &machine, &disks, &lines)?;
    let mut intervals = Vec::new();
    let mut before = Counts::default();
    let printed = (|| {
        writeln!(out, "{}", banner(settings))?;
        out.flush()
    })();
    // A closed output (`| head`) ends the run like Ctrl-C.
    let mut closed = output_closed(printed)?;
    let end = settings.args.duration.map(|duration| Instant::now() + duration);
    let mut done = 0;
    let mut next = Instant::now();
    while !closed && done < settings.count {
        // The end of each interval is an absolute time, so printing does not delay later intervals.
        next += settings.interval;
        let until = end.map_or(next, |end| end.min(next));
        let interrupted =
            stopped.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok();
        done += 1;
        // The last interval is read and printed after the loop.
        if interrupted || done == settings.count || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        // Interrupt lines may have appeared since the last reading.
        machine = Topology::read(Path::new("/"));
        let now = tracer.read(&machine, false)?;
        let interval = now.since(&before);
        closed = output_closed(print(&mut out, settings, &interval))?;
        intervals.push(interval);
        before = now;
    }
    // The last interval is read with counting stopped, so that its sums are consistent.
    let total = tracer.read(&machine, true)?;
    let last = total.since(&before);
    if !closed {
        closed = output_closed(print(&mut out, settings, &last))?;
    }
    intervals.push(last);
    // If there is only one interval, the total would repeat it.
    if !closed && intervals.len() > 1 {
        output_closed(
            writeln!(out, "\nThe whole run:")
                .and_then(|()| report::text(&mut out, settings, &total)),
        )?;
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(report::document(settings, kernel.trim(), &intervals, &total))
}

fn print(out: &mut impl Write, settings: &Settings, interval: &Counts) -> io::Result<()> {
    writeln!(out)?;
    if settings.args.timestamp {
        writeln!(out, "{}", chrono::Local::now().format("%H:%M:%S"))?;
    }
    report::text(out, settings, interval)?;
    out.flush()
}

fn banner(settings: &Settings) -> String {
    let what = match settings.mode {
        Mode::Completions => "block completions per interrupt",
        Mode::Delay => "the time from the interrupt to softirq and completion",
        Mode::Rate => "interrupts and block completions",
        Mode::Latency => "block requests from issue to completion",
    };
    let sampled =
        if settings.freq > 1 { format!(", 1 in {}", settings.freq) } else { String::new() };
    let end = if settings.count == u64::MAX && settings.args.duration.is_none() {
        "... Hit Ctrl-C to end."
    } else {
        "..."
    };
    format!("Tracing {what}{sampled}{end}")
}

/// Whether the reader of the output has gone (EPIPE); other failures are errors.
fn output_closed(written: io::Result<()>) -> Result<bool, Error> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(source) => Err(Error::Output { what: "write the output", source }),
    }
}

/// Sends a message for each signal that asks to stop.
fn stop_signals() -> io::Result<mpsc::Receiver<()>> {
    let (sender, stopped) = mpsc::channel();
    // SIGHUP too: the terminal may close.
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if sender.send(()).is_err() {
                return;
            }
        }
    })?;
    Ok(stopped)
}
