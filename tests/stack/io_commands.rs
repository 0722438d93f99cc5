//! I/O commands of the caller's own.

use futures_util::future::join_all;
use nvme::Status;
use nvme::opcode::io;
use reap::{Device, IoError, OpenOptions, Queue, Refused, Request, Sqe};

use crate::common::{open, wait_until};

/// A Read, or a Write, of this many blocks.
fn transfer(opcode: u8, lba: u32, blocks: u32) -> Sqe {
    Sqe { opcode, nsid: 1, cdw10: lba, cdw12: blocks - 1, ..Sqe::default() }
}

fn send(queue: &Queue, command: &Sqe, bytes: Option<usize>) -> Result<u32, IoError> {
    let (result, buf) = queue
        .block_on(queue.io_command(command, bytes.map(|len| queue.buffer(len).unwrap())))
        .unwrap();
    assert_eq!(buf.map(|buf| buf.len()), bytes, "the buffer comes back");
    result
}

/// Of any size, by PRPs and by SGLs, more at a time than there are tags.
#[test]
fn written_blocks_are_read() {
    for uri in ["mem:64M?profile=optane", "mem:64M?profile=optane&sgl=yes"] {
        let device = open(uri, OpenOptions::new().depth(4));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let sizes = [512usize, 4096, 8192, 65_536 + 512, 1 << 20];
        let filled = |n: usize, len| {
            let mut buf = queue.buffer(len).unwrap();
            buf.fill(n as u8 + 1);
            buf
        };
        let writes = sizes.iter().enumerate().map(|(n, &len)| {
            let command = transfer(io::WRITE, n as u32 * 2048, (len / 512) as u32);
            queue.io_command(&command, Some(filled(n, len)))
        });
        for (result, _) in queue.block_on(join_all(writes)).unwrap() {
            assert_eq!(result, Ok(0), "{uri}");
        }
        for (n, len) in sizes.into_iter().enumerate() {
            let (result, buf) = queue
                .block_on(queue.read(&ns, n as u64 * 2048, queue.buffer(len).unwrap()))
                .unwrap();
            assert!(result.is_ok() && buf.iter().all(|&byte| byte == n as u8 + 1), "{uri}: {len}");
            let read = queue.io_command(
                &transfer(io::READ, n as u32 * 2048, (len / 512) as u32),
                Some(queue.buffer(len).unwrap()),
            );
            let (result, buf) = queue.block_on(read).unwrap();
            assert!(
                result.is_ok() && buf.unwrap().iter().all(|&byte| byte == n as u8 + 1),
                "{uri}: {len}"
            );
        }
        assert_eq!(
            send(&queue, &Sqe { opcode: io::FLUSH, nsid: 1, ..Sqe::default() }, None),
            Ok(0)
        );
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0));
    }
}

/// What the controller says is the result, and what could reach memory of others is not sent.
#[test]
fn unsafe_lengths_are_refused() {
    let device = Device::open("mem:64M?profile=null").unwrap();
    let queue = device.queue().unwrap();
    let vendors = Sqe { opcode: 0xc2, nsid: 1, ..Sqe::default() };
    let status = |result: Result<u32, IoError>| match result {
        Err(IoError::Status(status)) => status.kind(),
        other => panic!("{other:?}"),
    };
    assert_eq!(status(send(&queue, &vendors, Some(4096))), Status::INVALID_OPCODE);
    assert_eq!(
        status(send(&queue, &Sqe { opcode: 0xc1, ..vendors }, Some(16_384))),
        Status::INVALID_OPCODE
    );
    assert_eq!(
        status(send(&queue, &transfer(io::READ, u32::MAX, 1), Some(512))),
        Status::LBA_OUT_OF_RANGE
    );
    let refused = [
        (transfer(io::READ, 0, 9), Some(4096)),
        (transfer(io::WRITE, 0, 2), Some(512)),
        (transfer(io::READ, 0, 1), None),
        (Sqe { nsid: 2, ..transfer(io::READ, 0, 1) }, Some(512)),
        (vendors, Some(8192)),
        (vendors, Some(512)),
        (Sqe { opcode: io::RESERVATION_REPORT, cdw10: 1023, ..vendors }, Some(4092)),
        (Sqe { opcode: io::FLUSH, ..vendors }, Some(512)),
        (Sqe { opcode: 0x7f, ..vendors }, None),
        (Sqe { opcode: 0xc1, ..vendors }, Some((1 << 20) + 512)),
    ];
    for (command, bytes) in refused {
        let result = send(&queue, &command, bytes);
        assert!(
            matches!(result, Err(IoError::Refused(Refused::Command { opcode, .. })) if opcode == command.opcode),
            "{command:?}: {result:?}"
        );
    }
    // A controller with SGLs gets the length.
    let device = Device::open("mem:64M?profile=null&sgl=yes").unwrap();
    assert_eq!(
        status(send(&device.queue().unwrap(), &vendors, Some(8192))),
        Status::INVALID_OPCODE
    );
    let other = open("mem:64M?profile=null", OpenOptions::default());
    let (result, buf) = queue
        .block_on(queue.io_command(&transfer(io::READ, 0, 1), Some(other.buffer(512).unwrap())))
        .unwrap();
    assert_eq!((result, buf.map(|buf| buf.len())), (Err(Refused::ForeignBuffer.into()), Some(512)));
}

/// They are for controllers of Reap's, one at a time.
#[test]
fn files_and_paths_refuse_commands() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let kernels = format!("kernel:{}", file.path().display());
    for uri in [&kernels, "multipath:?path=mem:1M&path=mem:1M"] {
        let device = match Device::open(uri) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("SKIPPED: {error}");
                continue;
            }
        };
        let result = send(&device.queue().unwrap(), &transfer(io::READ, 0, 1), Some(512));
        assert!(
            matches!(result, Err(IoError::Refused(Refused::Command { opcode: io::READ, .. }))),
            "{uri}: {result:?}"
        );
    }
}

/// A request is sent again after a reset, a command of the caller's is not: it is not known what it
/// would do the second time.
#[test]
fn reset_ends_commands_inside() {
    let device = open("mem:64M?profile=tlc&thread=own", OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    // Its thread rests until the reset is begun, so that it takes back all of them.
    let resting = device.embedded().unwrap().manual_step();
    let command = queue.io_command(&transfer(io::WRITE, 0, 8), Some(queue.buffer(4096).unwrap()));
    let request = queue.start(Request::read(&ns, 0, queue.buffer(4096).unwrap()));
    queue.commit();
    device.reset();
    wait_until("the reset is begun", || device.health().resets == 1);
    drop(resting);
    let ((result, buf), read) = queue.block_on(async { (command.await, request.await) }).unwrap();
    assert_eq!(
        (result, buf.map(|buf| buf.len()), read.result),
        (Err(IoError::TimedOut), Some(4096), Ok(()))
    );
    assert_eq!(send(&queue, &transfer(io::WRITE, 0, 8), Some(4096)), Ok(0));
}
