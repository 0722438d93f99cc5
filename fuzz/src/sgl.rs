//! Scatter gather lists, as a hostile host writes them.

use nvme::Status;
use nvme::prp::Dptr;
use nvme::sgl::{Descriptor, MAX_DESCRIPTORS, walk};

use crate::source::Source;

/// What a list can be refused with.
const REFUSALS: [Status; 6] = [
    Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
    Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS,
    Status::SGL_DESCRIPTOR_TYPE_INVALID,
    Status::SGL_DATA_BLOCK_GRANULARITY_INVALID,
    Status::DATA_SGL_LENGTH_INVALID,
    Status::DATA_TRANSFER_ERROR,
];

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let dptr = Dptr { prp1: source.u64(8), prp2: source.u64(8) };
    assert_eq!(Descriptor::of(dptr).dptr(), dptr);
    let len = source.any_size() % (1 << 22);
    let lists = source.rest();
    let (mut found, mut fetched) = (0, 0);
    let fetch = |addr: u64, into: &mut [u8]| {
        assert!(addr & 7 == 0 && into.len().is_multiple_of(16), "no whole descriptors");
        fetched += into.len() / 16;
        // Where the lists lie is of no matter. Each fetch finds other bytes at an address, as where
        // the host writes meanwhile.
        for (at, byte) in into.iter_mut().enumerate() {
            let at = (addr as usize).wrapping_add(at + fetched) % lists.len().max(1);
            *byte = lists.get(at).copied().unwrap_or_default();
        }
        if lists.is_empty() { Err(()) } else { Ok(()) }
    };
    let walked = walk(dptr, len, fetch, |run| {
        assert!(run.len > 0 && run.addr & 3 == 0 && run.len & 3 == 0);
        found += run.len;
        assert!(found <= len, "more than the command's data");
    });
    match walked {
        Ok(()) => assert_eq!(found, len),
        Err(status) => {
            assert!(REFUSALS.contains(&status.kind()) && status.do_not_retry(), "{status}")
        }
    }
    assert!(fetched <= MAX_DESCRIPTORS as usize, "{fetched} descriptors");
}
