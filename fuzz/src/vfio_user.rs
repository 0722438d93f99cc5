//! A vfio-user client's bytes, in pieces of any size, with descriptors that are numbers: messages,
//! and what they ask.

use vfio_user::{
    Assembler, Command, DeviceInfo, DmaRequest, Flags, Header, Interrupts, Region, Request, Version,
};

use crate::source::Source;

const MAX_BYTES: u32 = 4096;
const MAX_FDS: usize = 4;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let (piece, fds) = (usize::from(source.u8()).max(1), source.u8());
    let mut rest = source.rest();
    let mut assembler = Assembler::new(MAX_BYTES, MAX_FDS);
    while !rest.is_empty() {
        let space = assembler.space();
        assert!(!space.is_empty() && space.len() <= MAX_BYTES as usize);
        let (now, later) = rest.split_at(piece.min(space.len()).min(rest.len()));
        space[..now.len()].copy_from_slice(now);
        rest = later;
        match assembler.filled(now.len(), (0..fds % 3).map(u32::from)) {
            Ok(None) => {}
            Ok(Some(message)) => {
                assert!(
                    message.header.size as usize == 16 + message.body.len()
                        && message.fds.len() <= MAX_FDS
                );
                read(&message.header, &message.body);
            }
            // The connection is over.
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}

fn read(header: &Header, body: &[u8]) {
    // A client reads answers of the same shape.
    _ = (
        DeviceInfo::from_reply(body),
        Region::from_reply(0, body),
        Interrupts::from_reply(0, body),
        Version::from_bytes(body),
    );
    // What it gives of its memory is as much as was asked for.
    for ask in
        [DmaRequest::Read { address: 0, count: 4 }, DmaRequest::Write { address: 0, data: &[7; 4] }]
    {
        let given = ask.read_reply(header, body).ok().flatten().map(<[u8]>::len);
        assert!(given.is_none_or(|len| len == if matches!(ask, DmaRequest::Read { .. }) { 4 } else { 0 }));
    }
    let Some(command) = Command::from_number(header.command) else { return };
    let Ok(request) = Request::from_bytes(command, body) else { return };
    let bytes = request.to_bytes(1, Flags::REQUEST);
    assert_eq!(Request::from_bytes(command, &bytes[16..]), Ok(request));
}
