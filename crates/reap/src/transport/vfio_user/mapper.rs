//! Memory that servers reach: what each of them has been given, and is given again when it is there again.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::vfio_user::{CallError, Client};
use hw::{Chunk, Pinner};

use super::Connection;

/// Makes memory known to servers: the one of a device, or those of all its paths.
#[derive(Debug)]
pub(super) struct Mapper {
    connections: Vec<Arc<Connection>>,
    /// Each server is trusted to take no pages away (`trust=yes`).
    trusted: bool,
    /// By bus address. Locked for moments: a server's answer is never waited for meanwhile.
    pinned: Mutex<Pieces>,
}

/// Memory by bus address.
pub(super) type Pieces = BTreeMap<u64, Arc<Piece>>;

/// A piece of memory that a device reaches.
#[derive(Debug)]
pub(super) struct Piece {
    addr: u64,
    bytes: u64,
    /// What it is a part of, and where it begins there.
    file: OwnedFd,
    offset: u64,
}

impl Piece {
    fn map(&self, client: &Client) -> Result<(), CallError> {
        client.map(self.addr, self.bytes, self.file.as_fd(), self.offset)
    }

    fn unmap(&self, client: &Client) {
        if client.is_over() {
            return;
        }
        if let Err(error) = client.unmap(self.addr, self.bytes) {
            tracing::warn!(%error, addr = self.addr, bytes = self.bytes, "the server has not let go of memory");
        }
    }
}

impl Mapper {
    pub(super) fn new(connections: Vec<Arc<Connection>>, trusted: bool) -> Mapper {
        Mapper { connections, trusted, pinned: Mutex::default() }
    }

    fn pinned(&self) -> MutexGuard<'_, Pieces> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        self.connections.iter().map(|connection| connection.client()).collect()
    }

    /// Gives all memory that is pinned to a new client, which has been `given` some. What is pinned or unpinned meanwhile it is told of before `join` is
    /// called, and afterwards, if that says that it takes part, like any other.
    ///
    /// # Errors
    /// The server does not take it.
    pub(super) fn give(&self, client: &Client, given: &mut Pieces, join: impl FnOnce() -> bool) -> Result<bool, CallError> {
        loop {
            let wanted = {
                let pinned = self.pinned();
                if same(given, &pinned) {
                    return Ok(join());
                }
                pinned.clone()
            };
            let missing = |piece: &&Arc<Piece>, from: &Pieces| !from.get(&piece.addr).is_some_and(|there| Arc::ptr_eq(there, piece));
            given.values().filter(|piece| missing(piece, &wanted)).for_each(|piece| piece.unmap(client));
            for piece in wanted.values().filter(|piece| missing(piece, given)) {
                piece.map(client)?;
            }
            *given = wanted;
        }
    }
}

fn same(one: &Pieces, other: &Pieces) -> bool {
    one.len() == other.len() && one.values().zip(other.values()).all(|(one, other)| Arc::ptr_eq(one, other))
}

impl Pinner for Mapper {
    fn pin(&self, chunk: Chunk, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()> {
        let (file, offset) = file.ok_or_else(|| io::Error::other("no file stands behind it, and the device is another process's"))?;
        let piece = Arc::new(Piece { addr: chunk.addr, bytes: chunk.bytes, file: file.try_clone_to_owned()?, offset });
        let clients = {
            let mut pinned = self.pinned();
            pinned.insert(piece.addr, piece.clone());
            // In this order and under the lock: who joins later has been told of it.
            self.clients()
        };
        let alone = clients.len() == 1;
        for client in clients {
            // One of several that is gone stands in nobody's way, and is told when it is back.
            match piece.map(&client) {
                Err(error) if alone || !client.is_over() => {
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

    fn wants_file(&self) -> bool {
        true
    }

    fn trusts(&self) -> bool {
        self.trusted
    }

    /// All at once: nothing of it is touched by that.
    fn chunk_bytes(&self) -> u64 {
        u64::MAX
    }
}
