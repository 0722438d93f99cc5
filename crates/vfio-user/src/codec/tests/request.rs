use proptest::collection::vec;
use proptest::prelude::*;

use crate::{
    Area, Capabilities, Command, DeviceInfo, DmaMap, DmaUnmap, Flags, Header, Interrupts,
    IrqAction, IrqData, Malformed, Region, RegionAccess, RegionInfo, Reply, Request, SetIrqs,
    Version,
};

/// Any request; its data are `data`.
fn request(data: &[u8]) -> impl Strategy<Value = Request<'_>> {
    let numbers =
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>());
    (0..10usize, numbers, any::<bool>(), any::<bool>()).prop_map(
        move |(kind, (a, b, c, d, e, f), x, y)| {
            let access = RegionAccess { offset: a, region: d, count: data.len() as u32 };
            let capabilities =
                Capabilities { max_msg_fds: a, max_data_xfer_size: b, max_dma_maps: c };
            let action = if x {
                IrqAction::Trigger
            } else if y {
                IrqAction::Mask
            } else {
                IrqAction::Unmask
            };
            let (irqs, count) = if x == y {
                (IrqData::Bools(data), data.len() as u32)
            } else {
                (IrqData::Eventfds, e % 99)
            };
            match kind {
                0 => Request::Version(Version { major: a as u16, minor: b as u16, capabilities }),
                1 => Request::DmaMap(DmaMap {
                    readable: x,
                    writable: y,
                    offset: a,
                    address: b,
                    size: c,
                }),
                2 => Request::DmaUnmap(DmaUnmap { all: x, bitmap: y, address: a, size: b }),
                3 => Request::DeviceInfo,
                4 => Request::RegionInfo { index: d, room: e },
                5 => Request::IrqInfo { index: d },
                6 => {
                    Request::SetIrqs(SetIrqs { index: d, start: f / 2, count, action, data: irqs })
                }
                7 => Request::RegionRead(access),
                8 => Request::RegionWrite(access, data),
                _ => Request::DeviceReset,
            }
        },
    )
}

const DATA: [u8; 24] = *b"what a write would bring";

proptest! {
    /// Requests are parsed to what was built.
    #[test]
    fn requests_round_trip(request in request(&DATA), id in any::<u16>()) {
        let bytes = request.to_bytes(id, Flags::NO_REPLY);
        let header = Header::from_bytes(&bytes).expect("a header");
        prop_assert_eq!((header.id, header.size as usize, header.flags), (id, bytes.len(), Flags::NO_REPLY));
        let command = Command::from_number(header.command).expect("a known one");
        prop_assert_eq!(Request::from_bytes(command, &bytes[16..]), Ok(request));
    }

    /// A body that ends within a field or its data is refused.
    #[test]
    fn short_requests_are_refused(request in request(&DATA), cut in 1usize..200) {
        let bytes = request.to_bytes(1, Flags::REQUEST);
        let body = &bytes[16..bytes.len().saturating_sub(cut).max(16)];
        let read = Request::from_bytes(request.command(), body);
        match request {
            Request::DeviceInfo | Request::DeviceReset => prop_assert_eq!(read, Ok(request)),
            // JSON text may be valid after truncation only if complete.
            Request::Version(_) => prop_assert!(read.is_err() || read == Ok(request) || body.len() <= 5),
            // A region request has fields that only its reply uses.
            Request::RegionInfo { .. } | Request::IrqInfo { .. } => prop_assert!(read == Ok(request) || body.len() < 12),
            _ => prop_assert!(read.is_err()),
        }
    }

    /// No body of any command causes a panic.
    #[test]
    fn any_body_is_handled(number in 0u16..20, body in vec(any::<u8>(), 0..120)) {
        if let Some(command) = Command::from_number(number) {
            _ = Request::from_bytes(command, &body);
        }
        _ = (DeviceInfo::from_reply(&body), Region::from_reply(0, &body), Interrupts::from_reply(0, &body), Version::from_bytes(&body));
    }
}

#[test]
fn contradictions_are_refused() {
    let body = |flags: u32, start: u32, count: u32| {
        [20, flags, 2, start, count].map(u32::to_ne_bytes).concat()
    };
    let read = |flags, start, count| {
        Request::from_bytes(Command::DeviceSetIrqs, &body(flags, start, count)).map(|_| ())
    };
    assert_eq!(read(0x24, 0, 1), Ok(()));
    assert_eq!(read(0x21, 0, 0), Ok(()));
    for flags in [0, 0x4, 0x20, 0x26, 0x34, 0x44, u32::MAX] {
        let refused = Malformed::Field { what: "flags of SET_IRQS", value: flags.into() };
        assert_eq!(read(flags, 0, 1), Err(refused), "{flags:#x}");
    }
    assert!(matches!(
        read(0x24, u32::MAX, 2),
        Err(Malformed::Field { what: "count of SET_IRQS", .. })
    ));
    // Counts more bytes than the message has.
    assert!(matches!(read(0x22, 0, u32::MAX), Err(Malformed::Short { .. })));
    let map = [[32u32, 4].map(u32::to_ne_bytes).concat(), vec![0; 24]].concat();
    assert!(matches!(
        Request::from_bytes(Command::DmaMap, &map),
        Err(Malformed::Field { what: "flags of DMA_MAP", value: 4 })
    ));
}

#[test]
fn capabilities_of_other_programs() {
    let read = |text: &str| {
        Version::from_bytes(&[&[0, 0, 0, 0], text.as_bytes()].concat())
            .map(|version| version.capabilities)
    };
    let usual = Capabilities::default();
    for nothing in [
        "",
        "\0",
        "{}\0",
        "{\"capabilities\":{}}\0",
        "{\"capabilities\":{\"migration\":{\"pgsize\":4096}}}\0",
    ] {
        assert_eq!(read(nothing), Ok(usual), "{nothing:?}");
    }
    // As QEMU 11 sends them.
    let qemu = r#"{"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}}"#;
    assert_eq!(read(&format!("{qemu}\0")), Ok(Capabilities { max_msg_fds: 8, ..usual }));
    assert_eq!(
        read("{\"capabilities\":{\"max_msg_fds\":99999999999}}"),
        Ok(Capabilities { max_msg_fds: 99_999_999_999, ..usual })
    );
    for bad in [
        "x",
        "[]",
        "{\"capabilities\":1}",
        "{\"capabilities\":{\"max_msg_fds\":-1}}",
        "{\"capabilities\":{\"max_msg_fds\":\"8\"}}",
    ] {
        assert!(matches!(read(bad), Err(Malformed::Capabilities)), "{bad}");
    }
    let deep = "[".repeat(100_000);
    assert!(read(&deep).is_err());
}

/// QEMU 11 fails an assertion if this reply is longer than its request of 214 bytes.
#[test]
fn version_replies_are_short() {
    let most = Capabilities {
        max_msg_fds: u64::MAX,
        max_data_xfer_size: u64::MAX,
        max_dma_maps: u64::MAX,
    };
    let version = Version { major: 0, minor: 0, capabilities: most };
    let header = Header { id: 7, command: 1, size: 0, flags: Flags::REQUEST, error: 0 };
    let bytes = Reply::Version(version).to_bytes(&header);
    assert!(bytes.len() <= 160, "{}", bytes.len());
    assert_eq!(Version::from_bytes(&bytes[16..]), Ok(version));
}

#[test]
fn replies_carry_identifier_and_error() {
    let header = Header { id: 0xabcd, command: 5, size: 48, flags: Flags::REQUEST, error: 0 };
    let refused = Reply::Error(rustix::io::Errno::INVAL).to_bytes(&header);
    let read = Header::from_bytes(&refused).expect("a header");
    assert_eq!((read.id, read.command, read.size, read.error), (0xabcd, 5, 16, 22));
    assert!(read.flags.is_reply() && read.flags.is_error());
    let info = RegionInfo { index: 4, size: 0x10000, mappable: None, room: 32 };
    let region = Region { readable: true, writable: true, bytes: 0x10000, ..Region::default() };
    assert_eq!(Region::from_reply(4, &Reply::RegionInfo(info).to_bytes(&header)[16..]), Ok(region));
    let info = Interrupts { by_eventfd: true, count: 65 };
    assert_eq!(
        Interrupts::from_reply(2, &Reply::IrqInfo(2, info).to_bytes(&header)[16..]),
        Ok(info)
    );
    let info = DeviceInfo { can_reset: true, is_pci: true, regions: 9, irqs: 5 };
    assert_eq!(DeviceInfo::from_reply(&Reply::DeviceInfo(info).to_bytes(&header)[16..]), Ok(info));
}

/// A mappable area is sent with its descriptor to a client with room for it. Others get the size
/// needed, and no descriptor.
#[test]
fn region_replies_fit_the_client() {
    let header = Header { id: 1, command: 5, size: 48, flags: Flags::REQUEST, error: 0 };
    let part = Area { offset: 0x1000, bytes: 0x1000 };
    let info = |room| RegionInfo { index: 0, size: 0x2000, mappable: Some(part), room };
    let body = |room| Reply::RegionInfo(info(room)).to_bytes(&header)[16..].to_vec();
    let needed = u32::from_ne_bytes(body(32)[..4].try_into().expect("four bytes"));
    assert_eq!((body(32).len(), body(needed).len()), (32, needed as usize));
    assert_eq!(Region::from_reply(0, &body(32)).map(|region| region.areas), Ok(Vec::new()));
    assert!(!info(needed - 1).has_descriptor() && info(needed).has_descriptor());
    let region = Region::from_reply(0, &body(needed)).expect("a region");
    assert_eq!((region.areas, region.file_offset, region.bytes), (vec![part], 0, 0x2000));
}
