//! Data structures that travel in pages: read from bytes that the other side wrote, written as
//! bytes.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A structure whose every bit pattern is a value: Identify data, log pages, feature data. Its
/// `Default` is all zeroes: what reserved fields and features not supported read as.
///
/// Each is as long in memory as in the specification ([`Page::LEN`]) and has every field in its
/// place, so that reading copies and checks only the length. Reserved fields are public but hidden,
/// for `..Default::default()`.
pub trait Page: FromBytes + IntoBytes + Immutable + Sized {
    /// Bytes.
    const LEN: usize = size_of::<Self>();

    /// The structure at the start of `bytes`, of which there may be more.
    fn from_page(bytes: &[u8]) -> Result<Self, TooShort> {
        match Self::read_from_prefix(bytes) {
            Ok((page, _)) => Ok(page),
            Err(_) => Err(TooShort { need: Self::LEN, got: bytes.len() }),
        }
    }

    /// The bytes that go to the other side.
    fn as_page(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Fewer bytes than the structure has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{got} bytes are too few for a structure of {need}: give the buffer that the command filled, whole"
)]
pub struct TooShort {
    /// Bytes of the structure.
    pub need: usize,
    /// Bytes given.
    pub got: usize,
}

/// Implements [`Page`] and an all-zero `Default`, and checks the length against the specification.
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

/// Text in a fixed field: serial number, model, firmware revision, NQN (ASCII, left justified and
/// padded with spaces: Base 4.5.2; NQNs end with a NUL: Base 4.7).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// ASCII, cut to the field and padded with spaces. What is not printable ASCII becomes `?`.
    pub fn ascii(text: &str) -> Text<N> {
        let mut field = [b' '; N];
        for (to, from) in field.iter_mut().zip(text.chars()) {
            *to = if printable(from) { from as u8 } else { b'?' };
        }
        Text(field)
    }

    /// UTF-8 that ends with a NUL, cut to the field at a character.
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

/// The text without its padding, safe to print whatever the device wrote.
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
