use driver::{Limits, Namespace};
use nvme::Nsid;

use super::*;

/// SlotMemory for two requests of 64 KiB on a controller that takes 16 KiB at once.
fn requests() -> Requests {
    let namespace = Namespace {
        nsid: Nsid(1),
        blocks: 1 << 11,
        block_log2: 9,
        boundary: 0,
        read_only: false,
        deallocates_zeroes: true,
        shared: false,
        ana_group: 0,
        nguid: [0; 16],
        eui64: [0; 8],
        uuid: [0; 16],
    };
    let limits = Limits {
        max_transfer: Some(16 << 10),
        max_entries: 64,
        max_commands: None,
        page_size: 4096,
        aborts: 1,
        async_events: 1,
        volatile_cache: false,
        sgls: false,
        write_zeroes: None,
        deallocate: None,
        compare: false,
        verify: None,
        uncorrectable: None,
    };
    let memory = Memory::new(Requests::footprint(2, 64 << 10, DataBuffers::PerSlot));
    Requests::new(&memory, 3, &[(namespace, limits)], 2, 64 << 10, DataBuffers::PerSlot).unwrap()
}

fn read(slot: u32, len: u32) -> Io {
    Io { slot, op: Op::Read, target: 0, offset: 4096, len }
}

#[test]
fn request_ends_with_last_part() {
    let (mut requests, mut parts) = (requests(), Vec::new());
    requests.begin(read(1, 64 << 10), &mut parts).unwrap();
    assert_eq!(parts.len(), 4);
    let lbas: Vec<u32> = parts.iter().map(|&part| requests.command(part).unwrap().cdw10).collect();
    assert_eq!(lbas, [8, 40, 72, 104]);
    let word = parts[2].to_word();
    assert_eq!((CommandToken::from_word(word), parts[2].task()), (parts[2], 3));
    let failed = RequestError::Status(Status::INTERNAL_ERROR);
    let results = [Ok(()), Err(failed), Err(RequestError::Cancelled), Ok(())];
    let ends: Vec<_> = parts
        .iter()
        .zip(results)
        .map(|(&part, result)| requests.end(part, result).unwrap())
        .collect();
    assert_eq!(ends[..3], [None, None, None]);
    assert_eq!(ends[3], Some((read(1, 64 << 10), Err(failed))));
}

/// Invariant 3: a part that ends twice, a request that has ended, and a slot that has a newer
/// request are errors.
#[test]
fn second_completion_is_detected() {
    let (mut requests, mut parts) = (requests(), Vec::new());
    requests.begin(read(0, 32 << 10), &mut parts).unwrap();
    assert_eq!(requests.end(parts[0], Ok(())), Ok(None));
    assert_eq!(requests.end(parts[0], Ok(())), Err(duplicate_completion(parts[0])));
    assert!(requests.end(parts[1], Ok(())).unwrap().is_some());
    assert_eq!(requests.end(parts[1], Ok(())), Err(duplicate_completion(parts[1])));
    let mut again = Vec::new();
    requests.begin(read(0, 32 << 10), &mut again).unwrap();
    assert_eq!(requests.end(parts[0], Ok(())), Err(duplicate_completion(parts[0])));
    assert_eq!(requests.command(parts[0]), Err(duplicate_completion(parts[0])));
    assert!(requests.begin(read(0, 4096), &mut again).is_err(), "the slot is in use");
    assert!(requests.begin(read(9, 4096), &mut again).is_err(), "no such slot");
}
