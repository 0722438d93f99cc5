//! Parsing of the elements of device URIs: parameters, sizes, numbers, choices, percent-encoding.
//! Errors are texts; the caller adds the column.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// Calls `set` with each `key=value` of a query. `at`: the byte offset of the query in the URI.
///
/// # Errors
/// A parameter has no value, is given twice, or is refused by `set`. Returns its offset, and what
/// is wrong.
pub(crate) fn each_parameter(
    query: Option<&str>,
    mut at: usize,
    example: &str,
    mut set: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), (usize, String)> {
    let mut seen = Vec::new();
    for pair in query.into_iter().flat_map(|q| q.split('&')) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| (at, format!("`{pair}` needs a value, as in `{example}`")))?;
        // Called before the check for repetition, so that an unknown key is reported as unknown.
        set(key, value).map_err(|what| (at, what))?;
        if seen.contains(&key) {
            return Err((at, format!("`{key}` is given twice")));
        }
        seen.push(key);
        at += pair.len() + 1;
    }
    Ok(())
}

/// The error for an unknown parameter; it suggests the nearest one or lists all.
pub(crate) fn no_parameter(key: &str, known: &str) -> String {
    let nearest = units::nearest_name(key, known.split(", "));
    let hint =
        nearest.map_or_else(|| format!("known are {known}"), |k| format!("did you mean `{k}`?"));
    format!("there is no parameter `{key}`; {hint}")
}

/// Parses bytes with an optional suffix, in any case: `4096`, `64K`, `1gb`, `2TiB`. All are powers
/// of 1024, as fio reads `kb` by default (`kb_base=1024`). Unlike fio, which by default reads `kib`
/// as 1000, this reads `kib` as 1024, as the standard says.
///
/// # Errors
/// It is not a size, or out of range.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let no_size =
        || format!("`{text}` is not a size; write it as `1G`, `512M` or a number of bytes");
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(no_size());
    }
    // Case-insensitive, as in fio: `1g`, `1G` and `1GiB` are the same.
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        other => {
            return Err(format!(
                "`{other}` is not a unit of size; use K, M, G, T or P (powers of 1024)"
            ));
        }
    };
    let n: u64 = digits.parse().map_err(|_| no_size())?;
    // At most 1 PiB, far from where sums of byte offsets overflow.
    n.checked_mul(1 << unit)
        .filter(|&b| b > 0 && b <= 1 << 50)
        .ok_or_else(|| format!("`{text}` is out of range: 1 byte to 1024T"))
}

/// The shortest exact text of a size that [`parse_size`] reads.
pub(crate) fn show_size(bytes: u64) -> String {
    // Only units that divide the size exactly: the text must parse to the same number.
    let unit = (bytes.trailing_zeros() / 10).min(4) as usize;
    format!("{}{}", bytes >> (10 * unit), ["", "K", "M", "G", "T"][unit])
}

/// Checks that `bytes` is a multiple of `block`, and not 0.
///
/// # Errors
/// It is not.
pub(crate) fn whole_blocks(bytes: u64, block: u32) -> Result<(), String> {
    match bytes {
        b if b < u64::from(block) => {
            Err(format!("{b} bytes are less than one block of {block} bytes"))
        }
        b if b % u64::from(block) != 0 => {
            Err(format!("{b} bytes are not whole blocks of {block} bytes"))
        }
        _ => Ok(()),
    }
}

/// Parses a whole number from `low` to `high`.
///
/// # Errors
/// The value is not such a number.
pub(crate) fn within(key: &str, value: &str, low: u64, high: u64) -> Result<u64, String> {
    value
        .parse()
        .ok()
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| format!("`{key}={value}`: expected a whole number from {low} to {high}"))
}

/// Checks that the value of a parameter is one of `words`.
///
/// # Errors
/// It is none of the words.
pub(crate) fn one_of<'a>(key: &str, value: &'a str, words: &[&str]) -> Result<&'a str, String> {
    if words.contains(&value) {
        return Ok(value);
    }
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    let (last, first) = quoted
        .split_last()
        .map_or((String::new(), String::new()), |(last, first)| (last.clone(), first.join(", ")));
    Err(format!("`{key}={value}`: expected {first} or {last}"))
}

/// Decodes percent-encoding, so that a text may contain `?` and `&`.
///
/// # Errors
/// The bytes are not UTF-8.
pub(crate) fn decode(text: &str) -> Result<String, String> {
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| format!("`{text}` is not UTF-8 once decoded"))
}

/// Decodes percent-encoding of a path, which may be any bytes but NUL.
///
/// # Errors
/// It is empty or contains NUL.
pub(crate) fn decode_path(text: &str) -> Result<PathBuf, String> {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    if bytes.is_empty() {
        return Err("a path must follow the colon".into());
    }
    if bytes.contains(&0) {
        return Err(format!("`{text}` contains a NUL byte (`%00`), which no path may"));
    }
    Ok(OsString::from_vec(bytes).into())
}

/// Encodes a parameter's value for [`decode`].
pub(crate) fn encode(value: &str) -> String {
    // `?` need not be encoded in a value: the first `?` of a URI begins the parameters, and later
    // ones are ordinary.
    const MISREAD: &AsciiSet = &CONTROLS.add(b'%').add(b'&').add(b' ');
    percent_encode(value.as_bytes(), MISREAD).to_string()
}

/// Encodes a path for [`decode_path`].
pub(crate) fn encode_path(path: &Path) -> String {
    // `&` and `=` are ordinary characters before the `?`.
    const MISREAD: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b' ');
    percent_encode(path.as_os_str().as_bytes(), MISREAD).to_string()
}
