use super::super::{AllocError, DmaPool, Pages, PoolOptions, RangeError};
use super::*;

/// Records what is pinned, and refuses more than `most` bytes.
#[derive(Debug, Default)]
struct Noted {
    most: u64,
    pinned: Mutex<Vec<(u64, u64)>>,
}

impl Pinner for Noted {
    fn pin(&self, chunk: Chunk, _: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        let mut pinned = lock(&self.pinned);
        if pinned.iter().map(|(_, bytes)| bytes).sum::<u64>() + chunk.bytes > self.most {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        assert!(
            pinned.iter().all(
                |&(addr, bytes)| chunk.addr + chunk.bytes <= addr || addr + bytes <= chunk.addr
            ),
            "pinned twice"
        );
        // The memory is mapped.
        // SAFETY: a chunk is mapped memory that is not in use while the pool allocates none of it.
        unsafe { chunk.memory.write_volatile(0) };
        pinned.push((chunk.addr, chunk.bytes));
        Ok(())
    }

    fn unpin(&self, chunk: Chunk) {
        let mut pinned = lock(&self.pinned);
        let at =
            pinned.iter().position(|&one| one == (chunk.addr, chunk.bytes)).expect("it was pinned");
        pinned.remove(at);
        // It is still mapped.
        // SAFETY: as above; none of it is in use any more.
        unsafe { chunk.memory.write_volatile(0) };
    }
}

fn pool(chunks: u64, most: u64) -> (DmaPool, Arc<Noted>) {
    let pinner = Arc::new(Noted { most: most * CHUNK, pinned: Mutex::default() });
    let options = PoolOptions { pinner: Some(pinner.clone()), ..PoolOptions::default() };
    (options.open(chunks * CHUNK).unwrap(), pinner)
}

#[test]
fn chunks_are_pinned_on_first_use() {
    let (pool, pinner) = pool(8, 8);
    assert_eq!(pool.pinned(), 0);
    let small: Vec<_> = (0..100).map(|_| pool.alloc(4096).unwrap()).collect();
    assert_eq!((pool.pinned(), lock(&pinner.pinned).len()), (CHUNK, 1));
    let ring = pool.alloc_ring(CHUNK as usize).unwrap();
    let run = pool.alloc(2 * CHUNK as usize).unwrap();
    assert_eq!(pool.pinned(), 4 * CHUNK);
    // Chunks stay pinned: they will be used again.
    drop(run);
    let run = pool.alloc(CHUNK as usize + 1).unwrap();
    assert_eq!(pool.pinned(), 4 * CHUNK);
    drop((small, pool, run));
    assert_eq!(lock(&pinner.pinned).len(), 4);
    drop(ring);
    assert!(lock(&pinner.pinned).is_empty());
}

#[test]
fn unpinnable_blocks_are_freed() {
    let (pool, _) = pool(3, 1);
    let first = pool.alloc(CHUNK as usize).unwrap();
    for len in [512, 2 * CHUNK as usize] {
        assert!(matches!(pool.alloc(len), Err(AllocError::Pin(_))), "{len}");
        assert!(pool.alloc_ring(len).is_err());
    }
    drop(first);
    assert!(pool.alloc(512).is_ok());
    assert!(matches!(pool.alloc(4 * CHUNK as usize), Err(AllocError::Full { .. })));
}

#[test]
fn regions_are_pinned_by_chunks() {
    let (pool, pinner) = pool(1, 2);
    let region = pool.register(Pages::new(CHUNK as usize + 8192).unwrap()).unwrap();
    let chunk = CHUNK as usize;
    assert_eq!(pool.pinned(), 0);
    let tail = region.buffer(chunk + 4096..chunk + 8192).unwrap();
    assert_eq!(*lock(&pinner.pinned), [(region.base() + CHUNK, 8192)]);
    let head = region.buffer(0..512).unwrap();
    assert_eq!(pool.pinned(), CHUNK + 8192);
    let full = pool.register(Pages::new(chunk).unwrap()).unwrap();
    assert!(matches!(full.buffer(0..512), Err(RangeError::Pin(_))));
    drop((tail, head, full));
    assert_eq!(pool.pinned(), CHUNK + 8192);
    drop(region.into_owner().unwrap());
    assert_eq!((pool.pinned(), lock(&pinner.pinned).len()), (0, 0));
}

#[test]
fn pin_errors_name_the_limit() {
    let limit = PinError::Limit { wanted: 4 << 20, pinned: 8 << 20, limit: 8 << 20 };
    assert_eq!(
        limit.to_string(),
        "a device needs 4194304 more bytes pinned in addition to 8388608, and RLIMIT_MEMLOCK is 8388608 bytes; \
         raise it to 12582912 or more (`ulimit -l 12288`, or `LimitMEMLOCK=12582912` of a service)"
    );
    let other = PinError::System { wanted: 4096, source: io::Error::from_raw_os_error(libc::EIO) };
    assert_eq!(
        other.to_string(),
        "cannot pin 4096 bytes for a device: Input/output error (os error 5)"
    );
}
