//! Named values in an order, laid out as nvme-cli lays them out: `name : value` lines, or one JSON object.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A value, and how people are shown it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A number in decimal digits.
    Dec(u128),
    /// A number in hexadecimal digits; 0 is a plain 0, as in printf's `%#x`.
    Hex(u64),
    /// A text, in quotation marks in JSON.
    Text(String),
    /// A text for people, a number for scripts.
    Both(String, u64),
    /// For scripts alone.
    List(Vec<Value>),
    /// For people alone: lines that stand where they stand.
    Lines(String),
}

/// Values by name, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<(&'static str, Shown)>);

impl Fields {
    /// Appends a number for people in decimal digits.
    pub fn dec(&mut self, key: &'static str, value: impl Into<u128>) {
        self.0.push((key, Shown::Dec(value.into())));
    }

    /// Appends a number for people in hexadecimal digits.
    pub fn hex(&mut self, key: &'static str, value: impl Into<u64>) {
        self.0.push((key, Shown::Hex(value.into())));
    }

    /// Appends a text.
    pub fn text(&mut self, key: &'static str, value: impl Into<String>) {
        self.0.push((key, Shown::Text(value.into())));
    }

    /// Appends anything.
    pub fn push(&mut self, key: &'static str, value: Shown) {
        self.0.push((key, value));
    }

    /// Lines for people; names are padded to `width`.
    pub fn lines(&self, width: usize) -> String {
        let mut out = String::new();
        for (key, value) in &self.0 {
            // A String takes whatever is written to it.
            _ = match value {
                Shown::Dec(n) => writeln!(out, "{key:width$}: {n}"),
                Shown::Hex(0) => writeln!(out, "{key:width$}: 0"),
                Shown::Hex(n) => writeln!(out, "{key:width$}: {n:#x}"),
                Shown::Text(text) | Shown::Both(text, _) => writeln!(out, "{key:width$}: {text}"),
                Shown::List(_) => Ok(()),
                Shown::Lines(lines) => write!(out, "{lines}"),
            };
        }
        out
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.0 {
            match value {
                Shown::Dec(n) => map.serialize_entry(key, n)?,
                Shown::Hex(n) | Shown::Both(_, n) => map.serialize_entry(key, n)?,
                Shown::Text(text) => map.serialize_entry(key, text)?,
                Shown::List(list) => map.serialize_entry(key, list)?,
                Shown::Lines(_) => {}
            }
        }
        map.end()
    }
}

/// A text field up to its NUL, with its padding, as nvme-cli prints it; what no terminal shows as a character is a question mark.
pub fn padded(field: &[u8]) -> String {
    let until_nul = field.split(|&byte| byte == 0).next().unwrap_or_default();
    until_nul.iter().map(|&byte| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' }).collect()
}

/// Bytes as pairs of digits.
pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        _ = write!(out, "{byte:02x}");
        out
    })
}
