//! Parsers for the values of options: numbers with units, times, ranges, lists, patterns. They
//! accept what fio accepts, but report what fio misreads.

use crate::job::{Amount, BlockSizes, FillPattern, PerOp};
use units::Nanos;

/// What is wrong with a value: text to be printed after the option's name and a colon.
pub(super) type ValueError = String;

/// A number with an optional unit. For compatibility fio reads `k` and `kb` as 1024, and `kib` as
/// 1000.
pub(super) fn number(text: &str) -> Result<u64, ValueError> {
    // Hexadecimal numbers have no unit: b would be a digit.
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16)
            .map_err(|_| format!("'{text}' is not a hexadecimal number"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err(match text.strip_prefix('-') {
            Some(_) => format!("'{text}' is negative"),
            None => format!("'{text}' is not a number"),
        });
    }
    if unit.starts_with('.') {
        return Err(format!("'{text}': not a whole number; use a smaller unit"));
    }
    // kb_base=1024, fio's default: k and kb are binary, kib is decimal.
    let lower = unit.to_ascii_lowercase();
    let (prefix, base) = match lower.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1000),
        _ => (lower.strip_suffix('b').unwrap_or(&lower), 1024),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == prefix);
    let power = power
        .ok_or_else(|| format!("'{text}': '{unit}' is not a unit (k, m, g, t, p; kb, kib, …)"))?;
    let factor = u64::pow(base, power as u32);
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| format!("'{text}' is too large"))
}

/// A number between two limits, inclusive.
pub(super) fn within(text: &str, min: u64, max: u64) -> Result<u64, ValueError> {
    match number(text)? {
        n if n < min => Err(format!("{n} is too small; the minimum is {min}")),
        n if n > max => Err(format!("{n} is too large; the maximum is {max}")),
        n => Ok(n),
    }
}

/// A number between two limits, inclusive, of 32 bits.
pub(super) fn small(text: &str, min: u64, max: u64) -> Result<u32, ValueError> {
    within(text, min, max.min(u32::MAX.into())).map(|n| n as u32)
}

/// Refuses a dash that would be a sign. In lists and ranges a dash separates values, none of which
/// may be negative.
pub(super) fn no_sign(text: &str) -> Result<(), ValueError> {
    // What stands before each dash: all parts but the last.
    let mut before = text.split('-').map(str::trim);
    before.next_back();
    match before.find(|before| before.is_empty() || before.ends_with([':', ','])) {
        Some(_) => Err(format!(
            "'{text}': there is no value before the dash; a dash separates two values, and neither may be negative"
        )),
        None => Ok(()),
    }
}

/// Bytes, or a percentage of the device.
pub(super) fn amount(text: &str) -> Result<Amount, ValueError> {
    match text.strip_suffix('%') {
        Some(percent) => within(percent, 0, 100).map(Amount::Percent),
        None if text.ends_with('z') => Err("zones ('z') are not supported yet".into()),
        None => number(text).map(Amount::Bytes),
    }
}

/// A time. A number without a unit counts units of `usual` nanoseconds.
pub(super) fn time(text: &str, usual: u64) -> Result<Nanos, ValueError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err(format!("'{text}' is not a time"));
    }
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        // The default unit differs by option: seconds, or microseconds.
        "" => usual,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(format!("'{text}': '{unit}' is not a unit of time (us, ms, s, m, h, d)")),
    };
    let nanos = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    nanos.map(Nanos).ok_or_else(|| format!("'{text}' is too long"))
}

/// One to three values for reads, writes and trims. An empty value is `None`, and the last value is
/// repeated for missing ones.
pub(super) fn per_op<T: Clone>(
    text: &str,
    separators: &[char],
    parse: impl Fn(&str) -> Result<T, ValueError>,
) -> Result<PerOp<Option<T>>, ValueError> {
    let parts: Vec<&str> = text.split(separators).map(str::trim).collect();
    if parts.len() > 3 {
        return Err(format!(
            "there are {} values; give at most three, for reads, writes and trims",
            parts.len()
        ));
    }
    let mut values = Vec::with_capacity(parts.len());
    for part in &parts {
        values.push(if part.is_empty() { None } else { Some(parse(part)?) });
    }
    if values.iter().all(Option::is_none) {
        return Err("the value is empty".into());
    }
    // fio: `bs=4k` sets all three, `bs=4k,8k` sets trims to the value of writes.
    let value = |at: usize| values.get(at).or(values.last()).cloned().flatten();
    Ok(PerOp { read: value(0), write: value(1), trim: value(2) })
}

/// `min-max`, in either order.
pub(super) fn range(text: &str) -> Result<BlockSizes, ValueError> {
    no_sign(text)?;
    let (a, b) =
        text.split_once(['-', ':']).ok_or_else(|| format!("'{text}' is not a range (min-max)"))?;
    let (a, b) = (number(a.trim())?, number(b.trim())?);
    match (a.min(b), a.max(b)) {
        (0, _) => Err("a block has at least one byte".into()),
        (min, max) => Ok(BlockSizes { min, max, split: Vec::new() }),
    }
}

/// `bssplit` of one operation: `size/percent:size/percent…`. The percentage that is left is divided
/// among the sizes without a percentage.
pub(super) fn split(text: &str) -> Result<BlockSizes, ValueError> {
    let mut entries = Vec::new();
    for entry in text.split(':') {
        let (size, share) = match entry.split_once('/') {
            Some((size, "")) => (size, None),
            Some((size, share)) => {
                (size, Some(within(share.trim_end_matches('%'), 0, 100)? as u32))
            }
            None => (entry, None),
        };
        entries.push((within(size.trim(), 1, u64::MAX)?, share));
        // Checked while parsing, to limit the memory.
        if entries.len() > 64 {
            return Err("there are more than 64 sizes".into());
        }
    }
    let given: u32 = entries.iter().filter_map(|(_, share)| *share).sum();
    let open = entries.iter().filter(|(_, share)| share.is_none()).count() as u32;
    if given > 100 {
        return Err(format!("the percentages add up to {given}, which is more than 100"));
    }
    let left = 100 - given;
    let each = left.checked_div(open).unwrap_or(0);
    let mut shares: Vec<(u64, u32)> =
        entries.into_iter().map(|(size, share)| (size, share.unwrap_or(each))).collect();
    // As in fio the remainder of the division goes to the most frequent size.
    if let Some((_, most)) = shares.iter_mut().max_by_key(|(_, share)| *share) {
        *most += left - each * open;
    }
    let (min, max) =
        shares.iter().fold((u64::MAX, 0), |(a, b), (bytes, _)| (a.min(*bytes), b.max(*bytes)));
    Ok(BlockSizes { min, max, split: shares })
}

/// `percentile_list`: percentages `a:b:c`, sorted, and the maximum number of digits after the
/// point.
pub(super) fn percentiles(text: &str) -> Result<(Vec<f64>, usize), ValueError> {
    let (mut list, mut precision) = (Vec::new(), 0);
    for part in text.split(':').map(str::trim) {
        let value: f64 = part.parse().map_err(|_| format!("'{part}' is not a number"))?;
        if !(0.0..=100.0).contains(&value) {
            return Err(format!("'{part}' is not between 0 and 100"));
        }
        precision =
            precision.max(part.split_once('.').map_or(0, |(_, digits)| digits.len().min(6)));
        list.push(value);
    }
    if list.len() > 20 {
        return Err(format!("there are {} percentiles; the maximum is 20", list.len()));
    }
    // As in fio, 0 is accepted, but is not a percentile.
    list.retain(|percent| *percent > 0.0);
    list.sort_by(f64::total_cmp);
    Ok((list, precision))
}

/// 0 or 1.
pub(super) fn flag(text: &str) -> Result<bool, ValueError> {
    match number(text) {
        Ok(0) => Ok(false),
        Ok(1) => Ok(true),
        _ => Err(format!("'{text}' is neither 0 nor 1")),
    }
}

/// `filename`: names separated by colons; `\:` is a colon in a name.
pub(super) fn filenames(text: &str) -> Result<Vec<String>, ValueError> {
    let (mut names, mut name, mut chars) = (Vec::new(), String::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            // Only an escaped colon is special; other backslashes belong to the name.
            '\\' if chars.peek() == Some(&':') => name.extend(chars.next()),
            ':' => names.push(std::mem::take(&mut name)),
            _ => name.push(c),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    match names.len() {
        0 => Err("the name is empty".into()),
        1..=1024 => Ok(names),
        n => Err(format!("there are {n} names; the maximum is 1024")),
    }
}

/// Maximum bytes of a pattern. fio up to 3.33 allows 512 bytes, later releases 128 MiB.
const MAX_PATTERN: usize = 1 << 20;
/// Maximum number of `%o` in a pattern, as in fio.
const MAX_OFFSETS: usize = 8;

/// Parses a pattern as fio does. It is a sequence of `"text"`, `0x` with hexadecimal digits,
/// decimal numbers of 32 bits (as little-endian bytes, without zero bytes at the end), and `%o`
/// (the I/O's offset in eight bytes).
pub(super) fn fill_pattern(text: &str) -> Result<FillPattern, ValueError> {
    let mut pattern = FillPattern::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' => {
                let (inside, rest) = rest[1..]
                    .split_once('"')
                    .ok_or_else(|| format!("'{rest}': the second '\"' is missing"))?;
                pattern.bytes.extend_from_slice(inside.as_bytes());
                rest
            }
            '%' => {
                let rest = rest
                    .strip_prefix("%o")
                    .ok_or_else(|| format!("'{rest}': the only format is %o"))?;
                if pattern.offsets.len() == MAX_OFFSETS {
                    return Err(format!("the pattern has %o more than {MAX_OFFSETS} times"));
                }
                pattern.offsets.push(pattern.bytes.len());
                pattern.bytes.extend_from_slice(&[0; 8]);
                rest
            }
            _ => {
                let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
                let text = hexadecimal.unwrap_or(rest);
                let sign = usize::from(hexadecimal.is_none() && text.starts_with('-'));
                let digit = |c: char| {
                    if hexadecimal.is_some() { c.is_ascii_hexdigit() } else { c.is_ascii_digit() }
                };
                let end = text[sign..].find(|c| !digit(c)).map_or(text.len(), |end| sign + end);
                // "120x34": the second 0 belongs to the 0x.
                let end = if text[end..].starts_with(['x', 'X']) && text[..end].ends_with('0') {
                    end - 1
                } else {
                    end
                };
                let (digits, after) = text.split_at(end);
                if hexadecimal.is_none() {
                    let number: i32 = digits.parse().map_err(|_| {
                        format!("'{text}' begins with no string (\"…\"), no number (0x…, or decimal, of 32 bits), and no %o")
                    })?;
                    let all = number.to_le_bytes();
                    pattern.bytes.extend_from_slice(
                        &all[..=all.iter().rposition(|byte| *byte != 0).unwrap_or(0)],
                    );
                } else if digits.is_empty() {
                    return Err(format!("'0x{text}': no hexadecimal digit follows 0x"));
                } else {
                    // With an odd number of digits the first digit is a byte.
                    let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
                    let byte =
                        |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | value(*digit));
                    pattern.bytes.extend(digits.as_bytes().rchunks(2).rev().map(byte));
                }
                after
            }
        };
        if pattern.bytes.len() > MAX_PATTERN {
            return Err(format!("the pattern has more than {MAX_PATTERN} bytes"));
        }
    }
    if pattern.bytes.is_empty() { Err("the pattern is empty".into()) } else { Ok(pattern) }
}

#[cfg(test)]
mod tests;
