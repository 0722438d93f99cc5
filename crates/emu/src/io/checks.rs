//! Compare and Verify, which read blocks without changing them.

use nvme::Status;

use super::{IoCommand, Store, status_of};

impl Store {
    /// Executes Compare: fails with Compare Failure if the blocks differ from `data` (NVM 3.3.1).
    pub(super) fn compare(&mut self, request: &IoCommand, data: &[u8]) -> Result<(), Status> {
        // DNR is not set: the host may compare again after another write.
        if self.blocks_of(request)? == data { Ok(()) } else { Err(Status::COMPARE_FAILURE) }
    }

    /// Executes Verify: reads the blocks and discards the data (NVM 3.3.5).
    pub(super) fn verify(&mut self, request: &IoCommand) -> Result<(), Status> {
        self.blocks_of(request).map(drop)
    }

    /// Reads the blocks of a command.
    fn blocks_of(&mut self, request: &IoCommand) -> Result<Vec<u8>, Status> {
        let namespace = self.accessible(request.nsid)?;
        let mut bytes = vec![0; request.bytes as usize];
        let at = request.lba << namespace.block_shift;
        namespace.media_mut().read_at(at, &mut bytes).map_err(status_of)?;
        Ok(bytes)
    }
}
