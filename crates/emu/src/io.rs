//! I/O commands: validation, execution, and the namespaces that they access.

mod checks;
mod data;
mod dataless;

use nvme::io::{Flags, Transfer};
use nvme::prp::{Dptr, PageSize, Segment};
use nvme::{Nsid, Sqe, Status, opcode};
use units::Op;

use std::sync::PoisonError;

use crate::config::{Config, Medium};
use crate::media::Media;
use crate::{MediaFault, NamespaceConfig, Port};
pub(crate) use data::{Data, gather, scatter};
use data::{Pointer, read_mem, refused, status_of, write_mem};

/// A validated I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoCommand {
    pub(crate) op: Op,
    /// The write must be durable on completion: FUA is set, or the write cache is disabled.
    pub(crate) durable: bool,
    pub(crate) nsid: Nsid,
    /// Write Zeroes or Dataset Management requests deallocation.
    deallocate: bool,
    /// First logical block; 0 for Flush and Dataset Management.
    pub(crate) lba: u64,
    /// Bytes to transfer or to zero; for Dataset Management, bytes of the list of ranges.
    pub(crate) bytes: u32,
    data: Pointer,
}

/// What has been read from host memory for a command.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// Data to write or to compare, or a list of ranges.
    Bytes(Vec<u8>),
    /// Destination of the data of a Read.
    Places(Vec<Segment>),
    /// Host memory was not accessible: the command fails with this status.
    Refused(Status),
}

/// The namespaces of a controller, and the settings that apply to I/O commands.
#[derive(Debug)]
pub(crate) struct Store {
    /// By NSID − 1.
    namespaces: Vec<Option<NamespaceConfig>>,
    /// Maximum bytes of one command (MDTS).
    pub(crate) max_transfer: u32,
    /// Memory page size (CC.MPS).
    pub(crate) page: PageSize,
    /// Feature 06h. While the write cache is disabled every write is durable.
    pub(crate) write_cache: bool,
    moves_data: bool,
    /// Supported optional commands.
    write_zeroes: bool,
    dataset_management: bool,
    checks: bool,
    uncorrectable: bool,
    /// SGLs are supported.
    sgls: bool,
    /// Bounce buffer for media other than memory.
    scratch: Vec<u8>,
}

impl Store {
    /// Assigns free identifiers, in order, to namespaces without one.
    pub(crate) fn new(namespaces: Vec<NamespaceConfig>, config: &Config) -> Store {
        let max_transfer = config.max_transfer;
        let bounce = namespaces.iter().any(|n| n.medium.needs_buffer());
        let scratch = if bounce { vec![0; max_transfer as usize] } else { Vec::new() };
        let mut placed: Vec<Option<NamespaceConfig>> = Vec::new();
        let (numbered, others): (Vec<_>, Vec<_>) =
            namespaces.into_iter().partition(|n| n.nsid.is_some());
        // Namespaces with explicit identifiers are placed first, so that the others fill the gaps.
        for namespace in numbered {
            let n = namespace.nsid.map_or(1, |nsid| nsid.0.clamp(1, Store::MAX_NSID)) as usize;
            placed.resize_with(placed.len().max(n), || None);
            placed[n - 1] = Some(namespace);
        }
        for namespace in others {
            let free = placed.iter().position(Option::is_none).unwrap_or(placed.len());
            placed.resize_with(placed.len().max(free + 1), || None);
            placed[free] = Some(namespace);
        }
        for (n, namespace) in placed.iter_mut().enumerate() {
            if let Some(namespace) = namespace {
                namespace.nsid = Some(Nsid(n as u32 + 1));
            }
        }
        Store {
            namespaces: placed,
            max_transfer,
            page: PageSize::MIN,
            write_cache: true,
            moves_data: config.profile.moves_data,
            write_zeroes: config.write_zeroes,
            dataset_management: config.dataset_management,
            checks: config.checks,
            uncorrectable: config.uncorrectable,
            sgls: config.sgls,
            scratch,
        }
    }

    /// The highest valid NSID.
    const MAX_NSID: u32 = NamespaceConfig::MAX_NSID;

    /// The highest NSID in use.
    pub(crate) fn highest(&self) -> u32 {
        self.namespaces.len() as u32
    }

    /// The namespaces in order of NSID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Nsid, &NamespaceConfig)> {
        (1..)
            .map(Nsid)
            .zip(&self.namespaces)
            .filter_map(|(nsid, namespace)| Some((nsid, namespace.as_ref()?)))
    }

    /// As [`Store::iter`], mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut NamespaceConfig> {
        self.namespaces.iter_mut().flatten()
    }

    #[inline]
    pub(crate) fn get(&self, nsid: Nsid) -> Option<&NamespaceConfig> {
        self.namespaces.get(nsid.0.wrapping_sub(1) as usize)?.as_ref()
    }

    /// The namespace of a command. An inactive NSID (valid, but not attached) fails with another
    /// status than an invalid one (Base 3.2.1.5).
    #[inline]
    pub(crate) fn active(&self, nsid: Nsid) -> Result<&NamespaceConfig, Status> {
        self.get(nsid).ok_or_else(|| self.why_not(nsid))
    }

    #[cold]
    fn why_not(&self, nsid: Nsid) -> Status {
        let status = if self.is_inactive(nsid) {
            Status::INVALID_FIELD
        } else {
            Status::INVALID_NAMESPACE_OR_FORMAT
        };
        status.with_dnr()
    }

    /// Whether an NSID is valid (at most NN) but inactive.
    pub(crate) fn is_inactive(&self, nsid: Nsid) -> bool {
        (1..=self.highest()).contains(&nsid.0) && self.get(nsid).is_none()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, nsid: Nsid) -> Option<&mut NamespaceConfig> {
        self.namespaces.get_mut(nsid.0.wrapping_sub(1) as usize)?.as_mut()
    }

    /// Injects a fault into a namespace's medium.
    pub(crate) fn inject_fault(&mut self, nsid: Nsid, fault: MediaFault) {
        let done = self
            .get_mut(nsid)
            .map(|namespace| namespace.medium.inject_fault(fault, 1 << namespace.block_shift));
        if let None | Some(Err(_)) = done {
            tracing::warn!(%nsid, ?fault, "no such namespace, or no such block");
        }
    }

    /// Power loss: drops volatile caches.
    pub(crate) fn lose_power(&mut self) {
        for namespace in self.iter_mut() {
            if let Err(error) = namespace.medium.lose_power() {
                tracing::warn!(%error, "a cache could not be emptied");
            }
        }
    }

    /// Whether any medium has a volatile write cache.
    pub(crate) fn is_volatile(&self) -> bool {
        self.iter().any(|(_, n)| n.media().is_volatile())
    }

    /// Validates a command, as far as possible without reading host memory.
    #[inline(always)]
    pub(crate) fn decode(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        if sqe.flags != 0 {
            return self.decode_flagged(sqe);
        }
        // Read and Write are handled inline; other commands take a call.
        let op = match sqe.opcode {
            opcode::io::READ => Op::Read,
            opcode::io::WRITE => Op::Write,
            _ => return self.decode_other(sqe),
        };
        self.decode_transfer(sqe, op, self.max_transfer.into())
    }

    /// Validates a command with FUSE or PSDT bits: SGLs are accepted if supported; fused commands
    /// and metadata SGL segments are not.
    #[cold]
    #[inline(never)]
    fn decode_flagged(&self, sqe: &Sqe) -> Result<IoCommand, Status> {
        if !self.sgls || sqe.flags != Sqe::PSDT_SGL {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        let request = self.decode(&Sqe { flags: 0, ..*sqe })?;
        Ok(IoCommand { data: Pointer { sgl: true, ..request.data }, ..request })
    }

    /// Validates a command on a range of blocks, of at most `max` bytes.
    #[inline(always)]
    fn decode_transfer(&self, sqe: &Sqe, op: Op, max: u64) -> Result<IoCommand, Status> {
        let namespace = self.active(sqe.nsid())?;
        let transfer = Transfer::from_sqe(sqe);
        let bytes = u64::from(transfer.blocks) << namespace.block_shift;
        if bytes > max {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        // No namespace has metadata or protection information, so PRACT and PRCHK cannot be
        // honoured.
        if transfer.prinfo != 0 {
            return Err(Status::INVALID_PROTECTION_INFORMATION.with_dnr());
        }
        if !transfer.fits(namespace.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        if namespace.refusal != Status::SUCCESS {
            return Err(namespace.refusal);
        }
        // With the write cache disabled there are no cached writes that a Read would have to flush.
        let durable = (!self.write_cache & (op != Op::Read)) | transfer.flags.contains(Flags::FUA);
        Ok(IoCommand {
            op,
            durable,
            deallocate: false,
            nsid: sqe.nsid(),
            lba: transfer.lba.0,
            bytes: bytes as u32,
            data: Pointer::prps(sqe.dptr()),
        })
    }

    fn decode_flush(&self, nsid: Nsid) -> Result<IoCommand, Status> {
        if nsid != Nsid::ALL {
            self.active(nsid)?;
        }
        // A Flush of all namespaces fails if any of them is inaccessible in its ANA state.
        self.refusal(nsid).map_or(Ok(()), Err)?;
        Ok(IoCommand {
            op: Op::Flush,
            durable: true,
            deallocate: false,
            nsid,
            lba: 0,
            bytes: 0,
            data: Pointer::prps(Dptr::NONE),
        })
    }

    /// Status with which an I/O command to a namespace, or to all, fails because of the ANA state;
    /// `None`: the namespace is accessible.
    fn refusal(&self, nsid: Nsid) -> Option<Status> {
        let meant = self.iter().filter(|(of, _)| nsid == Nsid::ALL || nsid == *of);
        meant.map(|(_, namespace)| namespace.refusal).find(|&status| status != Status::SUCCESS)
    }

    /// Executes a command. Inlined, as `null` uses only a few fields of the request.
    #[inline(always)]
    pub(crate) fn execute(&mut self, request: &IoCommand, port: &impl Port) -> Result<(), Status> {
        match request.op {
            // The profile `null` moves no data: it is for measurements of the protocol alone.
            Op::Read | Op::Write if !self.moves_data => Ok(()),
            Op::Read | Op::Write => self.transfer(request, port),
            _ => self.execute_other(request, port),
        }
    }

    fn transfer(&mut self, request: &IoCommand, port: &impl Port) -> Result<(), Status> {
        let (page, bytes) = (self.page, request.bytes);
        let Store { namespaces, scratch, .. } = self;
        let namespace =
            namespaces.get_mut(request.nsid.0.wrapping_sub(1) as usize).and_then(Option::as_mut);
        let namespace = namespace.ok_or(Status::INTERNAL_ERROR)?;
        if namespace.refusal != Status::SUCCESS {
            // The ANA state changed while the command was in service.
            return Err(namespace.refusal);
        }
        let at = request.lba << namespace.block_shift;
        let mut data = Data::of(request.data, bytes, page, port)?;
        // Declared outside the match, so that the guard lives as long as the borrow of the medium.
        let mut shared;
        let medium = match &mut namespace.medium {
            Medium::Shared(medium) => {
                shared = medium.lock().unwrap_or_else(PoisonError::into_inner);
                &mut *shared
            }
            medium => medium,
        };
        match (medium, request.op) {
            (Medium::Mem(mem), Op::Read) => read_mem(mem, at, &mut data, port),
            (Medium::Mem(mem), _) => write_mem(mem, at, &mut data, port),
            (media, op) => {
                if scratch.len() < bytes as usize {
                    // A memory medium needs no bounce buffer until a Write Uncorrectable has
                    // wrapped it.
                    scratch.resize(bytes as usize, 0);
                }
                let buffer = scratch.get_mut(..bytes as usize).ok_or(Status::INTERNAL_ERROR)?;
                if op == Op::Read {
                    if request.durable {
                        // FUA of a Read: the data must be on the medium before they are returned
                        // (NVM 3.3.4).
                        media.flush().map_err(status_of)?;
                    }
                    media.read_at(at, buffer).map_err(status_of)?;
                    return scatter(buffer, &mut data, port);
                }
                gather(buffer, &mut data, port)?;
                media.write_at(at, buffer, request.durable).map_err(status_of)
            }
        }
    }

    /// Reads everything a command, other than a Read, needs from host memory, so that it can be
    /// executed without the host.
    pub(crate) fn take_data(
        &self,
        request: &IoCommand,
        port: &impl Port,
    ) -> Result<Vec<u8>, Status> {
        match request.op {
            Op::WriteZeroes | Op::Verify | Op::WriteUncorrectable => Ok(Vec::new()),
            Op::Deallocate => self.take_list(request, port),
            Op::Read | Op::Write | Op::Flush | Op::Compare => {
                let mut bytes = vec![0; request.bytes as usize];
                let mut data = Data::of(request.data, request.bytes, self.page, port)?;
                gather(&mut bytes, &mut data, port)?;
                Ok(bytes)
            }
        }
    }

    /// Executes a command with the data that [`Store::take_data`] has read.
    pub(crate) fn change_taken(&mut self, request: &IoCommand, data: &[u8]) -> Result<(), Status> {
        match request.op {
            Op::WriteZeroes => self.zero(request),
            Op::Deallocate => self.deallocate(request, data),
            Op::Compare => self.compare(request, data),
            Op::Verify => self.verify(request),
            Op::WriteUncorrectable => self.mark_uncorrectable(request),
            Op::Read | Op::Write | Op::Flush => {
                let namespace = self.accessible(request.nsid)?;
                let at = request.lba << namespace.block_shift;
                namespace.media_mut().write_at(at, data, request.durable).map_err(status_of)
            }
        }
    }

    /// Reads what a command needs from host memory. `None`: nothing is needed in advance.
    pub(crate) fn fetch(&self, request: &IoCommand, port: &impl Port) -> Option<Fetched> {
        let fetched = match request.op {
            // Nothing will be transferred, so nothing has to be read.
            _ if !self.moves_data => return None,
            Op::Flush | Op::WriteZeroes | Op::Verify | Op::WriteUncorrectable => return None,
            Op::Write | Op::Deallocate | Op::Compare => {
                self.take_data(request, port).map(Fetched::Bytes)
            }
            Op::Read => self.places(request, port).map(Fetched::Places),
        };
        Some(fetched.unwrap_or_else(Fetched::Refused))
    }

    /// Resolves the destination of a Read.
    fn places(&self, request: &IoCommand, port: &impl Port) -> Result<Vec<Segment>, Status> {
        let mut data = Data::of(request.data, request.bytes, self.page, port)?;
        let mut places = Vec::new();
        while let Some(segment) = data.next(port)? {
            places.push(segment);
        }
        Ok(places)
    }

    /// Executes a command with what was read for it.
    #[cold]
    pub(crate) fn execute_fetched(
        &mut self,
        request: &IoCommand,
        fetched: Fetched,
        port: &impl Port,
    ) -> Result<(), Status> {
        let places = match fetched {
            Fetched::Refused(status) => return Err(status),
            Fetched::Bytes(bytes) => {
                self.accessible(request.nsid)?;
                return self.change_taken(request, &bytes);
            }
            Fetched::Places(places) => places,
        };
        let namespace = self.accessible(request.nsid)?;
        let mut bytes = vec![0; request.bytes as usize];
        let at = request.lba << namespace.block_shift;
        let media = namespace.media_mut();
        if request.durable {
            media.flush().map_err(status_of)?;
        }
        media.read_at(at, &mut bytes).map_err(status_of)?;
        let mut rest = &bytes[..];
        for Segment { addr, len } in places {
            // The segments add up to the transfer length, as `Data` has validated; the error is for
            // a broken port.
            let (now, later) = rest.split_at_checked(len as usize).ok_or(Status::INTERNAL_ERROR)?;
            port.dma_write(addr, now).map_err(refused)?;
            rest = later;
        }
        Ok(())
    }

    /// Flushes one namespace, or all.
    #[inline(never)]
    pub(crate) fn flush(&mut self, nsid: Nsid) -> Result<(), Status> {
        let chosen =
            self.iter_mut().filter(|namespace| nsid == Nsid::ALL || namespace.nsid == Some(nsid));
        // Flush all of them even after an error; the first error is reported.
        chosen
            .map(|namespace| namespace.media_mut().flush().map_err(status_of))
            .fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests;
