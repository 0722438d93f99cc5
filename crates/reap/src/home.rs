//! The process that opens devices. The threads that look after them are its own: a forked child has none of them, and locks as they
//! were at that moment.

use std::sync::OnceLock;

use hw::Birth;

/// Whether devices can be opened here: none was opened before a fork that made this process. The first call says which process it is.
pub(crate) fn is_home() -> bool {
    static HOME: OnceLock<Birth> = OnceLock::new();
    HOME.get_or_init(Birth::here).is_here()
}
