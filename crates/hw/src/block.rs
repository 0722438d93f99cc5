//! Block devices as the system shows them, and who uses them. No descriptor is needed, and no device is opened.

mod completing;
mod disk;
mod users;

pub use completing::Completing;
pub use disk::{Disk, Identity, loops};
pub use users::{Mount, Users, mount_of, mounts, openers, process_name, swaps};
