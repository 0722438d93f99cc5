//! The handshake with a server: connect, negotiate a version, check what it serves, find its
//! registers and interrupts. Done for the first connection and for each one after it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ::vfio_user::{CallError, Client, Command, End, Interrupts, Region, irq, region};
use hw::vfio::SharedArea;
use hw::{EventFd, Vectors};
use nvme::Vector;
use nvme::regs::{self, Cap};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use units::Nanos;

use crate::error::VfioUserError;

/// Longest wait for a reply during the handshake. Property accesses have the driver's deadlines
/// instead.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Class code of an NVMe controller (PCIe Transport §2.1.5).
const CLASS_NVME: u32 = 0x01_08_02;

/// Configuration space (PCI Express Base §7.5.1.1, 7.7.2.2): the Command register and its bits, the
/// pointer to the first capability, the MSI-X capability and bits of its Message Control.
const COMMAND: u64 = 4;
const MEMORY_MASTER_NO_PIN: u16 = 1 << 1 | 1 << 2 | 1 << 10;
const FIRST_CAPABILITY: u64 = 0x34;
pub(super) const MSIX: u8 = 0x11;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_MASK_ALL: u16 = 1 << 14;

/// Connects to the socket. Retries until `until` while the listener's backlog is full.
pub(super) fn connect(socket: &Path, until: Nanos) -> Result<UnixStream, VfioUserError> {
    let system = |source: rustix::io::Errno| VfioUserError::System {
        what: "connect to it",
        source: source.into(),
    };
    let address = SocketAddrUnix::new(socket).map_err(|_| VfioUserError::System {
        what: "connect to it",
        source: io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of a socket has 107 bytes at most; name it by a shorter one",
        ),
    })?;
    let not_a_socket = || {
        VfioUserError::Unusable(
            "that is not a socket; name the one that the server listens on".into(),
        )
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(system)?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(UnixStream::from(fd)),
            // EAGAIN: the backlog is full. The socket is non-blocking, so that a stopped server
            // cannot block us.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if hw::now() < until => {
                hw::sleep_until(hw::now() + Nanos::from_millis(5));
            }
            Err(rustix::io::Errno::NOENT) => {
                return Err(VfioUserError::NotFound(
                    "there is no such socket; start its server first, as in `reap serve mem:1G --vfio-user SOCKET`",
                ));
            }
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                return Err(VfioUserError::Permission);
            }
            Err(rustix::io::Errno::CONNREFUSED) => {
                // The same errno for a stale socket file and for a file that is no socket.
                let is_socket =
                    std::fs::metadata(socket).is_ok_and(|found| found.file_type().is_socket());
                let gone =
                    VfioUserError::NotFound("no server listens there any more; start it again");
                return Err(if is_socket { gone } else { not_a_socket() });
            }
            Err(rustix::io::Errno::PROTOTYPE) => return Err(not_a_socket()),
            Err(errno) => return Err(system(errno)),
        }
    }
}

/// Negotiates the protocol version.
pub(super) fn negotiate(stream: UnixStream) -> Result<Client, VfioUserError> {
    Client::new(stream, CALL_TIMEOUT).map_err(|error| match error {
        // A server that has a client closes the next connection without a reply.
        CallError::Ended(End::Closed) => VfioUserError::Busy,
        CallError::Version { major, minor } => VfioUserError::Unusable(format!(
            "the server has version {major}.{minor} of vfio-user, Reap supports 0.0; use a server of major version 0"
        )),
        CallError::Refused(_, errno) => {
            let source = CallError::Refused(Command::Version, errno);
            VfioUserError::Server { what: "agree on version 0.0 of vfio-user", source }
        }
        error => VfioUserError::Unusable(format!("what listens there is no vfio-user server ({error}); name the socket of one")),
    })
}

fn server(what: &'static str) -> impl FnOnce(CallError) -> VfioUserError {
    move |source| VfioUserError::Server { what, source }
}

/// Checks that the server serves an NVMe controller, resets it to its state after power-on, and
/// allows it to access memory (bus mastering).
pub(super) fn set_up(client: &Client, notes: &mut Vec<String>) -> Result<(), VfioUserError> {
    let device = client.device().map_err(server("ask what the device is"))?;
    if !device.is_pci || device.regions <= region::CONFIG || device.irqs <= irq::MSIX {
        return Err(VfioUserError::Unsupported(
            "the server says that it is no PCI device with a configuration space and MSI-X".into(),
        ));
    }
    let class =
        u32::from_le_bytes(client.read_config(8).map_err(server("read its class code"))?) >> 8;
    if class != CLASS_NVME {
        let why = format!(
            "the server serves no NVMe controller: its class is {class:06x}h, and those have 010802h; name the socket of one"
        );
        return Err(VfioUserError::Unusable(why));
    }
    if device.can_reset
        && let Err(error) = client.reset()
    {
        match error {
            // Without a reset the driver's own (CC.EN = 0) has to do.
            CallError::Refused(..) => {
                notes.push(format!("the device was not reset when it was opened: {error}"))
            }
            source => return Err(VfioUserError::Server { what: "reset the device", source }),
        }
    }
    let command = u16::from_le_bytes(
        client.read_config(COMMAND).map_err(server("read its Command register"))?,
    );
    let command = (command | MEMORY_MASTER_NO_PIN).to_le_bytes();
    client.write(region::CONFIG, COMMAND, &command).map_err(server("let the device access memory"))
}

/// BAR0 as a server describes it.
pub(super) struct BarRegion {
    pub bytes: u64,
    /// The parts that the server shares for mapping.
    pub areas: Vec<SharedArea>,
}

/// Asks for BAR0. Parts that are not shared are accessed by messages.
pub(super) fn bar0(client: &Client, notes: &mut Vec<String>) -> Result<BarRegion, VfioUserError> {
    let (Region { readable, writable, bytes, file_offset, areas }, fds) =
        client.region(region::BAR0).map_err(server("ask for its registers"))?;
    if !(readable && writable) {
        return Err(VfioUserError::Unsupported(
            "the server does not allow its registers (BAR0) to be read and written by messages"
                .into(),
        ));
    }
    // Some servers send one descriptor for all sparse areas, others one for each.
    let one_for_all = fds.len() == 1 && areas.len() > 1;
    if !areas.is_empty() && fds.is_empty() {
        notes.push(
            "the server offers to map parts of BAR0, but sends no descriptor: they are accessed by messages".to_owned(),
        );
    }
    let (mut shared, mut fds) = (Vec::new(), fds.into_iter());
    let first = if one_for_all { fds.next() } else { None };
    for area in areas {
        let file = match &first {
            Some(first) => first.try_clone().ok(),
            None => fds.next(),
        };
        // Fewer descriptors than areas: the rest goes by messages.
        let Some(file) = file else { break };
        // Cannot overflow: the codec has checked that offset + bytes fits in 64 bits.
        let range = area.offset..area.offset + area.bytes;
        shared.push(SharedArea { range, file, at: file_offset + area.offset });
    }
    Ok(BarRegion { bytes, areas: shared })
}

/// CAP.DSTRD: the doorbell stride, as a power of two of dwords.
pub(super) fn stride(client: &Client) -> Result<u8, VfioUserError> {
    let mut cap = [0; 8];
    client
        .read(region::BAR0, regs::CAP.into(), &mut cap)
        .map_err(server("read its capabilities (CAP)"))?;
    Ok(Cap::from_bits(u64::from_le_bytes(cap)).dstrd())
}

/// Its MSI-X vectors.
pub(super) fn interrupts(client: &Client) -> Result<Interrupts, VfioUserError> {
    client.interrupts(irq::MSIX).map_err(server("ask for its interrupts"))
}

/// Makes the messages of all vectors signal eventfds: those of vector n, the eventfd of vector
/// `routes[n]`.
pub(super) fn signal(
    client: &Client,
    vectors: &Vectors,
    routes: &[Vector],
) -> Result<(), VfioUserError> {
    let signals: Vec<BorrowedFd<'_>> =
        routes.iter().filter_map(|home| vectors.signal(home.0)).map(EventFd::as_fd).collect();
    client.signal(0, &signals).map_err(server("have its messages sent to eventfds"))
}

/// Enables MSI-X in the function's capability and returns the offset of its Message Control. The
/// per-vector masks stay untouched: with eventfds set, the server ignores them.
pub(super) fn enable_messages(client: &Client) -> Result<u64, VfioUserError> {
    let failed = |source| VfioUserError::Server { what: "switch MSI-X on", source };
    let [mut at] = client.read_config(FIRST_CAPABILITY).map_err(failed)?;
    // Configuration space holds at most 48 capabilities; a longer chain is a loop.
    for _ in 0..48 {
        // The two low bits are reserved (PCI Express Base §7.5.1.1.11).
        at &= !3;
        if at < 0x40 {
            break;
        }
        let [id, next, low, high] = client.read_config(at.into()).map_err(failed)?;
        if id == MSIX {
            let control = u16::from_le_bytes([low, high]) & !MSIX_MASK_ALL | MSIX_ENABLE;
            let offset = u64::from(at) + 2;
            return client
                .write(region::CONFIG, offset, &control.to_le_bytes())
                .map(|()| offset)
                .map_err(failed);
        }
        at = next;
    }
    Err(VfioUserError::Unsupported("its configuration space has no MSI-X capability".into()))
}
