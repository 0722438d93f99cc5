//! What `compare` compares: a mode, or `adaptive` at a price of latency.

use std::fmt;
use std::str::FromStr;

use completion::{LatencyPrice, Mode};

/// A mode, or `adaptive` with a latency price of its own: `poll`, `adaptive@0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// How completions are found.
    pub mode: Mode,
    /// `None`: as `--latency-price` says.
    pub price: Option<LatencyPrice>,
}

impl Variant {
    /// A mode as it is.
    pub const fn plain(mode: Mode) -> Variant {
        Variant { mode, price: None }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.price {
            Some(price) => write!(f, "{}@{price}", self.mode),
            None => self.mode.fmt(f),
        }
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        let (mode, price) = match text.split_once('@') {
            Some((mode, price)) => (mode, Some(price.parse::<LatencyPrice>().map_err(|error| error.to_string())?)),
            None => (text, None),
        };
        let mode = Mode::parse_any(mode).map_err(|error| error.to_string())?;
        if price.is_some() && mode != Mode::ADAPTIVE {
            return Err(format!("{mode} has no knob: only adaptive@PRICE sets one"));
        }
        Ok(Variant { mode, price })
    }
}
