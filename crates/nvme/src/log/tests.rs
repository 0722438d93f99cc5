use proptest::prelude::*;

use super::*;
use crate::Page;
use crate::testing::{counterexample, offsets};

#[test]
fn log_fields_are_at_their_offsets() {
    offsets!(ErrorEntry: status_and_phase 12, lba 16, vendor_log 28, command_info 32, transport_info 40, version 63);
    offsets!(Smart: temperature 1, percentage_used 5, data_units_read 32, host_reads 64, unsafe_shutdowns 144, error_log_entries 176, temperature_sensors 200, thermal_transitions 216);
    offsets!(FirmwareSlots: revisions 8);
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
