//! Compare and Verify: commands that look at blocks and change none.

use nvme::Status;

use super::{Request, Store, status_of};

impl Store {
    /// Carries a Compare out: Compare Failure if the blocks do not hold `data` (NVM 3.3.1).
    pub(super) fn compare(&mut self, request: &Request, data: &[u8]) -> Result<(), Status> {
        // The same to another controller would fail as well; whether to ask again is the host's to
        // say.
        if self.blocks_of(request)? == data { Ok(()) } else { Err(Status::COMPARE_FAILURE) }
    }

    /// Carries a Verify out: reads the blocks, and keeps them to itself (NVM 3.3.5).
    pub(super) fn verify(&mut self, request: &Request) -> Result<(), Status> {
        self.blocks_of(request).map(drop)
    }

    /// What a command's blocks hold.
    fn blocks_of(&mut self, request: &Request) -> Result<Vec<u8>, Status> {
        let namespace = self.accessible(request.nsid)?;
        let mut bytes = vec![0; request.bytes as usize];
        let at = request.lba << namespace.block_shift;
        namespace.media_mut().read_at(at, &mut bytes).map_err(status_of)?;
        Ok(bytes)
    }
}
