//! `ioengine`, and the options of fio's engines that say how completions are found.

/// The I/O engine that a job asks for.
///
/// fio's engines are ways into the kernel. Reap's device URI chooses the way; what an engine says beside its name can
/// choose completion modes and options of a device that has them. fio's manual, section *I/O engine specific parameters*.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// `ioengine`; `None`: the job names none.
    pub name: Option<String>,
    /// `hipri`: completions are polled for. Of `io_uring` and `pvsync2`.
    pub hipri: bool,
    /// `fixedbufs`: buffers are registered with the ring. Of `io_uring`.
    pub fixedbufs: bool,
    /// `registerfiles`: files are registered with the ring. Of `io_uring`.
    pub registerfiles: bool,
    /// `sqthread_poll`: a thread of the kernel looks for submissions. Of `io_uring`.
    pub sqthread_poll: bool,
}

/// fio's engines that do no block I/O.
#[rustfmt::skip]
const NO_BLOCK_IO: [&str; 15] = [
    "cpuio", "exec", "net", "netsplice", "rdma", "filecreate", "filestat", "filedelete", "dircreate", "dirstat", "dirdelete",
    "ftruncate", "falloc", "e4defrag", "page_fault",
];

impl Engine {
    /// Whether fio's engine `name` reads and writes blocks at all.
    pub fn does_block_io(name: &str) -> bool {
        !NO_BLOCK_IO.contains(&name)
    }

    /// Whether the job names an engine that has one request in flight for each thread, whatever `iodepth` says.
    pub fn is_synchronous(&self) -> bool {
        matches!(self.name.as_deref(), Some("sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" | "splice"))
    }

    /// The options that the job sets and that its engine does not have in fio.
    pub fn foreign_options(&self) -> Vec<&'static str> {
        let ring = matches!(self.name.as_deref(), Some("io_uring" | "io_uring_cmd"));
        let polls = ring || self.name.as_deref() == Some("pvsync2");
        let given = [
            ("hipri", self.hipri, polls),
            ("fixedbufs", self.fixedbufs, ring),
            ("registerfiles", self.registerfiles, ring),
            ("sqthread_poll", self.sqthread_poll, ring),
        ];
        given.into_iter().filter(|(_, set, has)| *set && !has).map(|(name, ..)| name).collect()
    }
}

#[cfg(test)]
mod tests;
