//! Admin and I/O commands that the caller builds: which ones are sent, and how much data they may
//! have.

use hw::DmaBuf;
use nvme::admin::{GetLogPage, Identify};
use nvme::features::fid;
use nvme::{Sqe, opcode};

use crate::error::AdminError;
use crate::namespace::Namespace;
use crate::transport::MAX_TRANSFER;

/// Most bytes of an admin command's data: one page, so that PRP entry 1 is enough.
pub(crate) const MOST_DATA: usize = 4096;

/// The admin command as it is sent. The library sets identifier, flags and data pointer.
pub(crate) fn checked(command: &Sqe, data: usize) -> Result<Sqe, AdminError> {
    let &Sqe { opcode, nsid, cdw2, mut cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } = command;
    let refused = |why: String| Err(AdminError::Refused { opcode, why });
    if let Some(why) = library_owned(command) {
        return refused(why.to_owned());
    }
    if data > MOST_DATA {
        return refused(format!(
            "it has {data} bytes of data, and may have {MOST_DATA}; read a log page in parts"
        ));
    }
    // Opcode bits 1:0 tell the direction of the data (Base §4.1); how much it is depends on the
    // command.
    match opcode {
        _ if opcode & 3 == 0 && data > 0 => {
            return refused(format!(
                "its opcode ends in 00b, so it transfers none of {data} bytes"
            ));
        }
        opcode::admin::IDENTIFY if data != Identify::LEN => {
            return refused(format!("it transfers {} bytes, and {data} were given", Identify::LEN));
        }
        opcode::admin::GET_LOG_PAGE => {
            let GetLogPage { len, .. } = GetLogPage::from_sqe(command);
            if len != data as u64 {
                return refused(format!(
                    "it requests {len} bytes (NUMD), but its data have {data} bytes"
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
            "the library creates and deletes the controller's queues; open the device with the queues that it is to have"
        }
        opcode::admin::ABORT => {
            "the library aborts commands itself, by the time-out that the device was opened with"
        }
        opcode::admin::ASYNC_EVENT_REQUEST => {
            "the library waits for asynchronous events; `Device::events` has them"
        }
        opcode::admin::KEEP_ALIVE => "the library sends Keep Alive itself",
        opcode::admin::DOORBELL_BUFFER_CONFIG => {
            "the library says where doorbells are; `shadow=` of the device's URI has them in memory"
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
                "the library sets the number of queues; open the device with those that it is to have"
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

/// Checks that an I/O command may be sent with this buffer. `namespace`: the one that it names, if
/// the library uses it; `sgls`: the buffer is described by an SGL, so the controller knows its
/// length and stays within it.
///
/// # Errors
/// Why it is refused.
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
        return Err("its buffer is larger than 1 MiB, which is the most of one command");
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
        // Unknown length. Reading past the buffer does no harm; with an SGL the controller stops at
        // its end.
        None if command.opcode & 2 == 0 || sgls => Ok(()),
        // With PRPs, a page that begins at a page boundary is all that PRP 1 can name.
        None if buf.is_some_and(|buf| buf.len() == PAGE && buf.addr() % PAGE as u64 == 0) => Ok(()),
        None => Err(
            "it is not known how much it transfers; give it a buffer of 4096 bytes at a page's start",
        ),
    }
}

/// Bytes of a memory page.
const PAGE: usize = 4096;

/// The refusal of commands that change namespaces or firmware.
const IN_USE: &str = "blocks, namespaces or firmware would change while they are in use; close the device, and let nvme-cli do it by the kernel's driver";

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
