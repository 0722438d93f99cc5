//! What is compared: a mode, or `adaptive` at a price.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_a_mode_or_a_price() {
        let adaptive = |price| Variant { mode: Mode::ADAPTIVE, price: Some(LatencyPrice::per_mille(price)) };
        assert_eq!("poll".parse(), Ok(Variant::plain(Mode::POLL)));
        assert_eq!("adaptive@0.5".parse(), Ok(adaptive(500)));
        assert_eq!(adaptive(500).to_string(), "adaptive@0.5");
        assert_eq!(adaptive(0).to_string().parse(), Ok(adaptive(0)));
        assert!("poll@0.1".parse::<Variant>().unwrap_err().contains("no knob"));
        assert!("adaptive@x".parse::<Variant>().unwrap_err().contains("'x' is no latency price"));
        assert!("pol".parse::<Variant>().unwrap_err().contains("did you mean 'poll'"));
    }
}
