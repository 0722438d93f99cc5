//! Whole-stack: what a controller says of itself while it is in use, reset, or gone.

use std::time::Duration;

use nvme::admin::{Identify, cns};
use nvme::prp::Dptr;
use nvme::{Nsid, Page, Status, identify};
use reap::{Device, IdentifyError, OpenOptions};

fn about(cns: u8, nsid: u32) -> Identify {
    Identify::new(cns, Nsid(nsid), Dptr::NONE)
}

#[test]
fn identify_matches_the_uri() {
    let device = Device::open("mem:64M?lba=4096&namespaces=3").unwrap();
    let controller = identify::Controller::from_page(&*device.identify(&about(cns::CONTROLLER, 0)).unwrap()).unwrap();
    assert_eq!((controller.sn.to_string(), controller.nn), (device.description().serial.clone(), 3));
    let active = identify::NamespaceList::from_page(&*device.identify(&about(cns::ACTIVE_NAMESPACES, 0)).unwrap()).unwrap();
    assert_eq!(active.iter().collect::<Vec<_>>(), [Nsid(1), Nsid(2), Nsid(3)]);
    let namespace = identify::Namespace::from_page(&*device.identify(&about(cns::NAMESPACE, 3)).unwrap()).unwrap();
    assert_eq!((namespace.nsze, namespace.format().block_size()), (64 << 8, Some(4096)));
}

#[test]
fn refusals_carry_the_controllers_status() {
    let device = Device::open("mem:1M").unwrap();
    match device.identify(&about(0xff, 0)) {
        Err(IdentifyError::Status(status)) => assert_eq!(status.kind(), Status::INVALID_FIELD),
        other => panic!("{other:?}"),
    }
}

/// Each question is answered, or told that a reset came between; none is lost.
#[test]
fn concurrent_identify_during_resets() {
    let device = Device::open("mem:16M?profile=null").unwrap();
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while answers < 50 || device.health().resets < 3 {
                        match device.identify(&about(cns::CONTROLLER, 0)) {
                            Ok(page) => {
                                answers += 1;
                                assert_eq!(identify::Controller::from_page(&*page).unwrap().nn, 1);
                            }
                            Err(IdentifyError::Reset) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        // No more than that: where one reset follows the other no question may ever be answered in between.
        while device.health().resets < 3 && !askers.iter().any(|asker| asker.is_finished()) {
            device.reset();
            std::thread::sleep(Duration::from_millis(5));
        }
        askers.into_iter().for_each(|asker| asker.join().unwrap());
    });
    assert!(device.health().dead.is_none());
}

#[test]
fn files_have_no_identify_data() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let uri = format!("kernel:{}", file.path().display());
    let device = match Device::open_with(&uri, &OpenOptions::default()) {
        Ok(device) => device,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    assert!(matches!(device.identify(&about(cns::CONTROLLER, 0)), Err(IdentifyError::NoController(_))));
}
