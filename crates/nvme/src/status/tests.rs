use std::collections::HashSet;

use super::*;

#[test]
fn status_prints_name_and_code() {
    assert_eq!(Status::INVALID_FIELD.to_string(), "Invalid Field in Command (00h/02h)");
    assert_eq!(
        Status::INVALID_QUEUE_ID.with_dnr().to_string(),
        "Invalid Queue Identifier (01h/01h), do not retry"
    );
    assert_eq!(Status::new(2, 0xc3).to_string(), "Vendor Specific (02h/c3h)");
    assert_eq!(Status::new(7, 0x01).to_string(), "Vendor Specific (07h/01h)");
    assert_eq!(Status::new(5, 0x01).to_string(), "Unknown Status (05h/01h)");
}

#[test]
fn codes_are_those_of_the_specification() {
    let checked = [
        (Status::SUCCESS, 0x000),
        (Status::ABORT_REQUESTED, 0x007),
        (Status::ABORTED_SQ_DELETION, 0x008),
        (Status::INVALID_NAMESPACE_OR_FORMAT, 0x00b),
        (Status::PRP_OFFSET_INVALID, 0x013),
        (Status::COMMAND_INTERRUPTED, 0x021),
        (Status::LBA_OUT_OF_RANGE, 0x080),
        (Status::COMPLETION_QUEUE_INVALID, 0x100),
        (Status::INVALID_LOG_PAGE, 0x109),
        (Status::FEATURE_NOT_CHANGEABLE, 0x10e),
        (Status::COMMAND_SET_NOT_SUPPORTED, 0x129),
        (Status::WRITE_TO_READ_ONLY_RANGE, 0x182),
        (Status::WRITE_FAULT, 0x280),
        (Status::UNRECOVERED_READ_ERROR, 0x281),
        (Status::INTERNAL_PATH_ERROR, 0x300),
        (Status::ANA_PERSISTENT_LOSS, 0x301),
        (Status::ANA_INACCESSIBLE, 0x302),
        (Status::ANA_TRANSITION, 0x303),
        (Status::CONTROLLER_PATHING_ERROR, 0x360),
        (Status::HOST_PATHING_ERROR, 0x370),
        (Status::ABORTED_BY_HOST, 0x371),
    ];
    for (status, bits) in checked {
        assert_eq!(status, Status(bits));
    }
}

#[test]
fn status_constants_are_unique() {
    let codes: HashSet<_> = ALL.iter().collect();
    let names: HashSet<_> = ALL.iter().map(|s| s.name().expect("a constant has a name")).collect();
    assert_eq!((codes.len(), names.len()), (ALL.len(), ALL.len()));
}

#[test]
fn retry_hints_keep_the_status() {
    for bits in 0..=0x7fff {
        let status = Status(bits);
        let hinted = Status(bits & !(3 << 13));
        let hinted = if status.more() { hinted.with_more() } else { hinted };
        let hinted = if status.do_not_retry() { hinted.with_dnr() } else { hinted };
        assert_eq!(hinted, status);
        assert_eq!(
            (status.name(), status.is_success()),
            (status.kind().name(), status.kind() == Status::SUCCESS)
        );
        assert!(!status.to_string().is_empty());
    }
}

#[test]
fn only_path_errors_are_path_related() {
    let path: Vec<_> = ALL.iter().filter(|s| s.is_path_related()).collect();
    assert_eq!(path.len(), 7);
    assert!(
        Status::ANA_INACCESSIBLE.with_dnr().is_path_related()
            && !Status::INTERNAL_ERROR.is_path_related()
    );
}
