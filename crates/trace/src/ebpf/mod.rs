//! Runs the tracer and prints, until something ends it.

mod layout;
mod tracer;

use crate::Error;
use crate::counts::Counts;
use crate::machine::Machine;
use crate::preflight;
use crate::report;
use crate::settings::{Mode, Settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;
use tracer::{Tracer, chosen};

/// `reap trace`.
pub(crate) fn run(settings: &Settings, mut out: &mut dyn Write) -> Result<serde_json::Value, Error> {
    let mut machine = Machine::look(Path::new("/"));
    let stopped = stop_signals().map_err(|source| Error::Output { what: "a signal handler", source })?;
    let (disks, lines) = chosen(settings, &machine)?;
    preflight::lacks_for(&[settings.mode]).into_iter().next().map_or(Ok(()), Err)?;
    let mut tracer = Tracer::start(settings, &machine, &disks, &lines)?;
    let mut intervals = Vec::new();
    let mut before = Counts::default();
    let printed = (|| {
        writeln!(out, "{}", banner(settings))?;
        out.flush()
    })();
    // A reader that went away, as `head` does, ends it like Ctrl-C.
    let mut reader_left = left(printed)?;
    let end = settings.args.duration.map(|duration| Instant::now() + duration);
    let mut done = 0;
    let mut next = Instant::now();
    while !reader_left && done < settings.count {
        next += settings.interval;
        let until = end.map_or(next, |end| end.min(next));
        let interrupted = stopped.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok();
        done += 1;
        if interrupted || done == settings.count || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        machine = Machine::look(Path::new("/"));
        let now = tracer.read(&machine, false)?;
        let interval = now.since(&before);
        reader_left = left(print(&mut out, settings, &interval))?;
        intervals.push(interval);
        before = now;
    }
    let total = tracer.read(&machine, true)?;
    let last = total.since(&before);
    if !reader_left {
        reader_left = left(print(&mut out, settings, &last))?;
    }
    intervals.push(last);
    if !reader_left && intervals.len() > 1 {
        left(writeln!(out, "\nThe whole run:").and_then(|()| report::text(&mut out, settings, &total)))?;
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
    let sampled = if settings.freq > 1 { format!(", 1 in {}", settings.freq) } else { String::new() };
    let end = if settings.count == u64::MAX && settings.args.duration.is_none() { "... Hit Ctrl-C to end." } else { "..." };
    format!("Tracing {what}{sampled}{end}")
}

/// `true` when the reader of our output is gone; other failures to write are errors.
fn left(written: io::Result<()>) -> Result<bool, Error> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(source) => Err(Error::Output { what: "the output", source }),
    }
}

/// A message for each signal that asks to stop.
fn stop_signals() -> io::Result<mpsc::Receiver<()>> {
    let (tell, stopped) = mpsc::channel();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if tell.send(()).is_err() {
                return;
            }
        }
    })?;
    Ok(stopped)
}
