//! Data structures that are transferred in pages, encoded and decoded without conversion.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A structure for which every bit pattern is valid: Identify data, log pages, feature data. Its
/// `Default` is all zeroes, the value of reserved fields and unsupported features.
///
/// The layout in memory is that of the specification, with [`Page::LEN`] bytes, so that decoding is
/// a copy and a length check. Reserved fields are public but hidden, for `..Default::default()`.
pub trait Page: FromBytes + IntoBytes + Immutable + Sized {
    /// Size in bytes.
    const LEN: usize = size_of::<Self>();

    /// Copies the structure from the start of `bytes`, which may be longer.
    fn from_page(bytes: &[u8]) -> Result<Self, TooShort> {
        match Self::read_from_prefix(bytes) {
            Ok((page, _)) => Ok(page),
            Err(_) => Err(TooShort { need: Self::LEN, got: bytes.len() }),
        }
    }

    /// The bytes to transfer.
    fn as_page(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The structure is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the structure has {need} bytes, and the buffer {got}: pass the whole buffer that the command filled"
)]
pub struct TooShort {
    /// Size of the structure in bytes.
    pub need: usize,
    /// Bytes given.
    pub got: usize,
}

/// Implements [`Page`] and an all-zero `Default`, and checks the size against the specification.
macro_rules! page {
    ($name:ty, $len:literal) => {
        impl $crate::Page for $name {}
        const _: () = assert!(size_of::<$name>() == $len);

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}
pub(crate) use page;

/// Text in a field of N bytes. Serial number, model and firmware revision are ASCII, left justified
/// and padded with spaces (Base §4.5.2); NQNs are NUL terminated (Base §4.7).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// ASCII, truncated to the field and padded with spaces. Other characters become `?`.
    pub fn ascii(text: &str) -> Text<N> {
        let mut field = [b' '; N];
        for (to, from) in field.iter_mut().zip(text.chars()) {
            *to = if printable(from) { from as u8 } else { b'?' };
        }
        Text(field)
    }

    /// NUL-terminated UTF-8, truncated at a character boundary.
    pub fn nul_terminated(text: &str) -> Text<N> {
        let mut field = [0; N];
        let end = text.floor_char_boundary(N.saturating_sub(1));
        for (to, from) in field.iter_mut().zip(text.bytes().take(end)) {
            *to = from;
        }
        Text(field)
    }
}

fn printable(c: char) -> bool {
    matches!(c, ' '..='~')
}

/// The text without padding. Control characters, which a device may have written, become `?`.
impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until_nul = self.0.split(|&b| b == 0).next().unwrap_or_default();
        let text: String = until_nul
            .trim_ascii()
            .iter()
            .map(|&b| if printable(char::from(b)) { char::from(b) } else { '?' })
            .collect();
        f.pad(&text)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests;
