//! On the running kernel. Without io_uring, as in some sandboxes, each test prints why and passes.

mod io;
mod limits;
mod waits;

use std::fs::File as StdFile;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use units::Nanos;

use super::*;
use crate::{DmaPool, EventFd, Lent};

const BLOCK: usize = 4096;
const SECOND: Nanos = Nanos(1_000_000_000);

/// The features of the kernel; `None` after printing why there is no io_uring.
fn features() -> Option<Features> {
    match Features::probe() {
        Ok(features) => Some(features),
        Err(why) => {
            // Write to the descriptor: the test harness hides the output of passing tests.
            _ = writeln!(std::io::stderr(), "NOT TESTED, NO IO_URING HERE: {why}");
            None
        }
    }
}

/// A ring with its producer and consumer.
struct Whole {
    ring: Ring,
    sq: Sq,
    cq: Cq,
    /// Number of file slots in use.
    files: u32,
}

impl Whole {
    fn new(options: &Options) -> Whole {
        let (ring, sq, cq) = Ring::new(options).unwrap();
        Whole { ring, sq, cq, files: 4 }
    }

    /// Registers a file in the next free slot.
    fn keep(&mut self, file: impl AsFd) -> FileSlot {
        self.files += 1;
        self.ring.register_file(FileSlot(self.files - 1), file).unwrap();
        FileSlot(self.files - 1)
    }

    fn push(&mut self, entry: Entry) {
        assert!(self.sq.push(entry));
    }

    /// Submits all pushed entries and waits for `n` completions.
    fn submit(&mut self, n: u32) -> u32 {
        let submit = self.sq.unsubmitted();
        self.ring
            .enter(Enter {
                submit,
                wait_for: n,
                timeout: Some(Nanos(20 * SECOND.0)),
                run_tasks: true,
                ..Enter::default()
            })
            .unwrap()
    }

    fn take(&mut self) -> Vec<Cqe> {
        let taken = std::iter::from_fn(|| self.cq.pop()).collect();
        self.cq.release();
        taken
    }

    /// Submits, waits for all `n` completions, and returns their results by user data.
    fn results(&mut self, n: u32) -> Vec<(u64, i32)> {
        self.submit(n);
        let mut all: Vec<_> = self.take().iter().map(|cqe| (cqe.user_data, cqe.result)).collect();
        all.sort_unstable();
        all
    }

    fn result(&mut self, entry: Entry) -> i32 {
        self.push(entry.user_data(77));
        match self.results(1)[..] {
            [(77, result)] => result,
            ref others => panic!("one completion was expected: {others:?}"),
        }
    }
}

/// Options of all rings that the kernel supports for files without poll queues.
fn kinds() -> Vec<Options> {
    let Some(features) = features() else { return Vec::new() };
    let base = Options { entries: 8, cq_entries: 64, files: 16, buffers: 4, ..Options::default() };
    let mut kinds = Vec::new();
    kinds.extend(features.shared.then_some(base));
    kinds.extend(features.owner.then_some(Options { owner: true, ..base }));
    kinds.extend(features.big.then_some(Options { big: true, ..base }));
    kinds.extend(features.sq_poll.then_some(Options { poll: Poll::Sq { idle_ms: 1 }, ..base }));
    assert!(!kinds.is_empty());
    kinds
}

/// An unnamed file of `len` bytes on a real file system, and a second descriptor of it, with
/// O_DIRECT if supported. An interrupted test leaves nothing behind.
fn file(len: u64) -> (StdFile, OwnedFd) {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.set_len(len).unwrap();
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let open = |flags| StdFile::options().read(true).write(true).custom_flags(flags).open(&again);
    let fd = open(libc::O_DIRECT).or_else(|_| open(0)).unwrap().into();
    (file, fd)
}

fn filled(pool: &DmaPool, len: usize, byte: u8) -> Lent {
    let mut buf = pool.alloc(len).unwrap();
    buf.fill(byte);
    buf.lend()
}
