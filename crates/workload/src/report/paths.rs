//! The paths of devices that have several, for people.

use std::fmt;

use super::PathFigures;
use units::Nanos;

/// A line for each path, under a heading.
pub(super) fn write(out: &mut String, paths: &[PathFigures]) -> fmt::Result {
    use fmt::Write;
    if paths.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPaths:")?;
    writeln!(out, "{:>12} {:>8} {:>10} {:>12}  {:<16} path", "I/Os", "failed", "in flight", "latency", "state")?;
    for path in paths {
        let latency = Nanos(path.lat_ns).to_string();
        let of = if path.device.is_empty() { String::new() } else { format!(" of {}", path.device) };
        let PathFigures { ios, failed, in_flight, state, path, .. } = path;
        writeln!(out, "{ios:>12} {failed:>8} {in_flight:>10.1} {latency:>12}  {state:<16} {path}{of}")?;
    }
    Ok(())
}
