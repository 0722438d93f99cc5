//! Command opcodes (CDW0.OPC), with their names.

/// Admin commands (Base 5, figure "Opcodes for Admin Commands").
pub mod admin {
    /// Delete I/O Submission Queue (Base 5.2.4).
    pub const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue (Base 5.2.2).
    pub const CREATE_SQ: u8 = 0x01;
    /// Get Log Page (Base 5.1.12).
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue (Base 5.2.3).
    pub const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue (Base 5.2.1).
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify (Base 5.1.13).
    pub const IDENTIFY: u8 = 0x06;
    /// Abort (Base 5.1.1).
    pub const ABORT: u8 = 0x08;
    /// Set Features (Base 5.1.25).
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features (Base 5.1.11).
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request (Base 5.1.2).
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive (Base 5.1.14).
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Doorbell Buffer Config (Base 5.2.5).
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;

    /// The command's name, if this crate knows it.
    pub const fn name(opcode: u8) -> Option<&'static str> {
        Some(match opcode {
            DELETE_SQ => "Delete I/O Submission Queue",
            CREATE_SQ => "Create I/O Submission Queue",
            GET_LOG_PAGE => "Get Log Page",
            DELETE_CQ => "Delete I/O Completion Queue",
            CREATE_CQ => "Create I/O Completion Queue",
            IDENTIFY => "Identify",
            ABORT => "Abort",
            SET_FEATURES => "Set Features",
            GET_FEATURES => "Get Features",
            ASYNC_EVENT_REQUEST => "Asynchronous Event Request",
            KEEP_ALIVE => "Keep Alive",
            DOORBELL_BUFFER_CONFIG => "Doorbell Buffer Config",
            _ => return None,
        })
    }
}

/// I/O commands of the NVM command set (NVM 3.3; Flush is common to all sets: Base 7.2).
pub mod io {
    /// Flush (Base 7.2).
    pub const FLUSH: u8 = 0x00;
    /// Write (NVM 3.3.6).
    pub const WRITE: u8 = 0x01;
    /// Read (NVM 3.3.4).
    pub const READ: u8 = 0x02;
    /// Write Uncorrectable (NVM 3.3.7).
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    /// Compare (NVM 3.3.1).
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes (NVM 3.3.8).
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management (NVM 3.3.3).
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify (NVM 3.3.5).
    pub const VERIFY: u8 = 0x0c;

    /// The command's name, if this crate knows it.
    pub const fn name(opcode: u8) -> Option<&'static str> {
        Some(match opcode {
            FLUSH => "Flush",
            WRITE => "Write",
            READ => "Read",
            WRITE_UNCORRECTABLE => "Write Uncorrectable",
            COMPARE => "Compare",
            WRITE_ZEROES => "Write Zeroes",
            DATASET_MANAGEMENT => "Dataset Management",
            VERIFY => "Verify",
            _ => return None,
        })
    }
}
