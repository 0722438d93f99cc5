use std::fs::File;

use nvme::admin::cns;
use nvme::prp::Dptr;

use super::*;

#[test]
fn other_devices_are_errors() {
    let null = File::open("/dev/null").unwrap();
    assert_eq!(nsid(&null).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    let error = identify(&null, &Identify::new(cns::CONTROLLER, Nsid(0), Dptr::NONE)).unwrap_err();
    assert!(
        matches!(&error, CommandError::System(why) if why.raw_os_error() == Some(libc::ENOTTY)),
        "{error}"
    );
    assert!(error.to_string().starts_with("the kernel refuses to send the command: "), "{error}");
}
