//! Block devices as the system shows them, and who uses them. None is opened but loop devices, to be asked for their file.

mod completing;
mod disk;
mod users;

pub use completing::Completing;
pub use disk::{Disk, Identity, Loop, loops};
pub use users::{Mount, Users, mount_of, mounts, openers, process_name, swaps};
