//! A vfio-user server's bytes, as a client reads them: messages cut anywhere, answers to what was
//! asked, requests for memory.

use vfio_user::{
    Assembler, Calls, DeviceInfo, DmaRequest, Interrupts, Message, Region, RegionAccess, Version,
    region_data,
};

use crate::source::Source;

const MAX_BYTES: u32 = 4096;
const MAX_DATA: u32 = 1024;
const MAX_FDS: usize = 16;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let (piece, asked) = (usize::from(source.u8()).max(1), source.u8());
    let mut calls = Calls::default();
    // Identifiers from 1 on, of every command in turn.
    let out: Vec<u16> = (0..u16::from(asked)).filter_map(|n| calls.begin(1 + n % 15, n)).collect();
    assert_eq!(out.len(), usize::from(asked));
    let (mut assembler, mut rest, mut answered) =
        (Assembler::<u32>::new(MAX_BYTES, MAX_FDS), source.rest(), 0);
    while !rest.is_empty() {
        let space = assembler.space();
        let (now, later) = rest.split_at(piece.min(space.len()).min(rest.len()));
        space[..now.len()].copy_from_slice(now);
        rest = later;
        match assembler.filled(now.len(), []) {
            Ok(None) => {}
            Ok(Some(message)) if message.header.flags.is_reply() => {
                // The connection is over at the first that nobody waits for.
                if calls.complete(&message.header).is_err() {
                    return;
                }
                answered += 1;
                assert!(answered <= asked, "more answers than questions");
                answer(&message.body);
            }
            Ok(Some(message)) => request(&message),
            Err(_) => return,
        }
    }
    assert_eq!(calls.end().len(), usize::from(asked - answered));
}

/// An answer is refused, or stays within itself.
fn answer(body: &[u8]) {
    _ = (DeviceInfo::from_reply(body), Interrupts::from_reply(2, body), Version::from_bytes(body));
    for index in [0, 7] {
        let Ok(region) = Region::from_reply(index, body) else { continue };
        assert!(region.areas.len() <= Region::MAX_AREAS);
        for area in &region.areas {
            assert!(area.offset.checked_add(area.bytes).is_some_and(
                |end| end <= region.bytes && region.file_offset.checked_add(end).is_some()
            ));
        }
    }
    let asked = RegionAccess { offset: 0, region: 0, count: 4 };
    if let Ok(data) = region_data(&asked, body) {
        assert_eq!(data.len(), 4);
    }
}

/// A request for memory is refused, or about no more than there may be.
fn request(message: &Message<u32>) {
    let Ok(Some(ask)) = DmaRequest::from_message(&message.header, &message.body, MAX_DATA) else {
        return;
    };
    let count = match ask {
        DmaRequest::Read { count, .. } => count as usize,
        DmaRequest::Write { data, .. } => data.len(),
    };
    assert!(count <= MAX_DATA as usize);
    assert!(ask.reply(&message.header, &[]).len() >= 32);
}
