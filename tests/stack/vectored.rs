//! One run of blocks in several buffers.

use reap::{Device, DmaBuf, IoError, Namespace, OpenOptions, Queue, Refused, Request};

use crate::common::open;

const SIZES: [usize; 4] = [512, 65_536, 4096, 1 << 20];

fn buffers(queue: &Queue, sizes: &[usize], byte: impl Fn(usize) -> u8) -> Vec<DmaBuf> {
    let filled = |(n, &len): (usize, &usize)| {
        let mut buf = queue.buffer(len).unwrap();
        buf.fill(byte(n));
        buf
    };
    sizes.iter().enumerate().map(filled).collect()
}

fn reads(queue: &Queue, ns: &Namespace, lba: u64, len: usize) -> Vec<u8> {
    let (result, buf) = queue.block_on(queue.read(ns, lba, queue.buffer(len).unwrap())).unwrap();
    assert_eq!(result, Ok(()));
    buf.to_vec()
}

/// On one controller, on several paths, and with fewer tags than buffers.
#[test]
fn buffers_follow_each_other() {
    let multipath = "multipath:?path=mem:16M?profile=optane&path=mem:16M?profile=optane";
    for (uri, depth) in
        [("mem:16M?profile=optane", 2), ("mem:16M?profile=optane&sgl=yes", 64), (multipath, 64)]
    {
        let device = open(uri, OpenOptions::new().depth(depth));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let written = buffers(&queue, &SIZES, |n| n as u8 + 1);
        let (result, bufs) = queue.block_on(queue.write_vectored(&ns, 7, written)).unwrap();
        assert_eq!(
            (result, bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>()),
            (Ok(()), SIZES.to_vec()),
            "{uri}"
        );
        let mut lba = 7;
        for (n, len) in SIZES.into_iter().enumerate() {
            assert!(
                reads(&queue, &ns, lba, len).iter().all(|&byte| byte == n as u8 + 1),
                "{uri}: buffer {n}"
            );
            lba += len as u64 / 512;
        }
        // Cut elsewhere it is the same run of blocks.
        let (result, bufs) = queue
            .block_on(queue.read_vectored(&ns, 7, buffers(&queue, &[1024, 65_024 + 4096], |_| 0)))
            .unwrap();
        assert_eq!(result, Ok(()));
        let read: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let expected: Vec<u8> = SIZES
            .into_iter()
            .zip(1u8..)
            .flat_map(|(len, byte)| vec![byte; len])
            .take(read.len())
            .collect();
        assert!(read == expected, "{uri}");
        assert_eq!(device.in_flight(), 0);
    }
}

#[test]
fn unfit_buffers_write_nothing() {
    let device = open("mem:1M?profile=optane", OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let other = Device::open("mem:1M").unwrap();
    let foreign = vec![queue.buffer(512).unwrap(), other.buffer(512).unwrap()];
    let refused = [
        (0, buffers(&queue, &[512, 100], |_| 9)),
        (0, foreign),
        (ns.blocks() - 1, buffers(&queue, &[512, 512], |_| 9)),
        (u64::MAX, buffers(&queue, &[512], |_| 9)),
    ];
    for (lba, bufs) in refused {
        let lens: Vec<usize> = bufs.iter().map(|buf| buf.len()).collect();
        let (result, bufs) = queue.block_on(queue.write_vectored(&ns, lba, bufs)).unwrap();
        assert!(
            matches!(
                result,
                Err(IoError::Refused(
                    Refused::Length { .. } | Refused::ForeignBuffer | Refused::OutOfRange { .. }
                ))
            ),
            "{result:?}"
        );
        assert_eq!(
            bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>(),
            lens,
            "the buffers come back"
        );
    }
    assert!(
        reads(&queue, &ns, 0, 512)
            .iter()
            .chain(&reads(&queue, &ns, ns.blocks() - 1, 512))
            .all(|&byte| byte == 0)
    );
    assert_eq!(
        queue.block_on(queue.read_vectored(&ns, 0, Vec::new())).unwrap().0,
        Ok(()),
        "of no buffers there is nothing to read"
    );
}

/// A part that fails does not hide the others' buffers.
#[test]
fn failed_part_is_the_result() {
    let device = open("mem:1M?profile=optane", OpenOptions::default());
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    queue.block_on(queue.start(Request::write_uncorrectable(&ns, 2, 1))).unwrap().result.unwrap();
    let (result, bufs) =
        queue.block_on(queue.read_vectored(&ns, 0, buffers(&queue, &[1024, 1024], |_| 1))).unwrap();
    assert!(matches!(result, Err(IoError::Status(_))), "{result:?}");
    assert!(bufs.len() == 2 && bufs[0].iter().all(|&byte| byte == 0));
}
