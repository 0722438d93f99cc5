//! Log pages.

/// Log page identifiers (Base 5.1.12.1).
pub mod lid {
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Attached Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
}
