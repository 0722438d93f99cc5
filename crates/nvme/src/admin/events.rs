//! Asynchronous events (Base 5.1.2).

use bitfield_struct::bitfield;

use crate::{Sqe, opcode};

/// Asynchronous Event Request: completes when there is an event, maybe never (Base 5.1.2).
pub fn async_event_request() -> Sqe {
    Sqe { opcode: opcode::admin::ASYNC_EVENT_REQUEST, ..Sqe::default() }
}

/// DW0 of a completed Asynchronous Event Request (Base 5.1.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEvent {
    /// AET: event type; see [`event_type`].
    #[bits(3)]
    pub event_type: u8,
    #[bits(5)]
    __: u8,
    /// AEI: event information, by type.
    #[bits(8)]
    pub info: u8,
    /// LID: the log page that has the details, and whose read acknowledges the event.
    #[bits(8)]
    pub lid: u8,
    #[bits(8)]
    __: u8,
}

/// Values of [`AsyncEvent::event_type`] (Base 5.1.2.1).
pub mod event_type {
    /// Error status; details in the Error Information log.
    pub const ERROR: u8 = 0;
    /// SMART / health status.
    pub const SMART: u8 = 1;
    /// Notice; see [`super::notice`].
    pub const NOTICE: u8 = 2;
    /// Immediate.
    pub const IMMEDIATE: u8 = 3;
    /// One shot.
    pub const ONE_SHOT: u8 = 4;
    /// I/O command set specific status.
    pub const COMMAND_SET: u8 = 6;
    /// Vendor specific.
    pub const VENDOR: u8 = 7;
}

/// Values of [`AsyncEvent::info`] when the type is [`event_type::ERROR`] (Base 5.1.2.1).
pub mod error_event {
    /// The host wrote the doorbell of a queue that does not exist.
    pub const INVALID_DOORBELL_REGISTER: u8 = 0;
    /// The host wrote an impossible value to a doorbell.
    pub const INVALID_DOORBELL_VALUE: u8 = 1;
    /// A self-diagnosis failed.
    pub const DIAGNOSTIC_FAILURE: u8 = 2;
    /// An internal error that persists.
    pub const PERSISTENT_INTERNAL: u8 = 3;
    /// An internal error that passes.
    pub const TRANSIENT_INTERNAL: u8 = 4;
    /// A firmware image failed to load.
    pub const FIRMWARE_LOAD: u8 = 5;
}

/// Values of [`AsyncEvent::info`] when the type is [`event_type::SMART`] (Base 5.1.2.1).
pub mod smart_event {
    /// The subsystem is less reliable.
    pub const RELIABILITY: u8 = 0;
    /// A temperature is beyond a threshold of feature 04h.
    pub const TEMPERATURE_THRESHOLD: u8 = 1;
    /// Spare capacity is below its threshold.
    pub const SPARE: u8 = 2;
}

/// Values of [`AsyncEvent::info`] when the type is [`event_type::NOTICE`] (Base 5.1.2.1).
pub mod notice {
    /// Namespaces were attached, detached or changed.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: u8 = 0;
    /// Firmware activation is starting.
    pub const FIRMWARE_ACTIVATION_STARTING: u8 = 1;
    /// The telemetry log changed.
    pub const TELEMETRY_LOG_CHANGED: u8 = 2;
    /// Asymmetric namespace access changed: read the log page 0Ch, [`crate::log::ana::AnaLog`]. Sent if feature 0Bh has ANACN
    /// ([`crate::features::AsyncEventConfig::ana_change`]).
    pub const ANA_CHANGE: u8 = 3;
}
