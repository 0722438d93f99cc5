//! Every command that is no Read and no Write; here Write Zeroes, Dataset Management and Write
//! Uncorrectable, which change blocks and move none of their data.

use nvme::io::{DatasetManagement, Range, Transfer};
use nvme::{Nsid, Sqe, Status, opcode};
use units::Op;

use super::{Data, Pointer, Request, Store, gather, status_of};
use crate::config::Config;
use crate::{Namespace, Port};

impl Store {
    /// Checks a command that is no Read and no Write, as far as that goes without what it has in
    /// the host's memory.
    #[cold]
    pub(super) fn decode_other(&self, sqe: &Sqe) -> Result<Request, Status> {
        match self.operation(sqe.opcode).ok_or(Status::INVALID_OPCODE.with_dnr())? {
            Op::Flush => self.decode_flush(sqe.nsid()),
            Op::WriteZeroes => self.decode_write_zeroes(sqe),
            Op::Deallocate => self.decode_dataset_management(sqe),
            // WUSL (NVM 3.3.7).
            op @ Op::WriteUncorrectable => self.decode_transfer(sqe, op, Config::MOST_ZEROES),
            // VSL (NVM 3.3.5) is as MDTS.
            op @ (Op::Read | Op::Write | Op::Compare | Op::Verify) => {
                self.decode_transfer(sqe, op, self.max_transfer.into())
            }
        }
    }

    /// The I/O command of an opcode, if it is supported. ONCS and the Commands Supported and
    /// Effects log ask here as well.
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

    fn decode_write_zeroes(&self, sqe: &Sqe) -> Result<Request, Status> {
        // WZSL (NVM 3.3.8).
        let request = self.decode_transfer(sqe, Op::WriteZeroes, Config::MOST_ZEROES)?;
        Ok(Request { deallocate: Transfer::deallocates(sqe), ..request })
    }

    fn decode_dataset_management(&self, sqe: &Sqe) -> Result<Request, Status> {
        let namespace = self.active(sqe.nsid())?;
        let command = DatasetManagement::from_sqe(sqe);
        // DMRL (NVM 3.3.3).
        if command.ranges > Config::MOST_RANGES.into() {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr());
        }
        if namespace.refusal != Status::SUCCESS {
            return Err(namespace.refusal);
        }
        Ok(Request {
            op: Op::Deallocate,
            durable: !self.write_cache,
            deallocate: command.deallocate,
            nsid: sqe.nsid(),
            lba: 0,
            bytes: command.bytes() as u32,
            data: Pointer::prps(sqe.dptr()),
        })
    }

    /// Carries such a command out. `null` does not look at lists either, and takes all data for
    /// alike.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_other(
        &mut self,
        request: &Request,
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
            Op::WriteUncorrectable => self.spoil(request),
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

    /// The namespace of a command in service, unless its ANA state has changed since.
    pub(super) fn accessible(&mut self, nsid: Nsid) -> Result<&mut Namespace, Status> {
        let namespace = self.get_mut(nsid).ok_or(Status::INTERNAL_ERROR)?;
        if namespace.refusal == Status::SUCCESS { Ok(namespace) } else { Err(namespace.refusal) }
    }

    /// Carries a Write Zeroes out.
    pub(super) fn zero(&mut self, request: &Request) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let at = request.lba << namespace.block_shift;
        namespace
            .media_mut()
            .zero_at(at, request.bytes.into(), request.deallocate, request.durable)
            .map_err(status_of)
    }

    /// Carries a Write Uncorrectable out. The marks outlast a power cut from the moment they are
    /// made; what a later write takes away of them does so too, whether that write is durable or
    /// not.
    pub(super) fn spoil(&mut self, request: &Request) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let at = request.lba << namespace.block_shift;
        namespace.medium.spoil(at, request.bytes.into());
        Ok(())
    }

    /// Fetches the list of ranges of a Dataset Management.
    pub(super) fn take_list(&self, request: &Request, port: &impl Port) -> Result<Vec<u8>, Status> {
        let mut list = vec![0; request.bytes as usize];
        let mut data = Data::of(request.data, request.bytes, self.page, port)?;
        gather(&mut list, &mut data, port)?;
        Ok(list)
    }

    /// Carries a Dataset Management out: all its ranges, or, if any is wrong, none. Of its
    /// attributes only Deallocate has an effect.
    pub(super) fn deallocate(&mut self, request: &Request, list: &[u8]) -> Result<(), Status> {
        let namespace = self.accessible(request.nsid)?;
        let ranges = || list.as_chunks().0.iter().map(|&bytes| Range::from_bytes(bytes));
        let long = ranges().any(|range| range.blocks > Config::MOST_RANGE_BLOCKS);
        if long
            || ranges().map(|range| u64::from(range.blocks)).sum::<u64>()
                > Config::MOST_DEALLOCATED_BLOCKS
        {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr());
        }
        if ranges().any(|range| !range.fits(namespace.blocks)) {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        if !request.deallocate {
            return Ok(());
        }
        let shift = namespace.block_shift;
        for range in ranges().filter(|range| range.blocks > 0) {
            let len = u64::from(range.blocks) << shift;
            namespace
                .media_mut()
                .zero_at(range.lba << shift, len, true, false)
                .map_err(status_of)?;
        }
        // Once for all of them.
        if request.durable { namespace.media_mut().flush().map_err(status_of) } else { Ok(()) }
    }
}
