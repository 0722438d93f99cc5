//! What is compared: a mode, or a mode with a setting of its knob.

use std::fmt;
use std::str::FromStr;

use completion::{Delivery, LatencyPrice, Mode, Moderation, Placement};

/// `poll`, `adaptive`, `adaptive@0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// How completions are found.
    pub mode: Mode,
    /// What latency is worth to `adaptive`; `None`: as `--latency-price` says.
    pub price: Option<LatencyPrice>,
}

impl Contender {
    /// A mode as it is.
    pub const fn plain(mode: Mode) -> Contender {
        Contender { mode, price: None }
    }

    /// Whether it does as `--latency-price` says.
    pub fn asks(&self) -> bool {
        self.mode == Mode::ADAPTIVE && self.price.is_none()
    }

    /// `adaptive` with a price of so many thousandths.
    pub const fn adaptive(thousandths: u32) -> Contender {
        Contender { mode: Mode::ADAPTIVE, price: Some(LatencyPrice::per_mille(thousandths)) }
    }
}

/// The mode that `mode` is the same as on a device that tells that it is something else than its name says: one that cannot have its
/// messages held back, or gathered, or its completions taken by another thread, has what is left of them.
pub fn stands_for(mode: Mode, otherwise: bool) -> Mode {
    let held_back = mode.moderation().is_some_and(Moderation::is_all_there_is);
    let elsewhere = mode.delivery() == Delivery::Posted || mode.placement() == Placement::DrainThread;
    match otherwise && (held_back || elsewhere) {
        true if mode.submit_check() => Mode::INTERRUPT_CHECKED,
        true => Mode::INTERRUPT,
        false => mode,
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.price {
            Some(price) => write!(f, "{}@{price}", self.mode),
            None => self.mode.fmt(f),
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Contender, String> {
        let (mode, price) = match text.split_once('@') {
            Some((mode, price)) => (mode, Some(price.parse::<LatencyPrice>().map_err(|error| error.to_string())?)),
            None => (text, None),
        };
        let mode = Mode::parse_any(mode).map_err(|error| error.to_string())?;
        if price.is_some() && mode != Mode::ADAPTIVE {
            return Err(format!("{mode} has no knob: only adaptive@PRICE sets one"));
        }
        Ok(Contender { mode, price })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_is_a_mode_or_a_setting_of_adaptive() {
        assert_eq!("poll".parse(), Ok(Contender::plain(Mode::POLL)));
        assert_eq!("adaptive@0.5".parse(), Ok(Contender::adaptive(500)));
        assert_eq!(Contender::adaptive(500).to_string(), "adaptive@0.5");
        assert_eq!(Contender::adaptive(0).to_string().parse(), Ok(Contender::adaptive(0)));
        assert!("poll@0.1".parse::<Contender>().unwrap_err().contains("no knob"));
        assert!("adaptive@x".parse::<Contender>().unwrap_err().contains("'x' is no latency price"));
        assert!("pol".parse::<Contender>().unwrap_err().contains("did you mean 'poll'"));
    }
}
