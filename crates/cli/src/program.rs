//! Which program this is.

/// Name and version, where fio's results say `fio-3.33`.
pub const PROGRAM: &str = concat!("reap-", env!("CARGO_PKG_VERSION"));
