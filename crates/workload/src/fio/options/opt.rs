//! What an option is.

use crate::fio::draft::Draft;
use crate::fio::values::Bad;

/// What may follow the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fio) enum Takes {
    /// A value.
    Value,
    /// 0 or 1.
    Bool,
    /// Nothing, which means 1; or a number.
    Flag,
}

/// An option.
pub(in crate::fio) struct Opt {
    /// Its name and its synonyms.
    pub names: &'static [&'static str],
    pub takes: Takes,
    /// Applies a value.
    pub set: fn(&mut Draft, &str) -> Result<(), Bad>,
}

pub(super) const fn value(names: &'static [&'static str], set: fn(&mut Draft, &str) -> Result<(), Bad>) -> Opt {
    Opt { names, takes: Takes::Value, set }
}

pub(super) const fn boolean(names: &'static [&'static str], set: fn(&mut Draft, &str) -> Result<(), Bad>) -> Opt {
    Opt { names, takes: Takes::Bool, set }
}

pub(super) const fn flag(names: &'static [&'static str], set: fn(&mut Draft, &str) -> Result<(), Bad>) -> Opt {
    Opt { names, takes: Takes::Flag, set }
}

pub(super) fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, Bad> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("'{text}' is none of {}", names.join(", "))
    })
}
