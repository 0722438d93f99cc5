//! The memory that servers can access: what has been mapped at each of them, and is mapped again
//! after a reconnect.
//!
//! Messages to a server are never sent under the lock of `pinned`, because their reply may take
//! seconds. No client misses memory all the same: under the lock, memory is added to `pinned` and
//! the current clients are listed; the memory is mapped at these after that. A client that joins
//! later starts from `pinned`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::vfio_user::{CallError, Client};
use hw::{Chunk, Pinner};

use super::CurrentClient;

/// Maps memory at the servers of a device: one, or one for each path.
#[derive(Debug)]
pub(super) struct Mapper {
    connections: Vec<Arc<CurrentClient>>,
    /// Every server is trusted not to truncate the shared files, which would end this process by
    /// SIGBUS (`trust=yes`).
    trusted: bool,
    /// Mapped memory by bus address. Never locked during a message to a server.
    pinned: Mutex<Pieces>,
}

/// Memory by bus address.
pub(super) type Pieces = BTreeMap<u64, Arc<Piece>>;

/// A piece of memory that the device can access.
#[derive(Debug)]
pub(super) struct Piece {
    addr: u64,
    bytes: u64,
    /// The file that it is a part of, and its offset there.
    file: OwnedFd,
    offset: u64,
}

impl Piece {
    fn map(&self, client: &Client) -> Result<(), CallError> {
        client.map(self.addr, self.bytes, self.file.as_fd(), self.offset)
    }

    fn unmap(&self, client: &Client) {
        if client.is_over() {
            // The server dropped all mappings with the connection.
            return;
        }
        if let Err(error) = client.unmap(self.addr, self.bytes) {
            tracing::warn!(%error, addr = self.addr, bytes = self.bytes, "the server has not unmapped memory");
        }
    }
}

impl Mapper {
    pub(super) fn new(connections: Vec<Arc<CurrentClient>>, trusted: bool) -> Mapper {
        Mapper { connections, trusted, pinned: Mutex::default() }
    }

    fn pinned(&self) -> MutexGuard<'_, Pieces> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        self.connections.iter().map(|connection| connection.client()).collect()
    }

    /// Maps all pinned memory at a new client; `given` is what it has already. Repeats until
    /// `pinned` has not changed since, then calls `join` under the lock. From then on `pin` and
    /// `unpin` reach this client as they do the others. Returns what `join` returns; false: the
    /// client did not join.
    ///
    /// # Errors
    /// The server refuses the memory.
    pub(super) fn give(
        &self,
        client: &Client,
        given: &mut Pieces,
        join: impl FnOnce() -> bool,
    ) -> Result<bool, CallError> {
        loop {
            let wanted = {
                let pinned = self.pinned();
                if same(given, &pinned) {
                    return Ok(join());
                }
                pinned.clone()
            };
            // By identity, not by address: a bus address may be used again for other memory.
            let missing = |piece: &&Arc<Piece>, from: &Pieces| {
                !from.get(&piece.addr).is_some_and(|there| Arc::ptr_eq(there, piece))
            };
            // Unmap first: an address range must not be mapped twice.
            given
                .values()
                .filter(|piece| missing(piece, &wanted))
                .for_each(|piece| piece.unmap(client));
            for piece in wanted.values().filter(|piece| missing(piece, given)) {
                piece.map(client)?;
            }
            *given = wanted;
        }
    }
}

fn same(one: &Pieces, other: &Pieces) -> bool {
    one.len() == other.len()
        && one.values().zip(other.values()).all(|(one, other)| Arc::ptr_eq(one, other))
}

impl Pinner for Mapper {
    fn pin(&self, chunk: Chunk, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        let (file, offset) = file.ok_or_else(|| {
            io::Error::other("it is not backed by a file, and the device is in another process")
        })?;
        let piece = Arc::new(Piece {
            addr: chunk.addr,
            bytes: chunk.bytes,
            file: file.try_clone_to_owned()?,
            offset,
        });
        let clients = {
            let mut pinned = self.pinned();
            pinned.insert(piece.addr, piece.clone());
            // Under the lock, after the insert: a client that joins later finds the piece in
            // `pinned`.
            self.clients()
        };
        let only_path = clients.len() == 1;
        for client in clients {
            // With several paths, one whose server is gone does not fail the others; it maps the
            // piece when it is back.
            match piece.map(&client) {
                Err(error) if only_path || !client.is_over() => {
                    self.unpin(chunk);
                    return Err(io::Error::other(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn unpin(&self, chunk: Chunk) {
        let (piece, clients) = {
            let mut pinned = self.pinned();
            (pinned.remove(&chunk.addr), self.clients())
        };
        let Some(piece) = piece else { return };
        clients.iter().for_each(|client| piece.unmap(client));
    }

    fn needs_file(&self) -> bool {
        true
    }

    fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// No limit: unlike pinning by VFIO, mapping a file costs nothing per page.
    fn chunk_bytes(&self) -> u64 {
        u64::MAX
    }
}
