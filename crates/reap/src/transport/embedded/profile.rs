//! `profile=`: a built-in service-time profile by name, or the user's own from a TOML file.

use std::path::Path;

use emu::Profile;

use crate::error::OpenError;

/// Largest profile file that is read, in bytes: a mistyped path must not fill the memory.
const MAX_PROFILE_BYTES: u64 = 16 << 20;

/// Loads the profile `name`: a built-in one, or a file if it ends in `.toml`.
pub(super) fn load(name: &str) -> Result<Profile, OpenError> {
    let fail = |what: String| OpenError::Profile { name: name.to_owned(), what };
    if !name.ends_with(".toml") {
        return name.parse().map_err(|e| {
            fail(format!("{e}; a profile of your own is the path of a file that ends in `.toml`"))
        });
    }
    let text = hw::read_text(Path::new(name), MAX_PROFILE_BYTES)
        .map_err(|e| fail(format!("cannot read it: {e}")))?;
    let file: Profile = toml::from_str(&text).map_err(|e| fail(format!("not a profile: {e}")))?;
    let stem =
        Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    Ok(Profile { name: stem, ..file })
}

#[cfg(test)]
mod tests;
