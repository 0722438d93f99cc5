//! Peers over vfio-user that take memory away which this side maps, or hand over memory that need
//! not be there: touching it would be a signal (SIGBUS) that ends the process. The server is in a
//! process of its own; that it lives is seen by its other client.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nvme::regs::{self, Aqa, Cc, Csts};
use nvme::{Cqe, Sqe, opcode};
use reap::Device;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use vfio_user::{CallError, Client, Command, Received, Socket, region};

use super::eventually;
use super::peer::Process;
use crate::place::{Scratch, Served, options};
use crate::table::{skipped, watched};
use crate::work::Job;

/// Bytes of each file: a huge page.
const BYTES: u64 = 2 << 20;
/// Where a client's admin queues are, and what Identify writes to.
const SQ: u64 = 0;
const CQ: u64 = 0x1000;
const PAGE: u64 = 0x2000;

/// A memory file, if this kernel has such.
fn memory(huge: bool, seals: SealFlags) -> io::Result<File> {
    let huge = if huge { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
    let file = File::from(memfd_create(
        "hostile",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge,
    )?);
    file.set_len(BYTES)?;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

fn file_in(folder: impl AsRef<Path>) -> io::Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    file.set_len(BYTES).map(|()| file)
}

fn shorten(file: &File) -> io::Result<()> {
    file.set_len(0)
}

fn punch(file: &File) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BYTES)?)
}

/// A client, once the server has let go of the one before.
fn client(socket: &str) -> Client {
    let mut client = None;
    eventually("the server takes no client", || {
        client = Client::new(UnixStream::connect(socket).unwrap(), Duration::from_secs(120)).ok();
        client.is_some()
    });
    client.unwrap()
}

fn set(client: &Client, register: u32, value: u32) {
    client.write(region::BAR0, register.into(), &value.to_le_bytes()).unwrap();
}

fn csts(client: &Client) -> Csts {
    let mut bytes = [0; 4];
    client.read(region::BAR0, regs::CSTS.into(), &mut bytes).unwrap();
    Csts::from_bits(u32::from_le_bytes(bytes))
}

/// Whether the `nth` entry of the admin completion queue is there.
fn completed(file: &File, nth: u64) -> bool {
    let mut entry = [0; 16];
    file.read_exact_at(&mut entry, CQ + 16 * nth).unwrap();
    let [low, high] = [0, 8].map(|at| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap()));
    Cqe::from_words([low, high]).phase()
}

/// The controller works in this file: it carries out an Identify.
fn begin(client: &Client, file: &File) {
    set(client, regs::AQA, Aqa::new().with_asqs(7).with_acqs(7).into_bits());
    set(client, regs::ASQ, SQ as u32);
    set(client, regs::ACQ, CQ as u32);
    set(
        client,
        regs::CC,
        Cc::new().with_en(true).with_iosqes(Sqe::SIZE_LOG2).with_iocqes(Cqe::SIZE_LOG2).into_bits(),
    );
    eventually("it is not ready", || csts(client).rdy());
    let identify = Sqe { opcode: opcode::admin::IDENTIFY, prp1: PAGE, cdw10: 1, ..Sqe::default() };
    let bytes: Vec<u8> = identify.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all_at(&bytes, SQ).unwrap();
    set(client, regs::DOORBELLS, 1);
    eventually("no completion", || completed(file, 0));
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, PAGE).unwrap();
    assert_ne!(page, [0; 4096]);
}

/// What is left of a controller whose memory was taken away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The memory was refused.
    Nothing,
    /// CSTS.CFS: the queue cannot be read.
    Failed,
    /// It reads zeroes.
    Works,
}

/// A client of one socket hands memory over, and takes it away while the controller works in it.
/// The server's other client goes on.
#[test]
fn memory_is_taken_away() {
    let process = Process::several(2);
    let [uri, other] = [0, 1].map(|n| process.uris().nth(n).unwrap());
    let socket = uri.strip_prefix("vfio-user:").unwrap();
    let device = Device::open_with(&other, &options(1)).unwrap();
    let queue = device.local_queue().unwrap();
    type Take = fn(&File) -> io::Result<()>;
    let cases: [(&str, io::Result<File>, Take, Left); 9] = [
        (
            "huge pages, sealed, none of them set aside",
            memory(true, SealFlags::SHRINK | SealFlags::GROW),
            punch,
            Left::Nothing,
        ),
        ("huge pages", memory(true, SealFlags::empty()), shorten, Left::Nothing),
        ("memory, shortened", memory(false, SealFlags::empty()), shorten, Left::Failed),
        ("memory, with a hole", memory(false, SealFlags::empty()), punch, Left::Works),
        (
            "sealed memory, with a hole",
            memory(false, SealFlags::SHRINK | SealFlags::GROW),
            punch,
            Left::Works,
        ),
        ("a file on tmpfs, shortened", file_in("/dev/shm"), shorten, Left::Failed),
        ("a file on tmpfs, with a hole", file_in("/dev/shm"), punch, Left::Works),
        (
            "a file on a disk, shortened",
            file_in(env!("CARGO_TARGET_TMPDIR")),
            shorten,
            Left::Failed,
        ),
        ("a file on a disk, with a hole", file_in(env!("CARGO_TARGET_TMPDIR")), punch, Left::Works),
    ];
    for (generation, (what, file, take, left)) in (1..).zip(cases) {
        let file = match file {
            Ok(file) => file,
            Err(why) => {
                skipped(format_args!("{what}: {why}"));
                continue;
            }
        };
        watched(what, || {
            let client = client(socket);
            let mapped = client.map(0, BYTES, file.as_fd(), 0);
            if left == Left::Nothing {
                assert!(
                    matches!(mapped, Err(CallError::Refused(Command::DmaMap, Errno::INVAL))),
                    "{what}: {mapped:?}"
                );
            } else {
                mapped.unwrap();
                begin(&client, &file);
                take(&file).unwrap();
                // One entry more, which is gone, or of zeroes.
                set(&client, regs::DOORBELLS, 2);
                let fails = left == Left::Failed;
                eventually(what, || if fails { csts(&client).cfs() } else { completed(&file, 1) });
            }
            Job { generation, ..Job::of(1) }.run(&queue);
            assert_eq!(csts(&client).rdy(), left != Left::Nothing, "it is reached still");
        });
    }
    assert_eq!((device.health().dead, device.health().resets), (None, 0));
}

/// A server that hands its doorbells over in this file, and is otherwise the one at `server`, for
/// one client. What it gets of the client's memory it tries to take away.
fn hostile(listener: UnixListener, server: &Path, doorbells: &File) {
    let (stream, _) = listener.accept().unwrap();
    let mut ends = [stream, UnixStream::connect(server).unwrap()]
        .map(|stream| Socket::new(stream, 2 << 20).unwrap());
    loop {
        for (from, to) in [(0, 1), (1, 0)] {
            let message = match ends[from].receive() {
                Ok(Received::Message(message)) => message,
                Ok(Received::Nothing) => continue,
                Ok(Received::End) | Err(_) => return,
            };
            if Command::from_number(message.header.command) == Some(Command::DmaMap) {
                for memory in message.fds.iter().map(|fd| File::from(fd.try_clone().unwrap())) {
                    assert_eq!(
                        shorten(&memory).unwrap_err().raw_os_error(),
                        Some(Errno::PERM.raw_os_error())
                    );
                    // Nothing is in it yet.
                    fallocate(
                        &memory,
                        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                        0,
                        memory.metadata().unwrap().len(),
                    )
                    .unwrap();
                }
            }
            // Doorbells are all that a server has a descriptor of.
            let own: Vec<BorrowedFd<'_>> = message.fds.iter().map(OwnedFd::as_fd).collect();
            let fds = if from == 1 && !own.is_empty() { vec![doorbells.as_fd()] } else { own };
            let bytes = message.header.with_body(&message.body);
            while !ends[to].flush().unwrap_or(true) {
                thread::yield_now();
            }
            // Who has gone is seen above.
            _ = ends[to].send(&bytes, &fds);
        }
        let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let mut ends = ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN));
        _ = poll(&mut ends, Some(&moment));
    }
}

/// Doorbells that cannot be mapped safely are messages, and a note says why.
#[test]
fn doorbells_are_taken_away() {
    let cases = [
        ("huge pages", memory(true, SealFlags::SHRINK | SealFlags::GROW)),
        ("F_SEAL_SHRINK", memory(false, SealFlags::empty())),
        ("F_SEAL_SHRINK", file_in("/dev/shm")),
        ("F_SEAL_SHRINK", file_in(env!("CARGO_TARGET_TMPDIR"))),
    ];
    for (why, file) in cases {
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                skipped(format_args!("{why}: {error}"));
                continue;
            }
        };
        let (served, socket) =
            (Served::new("mem:16M?profile=optane&doorbells=mapped"), Scratch::short("hostile"));
        let listener = UnixListener::bind(socket.path()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| hostile(listener, served.socket(), &file));
            watched(why, || {
                let device = Device::open_with(
                    &format!("vfio-user:{}", socket.path().display()),
                    &options(1),
                )
                .unwrap();
                assert!(
                    device
                        .notes()
                        .iter()
                        .any(|note| note.contains("by messages") && note.contains(why)),
                    "{:?}",
                    device.notes()
                );
                let queue = device.local_queue().unwrap();
                Job::of(1).run(&queue);
                // Of huge pages some are sealed.
                _ = shorten(&file);
                Job::of(2).run(&queue);
            });
        });
    }
}
