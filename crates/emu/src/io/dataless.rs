//! Commands other than Read and Write; executes Write Zeroes, Dataset Management and Write
//! Uncorrectable, which change blocks without a data transfer.

use nvme::io::{DatasetManagement, Range, Transfer};
use nvme::{Nsid, Sqe, Status, opcode};
use units::Op;

use super::{Data, IoCommand, Pointer, Store, gather, status_of};
use crate::config::Config;
use crate::{NamespaceConfig, Port};

impl Store {
    /// Validates a command other than Read and Write, as far as possible without reading host
    /// memory.
    #[cold]
    pub(super) fn decode_other(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        match self.operation(sqe.opcode).ok_or(Status::INVALID_OPCODE.with_dnr())? {
            Op::Flush => self.decode_flush(sqe.nsid()),
            Op::WriteZeroes => self.decode_write_zeroes(sqe),
            Op::Deallocate => self.decode_dataset_management(sqe),
            // Limited by WUSL (NVM 3.3.7).
            op @ Op::WriteUncorrectable => self.decode_transfer(sqe, op, Config::MAX_ZEROES),
            // Limited by MDTS; VSL has the same value (NVM 3.3.5).
            op @ (Op::Read | Op::Write | Op::Compare | Op::Verify) => {
                self.decode_transfer(sqe, op, self.max_transfer.into())
            }
        }
    }

    /// The I/O command of an opcode, if supported. Also used for ONCS and the Commands Supported
    /// and Effects log.
    pub(crate) fn operation(&self, opcode: u8) -> Option<Op> {
        Some(match opcode {
            opcode::io::FLUSH => Op::Flush,
            opcode::io::WRITE => Op::Write,
            opcode::io::READ => Op::Read,
            opcode::io::WRITE_UNCORRECTABLE if self.uncorrectable => Op::WriteUncorrectable,
            opcode::io::COMPARE if self.checks => Op::Compare,
            opcode::io::WRITE_ZEROES if self.write_zeroes => Op::WriteZeroes,
            opcode::io::DATASET_MANAGEMENT if self.dataset_management => Op::Deallocate,
            opcode::io::VERIFY if self.checks => Op::Verify,
            _ => return None,
        })
    }

    fn decode_write_zeroes(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        // Limited by WZSL (NVM 3.3.8).
        let request = self.decode_transfer(sqe, Op::WriteZeroes, Config::MAX_ZEROES)?;
        Ok(IoCommand { deallocate: Transfer::deallocates(sqe), ..request })
    }

    fn decode_dataset_management(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        let namespace = self.active(sqe.nsid())?;
        let command = DatasetManagement::from_sqe(sqe);
        // Limited by DMRL (NVM 3.3.3).
        if command.ranges > Config::MAX_RANGES.into() {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr());
        }
        if namespace.refusal != Status::SUCCESS {
            return Err(namespace.refusal);
        }
        Ok(IoCommand {
            op: Op::Deallocate,
            durable: !self.write_cache,
            deallocate: command.deallocate,
            nsid: sqe.nsid(),
            lba: 0,
            bytes: command.bytes() as u32,
            data: Pointer::prps(sqe.dptr()),
        })
    }

    /// Executes a command other than Read and Write. With the profile `null` neither lists nor data
    /// are read, and Compare always succeeds.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_other(
        &mut self,
        request: &IoCommand,
        port: &impl Port,
    ) -> Result<(), Status> {
        match request.op {
            Op::Flush => match self.refusal(request.nsid) {
                None => self.flush(request.nsid),
                Some(status) => Err(status),
            },
            _ if !self.moves_data => Ok(()),
            Op::WriteZeroes => self.zero(request),
            Op::Verify => self.verify(request),
            Op::WriteUncorrectable => self.mark_uncorrectable(request),
            Op::Compare => {
                let data = self.take_data(request, port)?;
                self.compare(request, &data)
            }
            _ => {
                let list = self.take_list(request, port)?;
                self.deallocate(request, &list)
            }
        }
    }

    /// The namespace of a command in service, unless its ANA state has become inaccessible.
    pub(super) fn accessible(&mut self, nsid: Nsid) -> Result<&mut NamespaceConfig, Status> {
        let namespace = self.get_mut(nsid).ok_or(Status::INTERNAL_ERROR)?;
        if namespace.refusal == Status::SUCCESS { Ok(namespace) } else { Err(namespace.refusal) }
    }

    /// Executes Write Zeroes.
    pub(super) fn zero(&mut self, request: &IoCommand) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let at = request.lba << namespace.block_shift;
        namespace
            .media_mut()
            .zero_at(at, request.bytes.into(), request.deallocate, request.durable)
            .map_err(status_of)
    }

    /// Executes Write Uncorrectable. Marks are durable at once, and so is their removal by a later
    /// write, even if the data of that write are not.
    pub(super) fn mark_uncorrectable(&mut self, request: &IoCommand) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let at = request.lba << namespace.block_shift;
        namespace.medium.mark_uncorrectable(at, request.bytes.into());
        Ok(())
    }

    /// Reads the list of ranges of a Dataset Management command.
    pub(super) fn take_list(
        &self,
        request: &IoCommand,
        port: &impl Port,
    ) -> Result<Vec<u8>, Status> {
        let mut list = vec![0; request.bytes as usize];
        let mut data = Data::of(request.data, request.bytes, self.page, port)?;
        gather(&mut list, &mut data, port)?;
        Ok(list)
    }

    /// Executes Dataset Management: all ranges, or none if one is invalid. Only the attribute
    /// Deallocate has an effect.
    pub(super) fn deallocate(&mut self, request: &IoCommand, list: &[u8]) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let ranges = || list.as_chunks().0.iter().map(|&bytes| Range::from_bytes(bytes));
        // All ranges are checked before the first is deallocated, so that a refused command has no
        // effect.
        let long = ranges().any(|range| range.blocks > Config::MAX_RANGE_BLOCKS);
        if long
            || ranges().map(|range| u64::from(range.blocks)).sum::<u64>()
                > Config::MAX_DEALLOCATED_BLOCKS
        {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr());
        }
        if ranges().any(|range| !range.fits(namespace.blocks)) {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        // The other attributes are hints about access patterns, which no medium here uses.
        if !request.deallocate {
            return Ok(());
        }
        let shift = namespace.block_shift;
        // A range of no blocks is valid and does nothing.
        for range in ranges().filter(|range| range.blocks > 0) {
            let len = u64::from(range.blocks) << shift;
            namespace
                .media_mut()
                .zero_at(range.lba << shift, len, true, false)
                .map_err(status_of)?;
        }
        // One flush for all ranges.
        if request.durable { namespace.media_mut().flush().map_err(status_of) } else { Ok(()) }
    }
}
