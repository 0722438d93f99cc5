use proptest::prelude::*;

use super::ana::{AnaGroup, AnaHeader, AnaLog};
use super::*;
use crate::tests::{counterexample, offsets};
use crate::{AnaState, Nsid, Page};

#[test]
fn log_fields_are_at_their_offsets() {
    offsets!(ErrorEntry: status_and_phase 12, lba 16, command_info 32, version 63);
    offsets!(Smart: temperature 1, data_units_read 32, host_reads 64, unsafe_shutdowns 144, error_log_entries 176);
    offsets!(FirmwareSlots: revisions 8);
    offsets!(CommandsSupported: io 1024, reserved2048 2048);
}

#[test]
fn support_bits_are_in_place() {
    assert_eq!(
        Supported::new()
            .with_supported(true)
            .with_lbcc(true)
            .with_scope(scope::CONTROLLER)
            .into_bits(),
        0x0020_0003
    );
    assert_eq!(
        Supported::new().with_supported(true).with_scope(scope::NAMESPACE).into_bits(),
        0x0010_0001
    );
}

#[test]
fn error_entry_has_a_status() {
    let entry = ErrorEntry { status_and_phase: 0x4281 << 1 | 1, ..ErrorEntry::default() };
    assert_eq!(entry.status(), Status::UNRECOVERED_READ_ERROR.with_dnr());
}

#[test]
fn active_slot_holds_running_firmware() {
    let slots = FirmwareSlots::single(Text::ascii("1.0"));
    assert_eq!((slots.active, slots.revisions[0]), (1, Text::ascii("1.0")));
}

#[test]
fn any_page_decodes_without_panic() {
    let law = |bytes: &Vec<u8>| {
        let error = ErrorEntry::from_page(bytes).expect("it is whole");
        let slots = FirmwareSlots::from_page(bytes).expect("it is whole");
        let smart = Smart::from_page(bytes).expect("it is whole");
        let _ = format!("{error:?} {} {slots:?} {smart:?}", error.status());
        smart.as_page() == bytes && slots.as_page() == bytes
    };
    assert_eq!(counterexample(300, proptest::collection::vec(any::<u8>(), 512), law), None);
}

#[test]
fn ana_fields_are_at_their_offsets() {
    offsets!(AnaHeader: change_count 0, groups 8);
    offsets!(AnaGroup: group 0, namespaces 4, change_count 8, state 16);
    let log = AnaLog {
        change_count: 0x0102,
        groups: vec![(
            AnaGroup { group: 7, change_count: 3, state: 0xf, ..AnaGroup::default() },
            vec![Nsid(5), Nsid(9)],
        )],
    };
    let bytes = log.to_bytes(false);
    assert_eq!((bytes.len(), &bytes[..10]), (16 + 32 + 8, &[2, 1, 0, 0, 0, 0, 0, 0, 1, 0][..]));
    assert_eq!(
        (&bytes[16..24], bytes[32], &bytes[48..]),
        (&[7, 0, 0, 0, 2, 0, 0, 0][..], 0xf, &[5, 0, 0, 0, 9, 0, 0, 0][..])
    );
    assert_eq!(log.to_bytes(true).len(), 16 + 32);
    assert_eq!(log.state_of(7), Some(AnaState::CHANGE));
    assert_eq!(log.state_of(8), None);
}

#[test]
fn ana_log_round_trips() {
    let group = (1u32.., any::<u64>(), 0u8..16, proptest::collection::vec(1u32.., 0..5)).prop_map(
        |(group, change_count, state, ids)| {
            let namespaces = ids.len() as u32;
            let descriptor =
                AnaGroup { group, namespaces, change_count, state, ..AnaGroup::default() };
            (descriptor, ids.into_iter().map(Nsid).collect())
        },
    );
    let log = (any::<u64>(), proptest::collection::vec(group, 0..6))
        .prop_map(|(change_count, groups)| AnaLog { change_count, groups });
    let law = |log: &AnaLog| AnaLog::from_bytes(&log.to_bytes(false)).as_ref() == Ok(log);
    assert_eq!(counterexample(300, log, law), None);
}

/// Whatever counts the page contains, only the bytes given are read.
#[test]
fn any_ana_log_decodes_without_panic() {
    let law = |bytes: &Vec<u8>| match AnaLog::from_bytes(bytes) {
        Ok(log) => {
            log.groups.iter().all(|(group, ids)| group.namespaces as usize == ids.len())
                && log.groups.len() * 32 < bytes.len()
        }
        Err(short) => bytes.len() < 16 && short.got == bytes.len(),
    };
    let sizes = proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..300);
    assert_eq!(counterexample(500, sizes, law), None);
    let mut endless =
        AnaLog { change_count: 1, groups: vec![(AnaGroup::default(), vec![])] }.to_bytes(false);
    endless[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(AnaLog::from_bytes(&endless).map(|log| log.groups.len()), Ok(0));
}

#[test]
fn ana_states_have_status_and_capability() {
    let refusals = AnaState::ALL.map(AnaState::refusal);
    let expected = [
        None,
        None,
        Some(Status::ANA_INACCESSIBLE),
        Some(Status::ANA_PERSISTENT_LOSS),
        Some(Status::ANA_TRANSITION),
    ];
    assert_eq!(refusals, expected);
    for state in (0..16).map(AnaState) {
        assert_eq!(state.is_accessible(), state.refusal().is_none());
        assert_eq!(state.name().is_some(), AnaState::ALL.contains(&state));
        let told = state.refusal().and_then(AnaState::of_status);
        assert!(told.is_none_or(|told| told == state), "{state}");
    }
    assert_eq!(AnaState::ALL.map(AnaState::capability), [1, 2, 4, 8, 16]);
    assert_eq!(
        (AnaState(0).to_string(), AnaState(0x3).to_string()),
        ("reserved (0x0)".into(), "inaccessible".into())
    );
}
