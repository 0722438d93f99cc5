use super::*;
use crate::Page;

#[test]
fn connect_layout_matches_figure() {
    let connect = Connect {
        format: 0,
        queue: QueueId(3),
        entries: 128,
        no_flow_control: true,
        kato: 15_000,
        data: Dptr::NONE,
    };
    let sqe = connect.to_sqe();
    let bytes = sqe.as_bytes();
    assert_eq!((bytes[0], bytes[1], bytes[4]), (0x7f, 0x40, 1));
    assert_eq!(bytes[42..47], [3, 0, 127, 0, 4], "QID, SQSIZE (0's based), CATTR");
    assert_eq!(bytes[48..52], 15_000u32.to_le_bytes());
    assert_eq!(Connect::from_sqe(&sqe), connect);
    assert_eq!(Connect { entries: 65_536, ..connect }.to_sqe().cdw11 & 0xffff, 0xffff);
    assert_eq!(direction_of(&sqe), Direction::ToController);
}

#[test]
fn properties_have_their_sizes() {
    let set = Property::to_set(regs::CC, false, 0x0046_0001);
    assert_eq!(set.as_bytes()[40..56], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0]);
    assert_eq!(
        Property::from_sqe(&set),
        Property { offset: regs::CC, wide: Some(false), value: 0x0046_0001 }
    );
    let get = Property::to_get(regs::CAP, true);
    assert_eq!(
        (fctype_of(&get), Property::from_sqe(&get).wide),
        (Some(fctype::PROPERTY_GET), Some(true))
    );
    assert_eq!(Property::from_sqe(&Sqe { cdw10: 2, ..get }).wide, None, "a reserved size");
    assert_eq!(Property::size(regs::CAP), Some((true, false)));
    assert_eq!(Property::size(regs::AQA), None, "a register of controllers on a bus");
    assert_eq!([direction_of(&set), direction_of(&get)], [Direction::None; 2]);
    assert_eq!(fctype_of(&Sqe { opcode: 0x06, ..get }), None);
}

#[test]
fn connect_data_names_host_and_subsystem() {
    let mut data = ConnectData {
        cntlid: ConnectData::ANY.into(),
        subnqn: Text::nul_terminated("nqn.a"),
        ..ConnectData::default()
    };
    assert_eq!(data.as_page()[ConnectData::CNTLID_AT..][..2], [0xff, 0xff]);
    assert_eq!(&data.as_page()[ConnectData::SUBNQN_AT..][..6], b"nqn.a\0");
    assert_eq!(nqn(&data.subnqn), Some("nqn.a"));
    assert_eq!(nqn(&data.hostnqn), None, "empty");
    data.hostnqn = Text([b'n'; 256]);
    assert_eq!(nqn(&data.hostnqn), None, "without an end");
    data.hostnqn = Text::nul_terminated("nqn.\n");
    assert_eq!(nqn(&data.hostnqn), None, "a control character");
    data.hostnqn = Text::nul_terminated(&format!("nqn.{}", "a".repeat(220)));
    assert_eq!(nqn(&data.hostnqn), None, "224 bytes");
    assert_eq!(invalid_parameter(ConnectData::SUBNQN_AT, true), 0x1_0100);
}

#[test]
fn discovery_entries_are_in_place() {
    let entry = DiscoveryEntry {
        service: Text::ascii("4420"),
        subnqn: Text::nul_terminated("nqn.b"),
        ..DiscoveryEntry::default()
    };
    let bytes = entry.as_page();
    assert_eq!((&bytes[32..37], &bytes[256..262]), (&b"4420 "[..], &b"nqn.b\0"[..]));
    let header =
        DiscoveryHeader { generation: 7.into(), records: 2.into(), ..DiscoveryHeader::default() };
    assert_eq!((header.as_page()[0], header.as_page()[8]), (7, 2));
}

#[test]
fn cross_controller_reset_names_an_instance() {
    let reset = CrossControllerReset { ciu: 9, icid: 0x1234, cirn: 0x1122_3344_5566_7788 };
    let sqe = reset.to_sqe();
    assert_eq!(sqe.as_bytes()[40..44], [0x34, 0x12, 9, 0]);
    assert_eq!(sqe.as_bytes()[48..56], 0x1122_3344_5566_7788u64.to_le_bytes());
    assert_eq!(CrossControllerReset::from_sqe(&sqe), reset);
}
