//! `profile=`: a built-in service-time profile by name, or one of the user's own from a TOML file.

use std::path::Path;

use emu::Profile;

use crate::error::OpenError;
use crate::uri::DeviceUri;

/// No profile is this long.
const MAX_PROFILE_BYTES: u64 = 16 << 20;

/// The profile that `name` names: a built-in one, or the file of that path if it ends in `.toml`.
pub(super) fn load(name: &str) -> Result<Profile, OpenError> {
    let fail = |what: String| OpenError::Profile { name: name.to_owned(), what };
    if !name.ends_with(".toml") {
        return name.parse().map_err(|e| fail(format!("{e}; a profile of your own is the path of a file that ends in `.toml`")));
    }
    let text = hw::read_text(Path::new(name), MAX_PROFILE_BYTES).map_err(|e| fail(format!("cannot read it: {e}")))?;
    let file: Profile = toml::from_str(&text).map_err(|e| fail(format!("not a profile: {e}")))?;
    let stem = Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    Ok(Profile { name: stem, ..file })
}

impl DeviceUri {
    /// The profile that it names, read from its file if it has one.
    ///
    /// # Errors
    /// There is none of that name, or the file describes none.
    pub fn load_profile(&self) -> Result<Profile, OpenError> {
        load(&self.profile)
    }
}

#[cfg(test)]
mod tests;
