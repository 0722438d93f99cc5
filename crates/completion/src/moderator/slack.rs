//! `adaptive`: what its queues' policies allow, which know what is in flight and how late it may be found.

use crate::Coalesce;

/// A threshold that is lower than allowed by no more than one part in so many is left as it is: a change costs a command.
const ALIKE: u16 = 4;

/// The setting for what is `allowed`, while another is in force.
pub(super) fn setting(in_force: Coalesce, allowed: Coalesce) -> Coalesce {
    let (most, least) = (allowed.entries(), allowed.entries() - allowed.entries() / ALIKE);
    if in_force.time() == allowed.time() && (least..=most).contains(&in_force.entries()) { in_force } else { allowed }
}
