//! What a controller supports, and what it does to the subsystem: log pages 00h, 05h and 12h.

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::page::page;

/// Bits of CSP and FSP: what a command, or setting a feature, may change (Base 5.1.12.1.6 and 5.1.12.1.18).
pub mod scope {
    /// NSCPE: namespaces.
    pub const NAMESPACE: u16 = 1 << 0;
    /// CSCPE: the controller.
    pub const CONTROLLER: u16 = 1 << 1;
}

/// Supported Log Pages (Base 5.1.12.1.1): 1024 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SupportedLogPages {
    /// LIDS0 to LIDS255, by log page identifier.
    pub lids: [LidSupported; 256],
}

page!(SupportedLogPages, 1024);

/// LID Supported and Effects (Base 5.1.12.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LidSupported {
    /// LSUPP: Get Log Page takes the identifier.
    pub lsupp: bool,
    /// IOS: with an index offset as well.
    pub ios: bool,
    #[bits(14)]
    __: u16,
    /// LIDSP: by page.
    pub lidsp: u16,
}

/// Commands Supported and Effects (Base 5.1.12.1.6): 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandsSupported {
    /// ACS0 to ACS255, admin commands by opcode.
    pub admin: [CommandSupported; 256],
    /// IOCS0 to IOCS255, I/O commands by opcode.
    pub io: [CommandSupported; 256],
    #[doc(hidden)]
    pub reserved2048: [u8; 2048],
}

page!(CommandsSupported, 4096);

/// Commands Supported and Effects of one opcode (Base 5.1.12.1.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CommandSupported {
    /// CSUPP: the controller takes the opcode.
    pub csupp: bool,
    /// LBCC: logical blocks may change.
    pub lbcc: bool,
    /// NCC: what a namespace can do may change.
    pub ncc: bool,
    /// NIC: namespaces may come and go.
    pub nic: bool,
    /// CCC: what the controller can do may change.
    pub ccc: bool,
    #[bits(9)]
    __: u16,
    /// CSER: relaxations of CSE.
    #[bits(2)]
    pub cser: u8,
    /// CSE: 1, alone on its namespace; 2, alone on all namespaces.
    #[bits(3)]
    pub cse: u8,
    /// USS: a UUID can be selected.
    pub uss: bool,
    /// CSP: [`scope`]; 0 is not said.
    #[bits(12)]
    pub csp: u16,
}

/// Feature Identifiers Supported and Effects (Base 5.1.12.1.18): 1024 bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FeaturesSupported {
    /// FIS0 to FIS255, by feature identifier.
    pub fids: [FidSupported; 256],
}

page!(FeaturesSupported, 1024);

/// FID Supported and Effects (Base 5.1.12.1.18).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FidSupported {
    /// FSUPP: Get Features and Set Features take the identifier.
    pub fsupp: bool,
    /// UDCC: setting it may change user data.
    pub udcc: bool,
    /// NCC: setting it may change what a namespace can do.
    pub ncc: bool,
    /// NIC: setting it may make namespaces come and go.
    pub nic: bool,
    /// CCC: setting it may change what the controller can do.
    pub ccc: bool,
    #[bits(14)]
    __: u16,
    /// USS: a UUID can be selected.
    pub uss: bool,
    /// FSP: one of [`scope`].
    #[bits(12)]
    pub fsp: u16,
}
