//! Numbers as fio writes them: few digits, then a unit.

/// `n` in at most `digits` digits, with a prefix of thousands (decimal: k, M, …; binary: Ki, Mi, …) and a unit.
pub(super) fn short(n: u64, digits: usize, binary: bool, unit: &str) -> String {
    let (step, prefixes) =
        if binary { (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) } else { (1000, ["", "k", "M", "G", "T", "P", "E"]) };
    let (mut whole, mut rest, mut prefix) = (n, None, 0);
    while whole.to_string().len() > digits && prefix + 1 < prefixes.len() {
        rest = Some(whole % step);
        whole /= step;
        prefix += 1;
    }
    let room = digits.saturating_sub(whole.to_string().len());
    let number = match rest {
        None => whole.to_string(),
        Some(rest) if room <= 1 => (whole + u64::from(rest >= step / 2)).to_string(),
        Some(rest) => format!("{:.*}", room - 1, whole as f64 + rest as f64 / step as f64),
    };
    format!("{number}{}{unit}", prefixes[prefix])
}

/// A unit of time: its name, and how many nanoseconds it has.
pub(super) type Scale = (&'static str, u64);

/// The unit that a range of latencies is shown in: nanoseconds, unless least, greatest and deviation all are large.
pub(super) fn scale(min: u64, max: u64, deviation: Option<f64>) -> Scale {
    let spread = |least: f64| deviation.is_none_or(|dev| dev > least);
    if min > 2_000_000 && max > 99_999_999 && spread(1e6) {
        ("msec", 1_000_000)
    } else if min > 2_000 && max > 99_999 && spread(1e3) {
        ("usec", 1_000)
    } else {
        ("nsec", 1)
    }
}
