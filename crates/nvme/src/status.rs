//! The status field of a completion (Base §4.2.3).

use std::fmt;

/// The 15-bit status field: Status Code in bits 7:0, Status Code Type in 10:8, Command Retry Delay
/// in 12:11, More in 13, Do Not Retry in 14. Zero is success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

/// Status Code Types (Base §4.2.3, SCT).
const GENERIC: u8 = 0;
const SPECIFIC: u8 = 1;
const MEDIA: u8 = 2;
const PATH: u8 = 3;

const DNR: u16 = 1 << 14;
const MORE: u16 = 1 << 13;

impl Status {
    /// A status from Status Code Type (3 bits) and Status Code, without retry hints.
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status((sct as u16 & 7) << 8 | sc as u16)
    }

    /// Whether the command succeeded, ignoring CRD, More and DNR.
    pub fn is_success(self) -> bool {
        self.kind() == Status::SUCCESS
    }

    /// SC: the status code within its type.
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// SCT: the status code type. 0 generic, 1 command specific, 2 media and data integrity, 3 path
    /// related, 7 vendor.
    pub const fn code_type(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// M: more information is in the Error Information log.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// DNR: the command would fail again on any controller of the subsystem.
    pub const fn do_not_retry(self) -> bool {
        self.0 & DNR != 0
    }

    /// The same status with DNR set.
    pub const fn with_dnr(self) -> Status {
        Status(self.0 | DNR)
    }

    /// The same status with M set.
    pub const fn with_more(self) -> Status {
        Status(self.0 | MORE)
    }

    /// SCT and SC (bits 10:0) without CRD, More and DNR, for comparison with the constants.
    pub const fn kind(self) -> Status {
        Status(self.0 & 0x7ff)
    }

    /// Whether the path failed rather than the command: another path may succeed (Base §4.2.3.4).
    pub const fn is_path_related(self) -> bool {
        self.code_type() == PATH
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $constant:ident = $sct:ident, $sc:literal, $name:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!($name, ".")]
                $(#[$doc])*
                pub const $constant: Status = Status::new($sct, $sc);
            )*

            /// Name of the status code as in the specification; `None`: unknown status code.
            pub const fn name(self) -> Option<&'static str> {
                Some(match self.kind() {
                    $(Status::$constant => $name,)*
                    _ => return None,
                })
            }
        }

        #[cfg(test)]
        const ALL: &[Status] = &[$(Status::$constant),*];
    };
}

// Generic: Base §4.2.3.1; codes from 80h on are specific to I/O command sets. Command specific:
// Base §4.2.3.2; from 80h on for I/O commands. Media and data integrity: Base §4.2.3.3. Path
// related: Base §4.2.3.4.
statuses! {
    SUCCESS = GENERIC, 0x00, "Successful Completion";
    INVALID_OPCODE = GENERIC, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = GENERIC, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = GENERIC, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = GENERIC, 0x04, "Data Transfer Error";
    ABORTED_POWER_LOSS = GENERIC, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = GENERIC, 0x06, "Internal Error";
    ABORT_REQUESTED = GENERIC, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = GENERIC, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = GENERIC, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = GENERIC, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE_OR_FORMAT = GENERIC, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = GENERIC, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT_DESCRIPTOR = GENERIC, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_NUMBER_OF_SGL_DESCRIPTORS = GENERIC, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = GENERIC, 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = GENERIC, 0x10, "Metadata SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = GENERIC, 0x11, "SGL Descriptor Type Invalid";
    INVALID_USE_OF_CMB = GENERIC, 0x12, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = GENERIC, 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = GENERIC, 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = GENERIC, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = GENERIC, 0x16, "SGL Offset Invalid";
    HOST_IDENTIFIER_INCONSISTENT = GENERIC, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_TIMER_EXPIRED = GENERIC, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_TIMEOUT_INVALID = GENERIC, 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = GENERIC, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = GENERIC, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = GENERIC, 0x1d, "Sanitize In Progress";
    SGL_DATA_BLOCK_GRANULARITY_INVALID = GENERIC, 0x1e, "SGL Data Block Granularity Invalid";
    NOT_SUPPORTED_FOR_QUEUE_IN_CMB = GENERIC, 0x1f, "Command Not Supported for Queue in CMB";
    NAMESPACE_WRITE_PROTECTED = GENERIC, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = GENERIC, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = GENERIC, 0x22, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = GENERIC, 0x23, "Command Prohibited by Command and Feature Lockdown";
    ADMIN_MEDIA_NOT_READY = GENERIC, 0x24, "Admin Command Media Not Ready";
    INVALID_KEY_TAG = GENERIC, 0x25, "Invalid Key Tag";
    HOST_DISPERSED_NOT_ENABLED = GENERIC, 0x26, "Host Dispersed Namespace Support Not Enabled";
    HOST_IDENTIFIER_NOT_INITIALIZED = GENERIC, 0x27, "Host Identifier Not Initialized";
    INCORRECT_KEY = GENERIC, 0x28, "Incorrect Key";
    FDP_DISABLED = GENERIC, 0x29, "FDP Disabled";
    INVALID_PLACEMENT_HANDLE_LIST = GENERIC, 0x2a, "Invalid Placement Handle List";
    LBA_OUT_OF_RANGE = GENERIC, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = GENERIC, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = GENERIC, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = GENERIC, 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = GENERIC, 0x84, "Format In Progress";

    COMPLETION_QUEUE_INVALID = SPECIFIC, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_ID = SPECIFIC, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = SPECIFIC, 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = SPECIFIC, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = SPECIFIC, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = SPECIFIC, 0x06, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = SPECIFIC, 0x07, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = SPECIFIC, 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = SPECIFIC, 0x09, "Invalid Log Page";
    INVALID_FORMAT = SPECIFIC, 0x0a, "Invalid Format";
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = SPECIFIC, 0x0b, "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = SPECIFIC, 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = SPECIFIC, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = SPECIFIC, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = SPECIFIC, 0x0f, "Feature Not Namespace Specific";
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = SPECIFIC, 0x10, "Firmware Activation Requires NVM Subsystem Reset";
    FIRMWARE_NEEDS_CONTROLLER_RESET = SPECIFIC, 0x11, "Firmware Activation Requires Controller Level Reset";
    FIRMWARE_NEEDS_MAXIMUM_TIME = SPECIFIC, 0x12, "Firmware Activation Requires Maximum Time Violation";
    FIRMWARE_ACTIVATION_PROHIBITED = SPECIFIC, 0x13, "Firmware Activation Prohibited";
    OVERLAPPING_RANGE = SPECIFIC, 0x14, "Overlapping Range";
    NAMESPACE_INSUFFICIENT_CAPACITY = SPECIFIC, 0x15, "Namespace Insufficient Capacity";
    NAMESPACE_ID_UNAVAILABLE = SPECIFIC, 0x16, "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = SPECIFIC, 0x18, "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = SPECIFIC, 0x19, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = SPECIFIC, 0x1a, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = SPECIFIC, 0x1b, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = SPECIFIC, 0x1c, "Controller List Invalid";
    SELF_TEST_IN_PROGRESS = SPECIFIC, 0x1d, "Device Self-test In Progress";
    BOOT_PARTITION_WRITE_PROHIBITED = SPECIFIC, 0x1e, "Boot Partition Write Prohibited";
    INVALID_CONTROLLER_ID = SPECIFIC, 0x1f, "Invalid Controller Identifier";
    INVALID_SECONDARY_CONTROLLER_STATE = SPECIFIC, 0x20, "Invalid Secondary Controller State";
    INVALID_NUMBER_OF_CONTROLLER_RESOURCES = SPECIFIC, 0x21, "Invalid Number of Controller Resources";
    INVALID_RESOURCE_ID = SPECIFIC, 0x22, "Invalid Resource Identifier";
    SANITIZE_PROHIBITED_WHILE_PMR = SPECIFIC, 0x23, "Sanitize Prohibited While Persistent Memory Region is Enabled";
    ANA_GROUP_ID_INVALID = SPECIFIC, 0x24, "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = SPECIFIC, 0x25, "ANA Attach Failed";
    INSUFFICIENT_CAPACITY = SPECIFIC, 0x26, "Insufficient Capacity";
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = SPECIFIC, 0x27, "Namespace Attachment Limit Exceeded";
    PROHIBITION_NOT_SUPPORTED = SPECIFIC, 0x28, "Prohibition of Command Execution Not Supported";
    COMMAND_SET_NOT_SUPPORTED = SPECIFIC, 0x29, "I/O Command Set Not Supported";
    COMMAND_SET_NOT_ENABLED = SPECIFIC, 0x2a, "I/O Command Set Not Enabled";
    COMMAND_SET_COMBINATION_REJECTED = SPECIFIC, 0x2b, "I/O Command Set Combination Rejected";
    INVALID_COMMAND_SET = SPECIFIC, 0x2c, "Invalid I/O Command Set";
    IDENTIFIER_UNAVAILABLE = SPECIFIC, 0x2d, "Identifier Unavailable";
    CROSS_RESET_IN_PROGRESS = SPECIFIC, 0x3f, "Cross-Controller Reset in Progress";
    CROSS_RESET_LOG_FULL = SPECIFIC, 0x40, "Cross-Controller Reset Log Page Full";
    CROSS_RESET_LIMIT_EXCEEDED = SPECIFIC, 0x41, "Cross-Controller Reset Limit Exceeded";
    CONFLICTING_ATTRIBUTES = SPECIFIC, 0x80, "Conflicting Attributes";
    INVALID_PROTECTION_INFORMATION = SPECIFIC, 0x81, "Invalid Protection Information";
    WRITE_TO_READ_ONLY_RANGE = SPECIFIC, 0x82, "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT_EXCEEDED = SPECIFIC, 0x83, "Command Size Limit Exceeded";

    WRITE_FAULT = MEDIA, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = MEDIA, 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = MEDIA, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = MEDIA, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = MEDIA, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = MEDIA, 0x85, "Compare Failure";
    ACCESS_DENIED = MEDIA, 0x86, "Access Denied";
    DEALLOCATED_OR_UNWRITTEN = MEDIA, 0x87, "Deallocated or Unwritten Logical Block";
    STORAGE_TAG_CHECK_ERROR = MEDIA, 0x88, "End-to-End Storage Tag Check Error";

    /// The controller could not access the namespace because of an internal error, not an ANA state
    /// (Base §4.2.3.4, SC 00h).
    INTERNAL_PATH_ERROR = PATH, 0x00, "Internal Path Error";
    /// ANA Persistent Loss: the namespace is no longer accessible through this controller (Base
    /// §4.2.3.4, SC 01h; Base §8.1.1).
    ANA_PERSISTENT_LOSS = PATH, 0x01, "Asymmetric Access Persistent Loss";
    /// ANA Inaccessible: the namespace is not accessible through this controller at present (Base
    /// §4.2.3.4, SC 02h; Base §8.1.1).
    ANA_INACCESSIBLE = PATH, 0x02, "Asymmetric Access Inaccessible";
    /// ANA Change: the state is in transition, for at most ANATT seconds (Base §4.2.3.4, SC 03h;
    /// Base §8.1.1).
    ANA_TRANSITION = PATH, 0x03, "Asymmetric Access Transition";
    /// A pathing error detected by the controller (Base §4.2.3.4, SC 60h).
    CONTROLLER_PATHING_ERROR = PATH, 0x60, "Controller Pathing Error";
    /// A pathing error detected by the host; not sent by controllers (Base §4.2.3.4, SC 70h).
    HOST_PATHING_ERROR = PATH, 0x70, "Host Pathing Error";
    /// The command was aborted by the host; not sent by controllers (Base §4.2.3.4, SC 71h).
    ABORTED_BY_HOST = PATH, 0x71, "Command Aborted By Host";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or(match (self.code_type(), self.code()) {
            (GENERIC | SPECIFIC | MEDIA | PATH, 0xc0..) | (7, _) => "Vendor Specific",
            _ => "Unknown Status",
        });
        write!(f, "{name} ({:02x}h/{:02x}h)", self.code_type(), self.code())?;
        if self.do_not_retry() { f.write_str(", do not retry") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
