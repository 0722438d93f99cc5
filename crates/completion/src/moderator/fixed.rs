//! `coalesce`: one setting, for ever, as an administrator's `set-feature` at boot.

use crate::Coalesce;

/// A message for eight entries, or 100 µs after the first: the shortest time that the feature can say, and as many entries
/// as leave a message per eight commands at a queue depth that fills them within it.
pub(super) const SETTING: Coalesce = Coalesce::new(8, 1);
