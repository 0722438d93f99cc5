//! Admin and I/O commands that a caller builds: which ones are sent, and how much data they may
//! have.

use hw::DmaBuf;
use nvme::admin::{GetLogPage, Identify};
use nvme::features::fid;
use nvme::{Sqe, opcode};

use crate::error::AdminError;
use crate::namespace::Namespace;
use crate::transport::MAX_TRANSFER;

/// Maximum number of bytes of an admin command's data: one page, so that PRP entry 1 is enough.
pub(crate) const MAX_DATA: usize = 4096;

/// Checks an admin command with `data` bytes of data, and returns the command as it is sent,
/// without identifier, flags and data pointer, which the library sets.
pub(crate) fn checked(command: &Sqe, data: usize) -> Result<Sqe, AdminError> {
    let &Sqe { opcode, nsid, cdw2, mut cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } = command;
    let refused = |why: String| Err(AdminError::Refused { opcode, why });
    if let Some(why) = library_owned(command) {
        return refused(why.to_owned());
    }
    if data > MAX_DATA {
        return refused(format!(
            "it has {data} bytes of data, and may have at most {MAX_DATA}; read a log page in parts"
        ));
    }
    // Opcode bits 1:0 are the direction of the data (Base §4.1); the length depends on the command.
    match opcode {
        _ if opcode & 3 == 0 && data > 0 => {
            return refused(format!(
                "its opcode ends in 00b, so it transfers no data, and {data} bytes were given; pass an empty slice"
            ));
        }
        opcode::admin::IDENTIFY if data != Identify::LEN => {
            return refused(format!("it transfers {} bytes, and {data} were given", Identify::LEN));
        }
        opcode::admin::GET_LOG_PAGE => {
            let GetLogPage { len, .. } = GetLogPage::from_sqe(command);
            if len != data as u64 {
                return refused(format!(
                    "it requests {len} bytes (NUMD), and {data} bytes were given; they have to be equal"
                ));
            }
            // RAE (Retain Asynchronous Event): reading the page must not clear an event that the
            // library or the kernel handles.
            cdw10 |= 1 << 15;
        }
        _ => {}
    }
    Ok(Sqe { opcode, nsid, cdw2, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() })
}

/// Why a command is refused: it would change the controller, its queues or its namespaces without
/// the library's knowledge.
fn library_owned(command: &Sqe) -> Option<&'static str> {
    Some(match command.opcode {
        opcode::admin::DELETE_SQ
        | opcode::admin::CREATE_SQ
        | opcode::admin::DELETE_CQ
        | opcode::admin::CREATE_CQ => {
            "the library creates and deletes the controller's queues; set their number when opening the device (`OpenOptions::hardware_queues`)"
        }
        opcode::admin::ABORT => {
            "the library aborts commands itself, after the time-out that the device was opened with"
        }
        opcode::admin::ASYNC_EVENT_REQUEST => {
            "the library waits for asynchronous events; `Device::events` returns them"
        }
        opcode::admin::KEEP_ALIVE => "the library sends Keep Alive itself",
        opcode::admin::DOORBELL_BUFFER_CONFIG => {
            "the library decides where doorbells are; `shadow=` of the URI that `reap serve` serves puts them in memory"
        }
        opcode::admin::CONTROLLER_DATA_QUEUE
        | opcode::admin::MIGRATION_SEND
        | opcode::admin::VIRTUALIZATION_MANAGEMENT => {
            "the controller would keep host memory or stop, which the library does not support"
        }
        opcode::admin::FABRICS => {
            "the library sets up the connection and the controller's properties"
        }
        opcode::admin::FIRMWARE_COMMIT
        | opcode::admin::FORMAT_NVM
        | opcode::admin::CAPACITY_MANAGEMENT => IN_USE,
        opcode::admin::NAMESPACE_MANAGEMENT | opcode::admin::NAMESPACE_ATTACHMENT => IN_USE,
        opcode::admin::SET_FEATURES => match command.cdw10 as u8 {
            fid::NUMBER_OF_QUEUES => {
                "the library sets the number of queues; set it when opening the device (`OpenOptions::hardware_queues`)"
            }
            fid::INTERRUPT_COALESCING | fid::VECTOR_CONFIG => {
                "completion modes set interrupt coalescing; choose one by `Device::set_mode`"
            }
            fid::ASYNC_EVENT_CONFIG | fid::KEEP_ALIVE_TIMER => {
                "the library sets asynchronous events and the Keep Alive Timer itself"
            }
            fid::HOST_MEMORY_BUFFER => {
                "the controller would keep memory that the library did not lend it"
            }
            fid::COMMAND_SET_PROFILE => IN_USE,
            _ => return None,
        },
        _ => return None,
    })
}

/// Checks that an I/O command may be sent with this buffer. `namespace`: the command's namespace,
/// if it is one of the device's. `sgls`: the buffer is described by an SGL, so the controller knows
/// the buffer's length and stays within it.
///
/// # Errors
/// Why the command is refused.
pub(crate) fn check_io(
    command: &Sqe,
    buf: Option<&DmaBuf>,
    namespace: Option<&Namespace>,
    sgls: bool,
) -> Result<(), &'static str> {
    let bytes = buf.map_or(0, |buf| buf.len() as u64);
    if command.opcode == opcode::admin::FABRICS {
        return Err("the library sets up the connection");
    }
    if bytes > MAX_TRANSFER.into() {
        return Err("its buffer is larger than 1 MiB, the maximum of one command");
    }
    if command.opcode & 3 == 0 {
        return if bytes == 0 {
            Ok(())
        } else {
            Err("its opcode ends in 00b, so it transfers nothing; leave the buffer out")
        };
    }
    let dwords = |numd: u32| Some((u64::from(numd) + 1) * 4);
    let transferred = match command.opcode {
        opcode::io::READ | opcode::io::WRITE | opcode::io::COMPARE => namespace.map(|namespace| {
            (u64::from(command.cdw12 as u16) + 1) * u64::from(namespace.block_bytes())
        }),
        opcode::io::RESERVATION_REPORT => dwords(command.cdw10),
        opcode::io::IO_MANAGEMENT_RECEIVE => dwords(command.cdw11),
        opcode::io::ZONE_MANAGEMENT_RECEIVE => dwords(command.cdw12),
        _ => None,
    };
    match transferred {
        Some(transferred) if transferred > bytes => {
            Err("it transfers more than its buffer has room for")
        }
        Some(_) => Ok(()),
        // The length is unknown. If the controller only reads, reading past the buffer does no
        // harm; with an SGL the controller stops at the buffer's end.
        None if command.opcode & 2 == 0 || sgls => Ok(()),
        // Without SGLs, PRP entry 1 names one page at most, so the controller cannot write beyond a
        // buffer that is a whole page.
        None if buf.is_some_and(|buf| buf.len() == PAGE && buf.addr() % PAGE as u64 == 0) => Ok(()),
        None => Err(
            "it is not known how much it transfers; pass a buffer of 4096 bytes that begins at a page boundary",
        ),
    }
}

/// Bytes of a memory page.
const PAGE: usize = 4096;

/// The refusal of commands that change namespaces or firmware.
const IN_USE: &str = "it would change blocks, namespaces or firmware while they are in use; close the device, and use nvme-cli with the kernel's driver";

#[cfg(test)]
mod tests {
    use nvme::log::lid;
    use nvme::prp::Dptr;

    use super::*;

    #[test]
    fn log_events_stay_the_librarys() {
        let read = GetLogPage::new(lid::CHANGED_NAMESPACES, 4096, Dptr { prp1: 4096, prp2: 8192 });
        let sent = GetLogPage::from_sqe(&checked(&read.to_sqe(), 4096).unwrap());
        assert_eq!(sent, GetLogPage { retain_event: true, data: Dptr::NONE, ..read });
    }
}
