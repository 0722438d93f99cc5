use std::mem::offset_of;

use proptest::prelude::*;

use super::*;
use crate::Page;
use crate::testing::counterexample;

#[test]
fn log_fields_are_at_their_offsets() {
    let at = [
        (offset_of!(ErrorEntry, status_and_phase), 12),
        (offset_of!(ErrorEntry, lba), 16),
        (offset_of!(ErrorEntry, vendor_log), 28),
        (offset_of!(ErrorEntry, command_info), 32),
        (offset_of!(ErrorEntry, transport_info), 40),
        (offset_of!(ErrorEntry, version), 63),
        (offset_of!(Smart, temperature), 1),
        (offset_of!(Smart, percentage_used), 5),
        (offset_of!(Smart, data_units_read), 32),
        (offset_of!(Smart, host_reads), 64),
        (offset_of!(Smart, unsafe_shutdowns), 144),
        (offset_of!(Smart, error_log_entries), 176),
        (offset_of!(Smart, temperature_sensors), 200),
        (offset_of!(Smart, thermal_transitions), 216),
        (offset_of!(FirmwareSlots, revisions), 8),
    ];
    for (is, should_be) in at {
        assert_eq!(is, should_be);
    }
}

#[test]
fn an_error_names_its_command_if_it_has_one() {
    let of_command = ErrorEntry { sq_id: 1, cid: 7, status_and_phase: 0x4281 << 1 | 1, ..ErrorEntry::default() };
    assert_eq!(of_command.command(), Some((QueueId(1), Cid(7))));
    assert_eq!(of_command.status(), Status::UNRECOVERED_READ_ERROR.with_dnr());
    let of_none = ErrorEntry { sq_id: ErrorEntry::NONE, cid: ErrorEntry::NONE, ..of_command };
    assert_eq!(of_none.command(), None);
}

#[test]
fn the_firmware_that_runs_is_the_one_in_the_active_slot() {
    let slots = FirmwareSlots::single(Text::ascii("1.0"));
    assert_eq!(slots.running(), Some(Text::ascii("1.0")));
    assert_eq!(FirmwareSlots::default().running(), None);
}

#[test]
fn any_page_is_read_without_a_panic() {
    let law = |bytes: &Vec<u8>| {
        let error = ErrorEntry::from_page(bytes).expect("it is whole");
        let slots = FirmwareSlots::from_page(bytes).expect("it is whole");
        let smart = Smart::from_page(bytes).expect("it is whole");
        let _ = format!("{error:?} {} {slots:?} {smart:?} {:?}", error.status(), slots.running());
        smart.as_page() == bytes && slots.as_page() == bytes
    };
    assert_eq!(counterexample(300, proptest::collection::vec(any::<u8>(), 512), law), None);
}
