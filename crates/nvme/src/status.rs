//! The status field of a completion (Base 4.2.3).

use std::fmt;

/// The 15-bit status field: Status Code in bits 7:0, Status Code Type in 10:8, Command Retry Delay in 12:11, More in
/// 13, Do Not Retry in 14. Zero is success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Successful Completion (Base 4.2.3.1, SCT 0h SC 00h).
    pub const SUCCESS: Status = Status(0);

    /// Whether the command succeeded; the retry hints do not matter.
    pub fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status type {}h code {:02x}h", self.0 >> 8 & 7, self.0 & 0xff)
    }
}
