//! `verify_pattern`: strings, numbers and `%o`, one after the other.

use super::values::Bad;
use crate::job::FillPattern;

/// Most bytes of a pattern. fio takes 512 up to 3.33 and 128 MiB since; a line is shorter, so that only files are so long.
pub(super) const MOST: usize = 1 << 20;
/// Most `%o` in fio.
const MOST_OFFSETS: usize = 8;

/// Reads a pattern as fio does: `"text"`, `0x` and hexadecimal digits, a decimal number (its bytes from the lowest on, without
/// leading zeroes), `%o` (eight bytes that hold the I/O's offset), in any number and order.
pub(super) fn pattern(text: &str) -> Result<FillPattern, Bad> {
    let mut pattern = FillPattern::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' => string(&rest[1..], &mut pattern.bytes)?,
            '%' => offset(&rest[1..], &mut pattern)?,
            _ => match rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
                Some(digits) => hexadecimal(digits, &mut pattern.bytes)?,
                None => decimal(rest, &mut pattern.bytes)?,
            },
        };
        if pattern.bytes.len() > MOST {
            return Err(format!("more than {MOST} bytes"));
        }
    }
    if pattern.bytes.is_empty() { Err("no byte".into()) } else { Ok(pattern) }
}

fn string<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, Bad> {
    let (inside, rest) = text.split_once('"').ok_or_else(|| format!("'\"{text}': the second '\"' is missing"))?;
    bytes.extend_from_slice(inside.as_bytes());
    Ok(rest)
}

fn offset<'a>(text: &'a str, pattern: &mut FillPattern) -> Result<&'a str, Bad> {
    let rest = text.strip_prefix('o').ok_or_else(|| format!("'%{text}': the only format is %o"))?;
    if pattern.offsets.len() == MOST_OFFSETS {
        return Err(format!("more than {MOST_OFFSETS} times %o"));
    }
    pattern.offsets.push(pattern.bytes.len());
    pattern.bytes.extend_from_slice(&[0; 8]);
    Ok(rest)
}

fn hexadecimal<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, Bad> {
    let mut end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    // The 0 of a 0x that follows.
    if text[end..].starts_with(['x', 'X']) && text[..end].ends_with('0') {
        end -= 1;
    }
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Err(format!("'0x{text}': no hexadecimal digit follows 0x"));
    }
    // Of an odd number of digits the first one is a byte of its own.
    let (odd, pairs) = digits.split_at(digits.len() % 2);
    let byte = |digits: &str| u8::from_str_radix(digits, 16).map_err(|_| format!("'{digits}' is no hexadecimal number"));
    if !odd.is_empty() {
        bytes.push(byte(odd)?);
    }
    for at in (0..pairs.len()).step_by(2) {
        bytes.push(byte(&pairs[at..at + 2])?);
    }
    Ok(rest)
}

fn decimal<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, Bad> {
    let sign = usize::from(text.starts_with('-'));
    let end = text[sign..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| sign + end);
    // The 0 of a 0x that follows.
    let end = if text[end..].starts_with(['x', 'X']) && text[..end].ends_with('0') { end - 1 } else { end };
    let (digits, rest) = text.split_at(end);
    let number: i32 = digits
        .parse()
        .map_err(|_| format!("'{text}' begins with no string (\"…\"), no number (0x…, or decimal, of 32 bits), and no %o"))?;
    let all = number.to_le_bytes();
    let used = all.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    bytes.extend_from_slice(&all[..used]);
    Ok(rest)
}

#[cfg(test)]
mod tests;
