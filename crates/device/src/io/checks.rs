//! Compare and Verify: commands that read blocks for the controller alone.

use nvme::Status;

use super::{Request, Store, status_of};

/// Bytes that are read at a time: a command's blocks may be many.
const PIECE: usize = 64 << 10;

impl Store {
    /// Carries a Compare out with the host's `data`: the first difference ends it (NVM 3.3.1).
    pub(super) fn compare(&mut self, request: &Request, data: &[u8]) -> Result<(), Status> {
        self.read_pieces(request, |at, piece| match data.get(at..at + piece.len()) {
            Some(theirs) if theirs == piece => Ok(()),
            // The same data would differ again.
            Some(_) => Err(Status::COMPARE_FAILURE.with_dnr()),
            None => Err(Status::INTERNAL_ERROR),
        })
    }

    /// Carries a Verify out: the blocks can be read (NVM 3.3.5).
    pub(super) fn verify(&mut self, request: &Request) -> Result<(), Status> {
        self.read_pieces(request, |_, _| Ok(()))
    }

    /// Reads a command's blocks, and has each piece looked at, with its offset in bytes.
    fn read_pieces(&mut self, request: &Request, mut look: impl FnMut(usize, &[u8]) -> Result<(), Status>) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let (first, bytes) = (request.lba << namespace.block_shift, request.bytes as usize);
        let mut piece = vec![0; bytes.min(PIECE)];
        for at in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - at)];
            namespace.media_mut().read_at(first + at as u64, piece).map_err(status_of)?;
            look(at, piece)?;
        }
        Ok(())
    }
}
