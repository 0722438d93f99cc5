//! On the running kernel. Where it has no io_uring, each test says why and passes: a sandbox may switch it off.

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

/// What the kernel has; `None`, loudly, if it has nothing.
fn features() -> Option<Features> {
    match Features::probe() {
        Ok(features) => Some(features),
        Err(why) => {
            // To the descriptor itself: a test that passes shows nothing that is printed.
            _ = writeln!(std::io::stderr(), "NOT TESTED, NO IO_URING HERE: {why}");
            None
        }
    }
}

/// A ring with its ends, of each kind that the kernel has.
struct Whole {
    ring: Ring,
    sq: Sq,
    cq: Cq,
    /// Slots of files that are filled.
    files: u32,
}

impl Whole {
    fn new(options: &Options) -> Whole {
        let (ring, sq, cq) = Ring::new(options).unwrap();
        Whole { ring, sq, cq, files: 4 }
    }

    /// Registers a file, in a slot that no test names.
    fn keep(&mut self, file: impl AsFd) -> FileSlot {
        self.files += 1;
        self.ring.register_file(FileSlot(self.files - 1), file).unwrap();
        FileSlot(self.files - 1)
    }

    fn push(&mut self, entry: Entry) {
        assert!(self.sq.push(entry));
    }

    /// Submits all that was pushed, and waits for `n`.
    fn submit(&mut self, n: u32) -> u32 {
        let submit = self.sq.unsubmitted();
        self.ring.enter(Enter { submit, wait_for: n, timeout: Some(Nanos(20 * SECOND.0)), run_tasks: true, ..Enter::default() }).unwrap()
    }

    fn take(&mut self) -> Vec<Cqe> {
        let taken = std::iter::from_fn(|| self.cq.pop()).collect();
        self.cq.release();
        taken
    }

    /// The results of all that was pushed, by user data: all of them are waited for.
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

/// Rings of all kinds that the kernel has and that files without poll queues can use.
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

/// A file of `len` bytes on a real file system, and another descriptor of it, with O_DIRECT if that has it. The file has no name, so
/// that a test that is interrupted leaves nothing behind.
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
