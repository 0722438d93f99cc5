//! Command opcodes (CDW0.OPC).

/// Admin commands (Base §5, figure "Opcodes for Admin Commands").
pub mod admin {
    /// Delete I/O Submission Queue (Base §5.2.4).
    pub const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue (Base §5.2.2).
    pub const CREATE_SQ: u8 = 0x01;
    /// Get Log Page (Base §5.1.12).
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue (Base §5.2.3).
    pub const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue (Base §5.2.1).
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify (Base §5.1.13).
    pub const IDENTIFY: u8 = 0x06;
    /// Abort (Base §5.1.1).
    pub const ABORT: u8 = 0x08;
    /// Set Features (Base §5.1.25).
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features (Base §5.1.11).
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request (Base §5.1.2).
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Namespace Management (Base §5.1.21).
    pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
    /// Firmware Commit (Base §5.1.8).
    pub const FIRMWARE_COMMIT: u8 = 0x10;
    /// Namespace Attachment (Base §5.1.20).
    pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
    /// Keep Alive (Base §5.1.14).
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Virtualization Management (Base §5.2.6).
    pub const VIRTUALIZATION_MANAGEMENT: u8 = 0x1c;
    /// Capacity Management (Base §5.1.3).
    pub const CAPACITY_MANAGEMENT: u8 = 0x20;
    /// Cross-Controller Reset (TP8028).
    pub const CROSS_CONTROLLER_RESET: u8 = 0x38;
    /// Migration Send (Base §5.1.17).
    pub const MIGRATION_SEND: u8 = 0x41;
    /// Controller Data Queue (Base §5.1.4).
    pub const CONTROLLER_DATA_QUEUE: u8 = 0x45;
    /// Doorbell Buffer Config (Base §5.2.5).
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
    /// Fabrics commands (Base §6).
    pub const FABRICS: u8 = 0x7f;
    /// Format NVM (Base §5.1.10).
    pub const FORMAT_NVM: u8 = 0x80;
}

/// I/O commands of the NVM command set (NVM §3.3; Flush is common to all sets: Base §7.2).
pub mod io {
    /// Flush (Base §7.2).
    pub const FLUSH: u8 = 0x00;
    /// Write (NVM §3.3.6).
    pub const WRITE: u8 = 0x01;
    /// Read (NVM §3.3.4).
    pub const READ: u8 = 0x02;
    /// Write Uncorrectable (NVM §3.3.7).
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    /// Compare (NVM §3.3.1).
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes (NVM §3.3.8).
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management (NVM §3.3.3).
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify (NVM §3.3.5).
    pub const VERIFY: u8 = 0x0c;
    /// Reservation Report (Base §7.7).
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// I/O Management Receive (Base §7.3).
    pub const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
    /// Zone Management Receive (ZNS §3.4.2).
    pub const ZONE_MANAGEMENT_RECEIVE: u8 = 0x7a;
}
