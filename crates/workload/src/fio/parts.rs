//! Groups of options that make one value together.

use super::values::{self, Bad};

/// The errnos that `continue_on_error` means: I/O error, and data that are not what was written.
pub(super) const NON_FATAL: [i32; 2] = [5, 84];

/// `ignore_error`: errors of one operation, by name or number, separated by colons.
pub(super) fn errnos(text: &str) -> Result<Vec<i32>, Bad> {
    const NAMES: [(&str, i32); 12] = [
        ("EPERM", 1),
        ("EIO", 5),
        ("EAGAIN", 11),
        ("ENOMEM", 12),
        ("EBUSY", 16),
        ("EINVAL", 22),
        ("ENOSPC", 28),
        ("EREMOTEIO", 121),
        ("EDQUOT", 122),
        ("EOPNOTSUPP", 95),
        ("EILSEQ", 84),
        ("ETIMEDOUT", 110),
    ];
    let one = |text: &str| {
        let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, code)| *code);
        let code = named
            .or_else(|| values::number(text, 1024).ok().and_then(|code| i32::try_from(code).ok()).filter(|code| (1..4096).contains(code)));
        code.ok_or_else(|| format!("'{text}' is no error: a name such as EIO, or a number"))
    };
    text.split(':').map(|part| one(part.trim())).collect()
}
