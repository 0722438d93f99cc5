//! Whole-stack: admin commands of a caller's, to a controller that is in use, reset, or gone.

use std::time::Duration;

use nvme::admin::{GetFeatures, GetLogPage, Identify, SetFeatures, cns};
use nvme::features::fid;
use nvme::log::{Smart, lid};
use nvme::opcode::admin as opcode;
use nvme::prp::Dptr;
use nvme::{Nsid, Page, Sqe, Status, identify};
use reap::{AdminError, Device, FaultPlan, Mode, OpenOptions};

use crate::load::{SOON, Watchdog, open_to_lose};

fn about(cns: u8, nsid: u32) -> Identify {
    Identify::new(cns, Nsid(nsid), Dptr::NONE)
}

#[test]
fn identify_matches_the_uri() {
    let device = Device::open("mem:64M?lba=4096&namespaces=3").unwrap();
    let controller =
        identify::Controller::from_page(&*device.identify(&about(cns::CONTROLLER, 0)).unwrap())
            .unwrap();
    assert_eq!(
        (controller.sn.to_string(), controller.nn),
        (device.description().serial.clone(), 3)
    );
    let active = identify::NamespaceList::from_page(
        &*device.identify(&about(cns::ACTIVE_NAMESPACES, 0)).unwrap(),
    )
    .unwrap();
    assert_eq!(active.iter().collect::<Vec<_>>(), [Nsid(1), Nsid(2), Nsid(3)]);
    let namespace = identify::IdentifyNamespace::from_page(
        &*device.identify(&about(cns::NAMESPACE, 3)).unwrap(),
    )
    .unwrap();
    assert_eq!((namespace.nsze, namespace.format().block_size()), (64 << 8, Some(4096)));
}

fn status(answer: Result<impl std::fmt::Debug, AdminError>) -> Status {
    match answer {
        Err(AdminError::Status(status)) => status.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_carry_the_controllers_status() {
    let device = Device::open("mem:1M").unwrap();
    assert_eq!(status(device.identify(&about(0xff, 0))), Status::INVALID_FIELD);
    let vendors =
        |opcode, data: &mut [u8]| device.admin_command(&Sqe { opcode, ..Sqe::default() }, data);
    // No data, to the controller, from it, both.
    assert_eq!(status(vendors(0xc0, &mut [])), Status::INVALID_OPCODE);
    for opcode in [0xc1, 0xc2, 0xc3] {
        let mut data = [7; 4096];
        assert_eq!(status(vendors(opcode, &mut data)), Status::INVALID_OPCODE);
        assert_eq!(data, [7; 4096], "nothing came");
    }
}

#[test]
fn log_pages_are_read_in_parts() {
    let device = Device::open("mem:1M").unwrap();
    let (mut whole, mut rest) = ([0; Smart::LEN], [0; Smart::LEN - 128]);
    let smart = GetLogPage::new(lid::SMART, 4, Dptr::NONE);
    device.log_page(&smart, &mut whole).unwrap();
    assert_eq!(Smart::from_page(&whole).unwrap().available_spare, 100);
    device.log_page(&GetLogPage { offset: 128, ..smart }, &mut rest).unwrap();
    assert_eq!(rest, whole[128..]);
    assert_eq!(
        status(device.log_page(&GetLogPage { offset: 1 << 20, ..smart }, &mut rest)),
        Status::INVALID_FIELD
    );
    for bytes in [0, 3, 4100] {
        let refused = device.log_page(&smart, &mut vec![0; bytes]);
        assert!(
            matches!(refused, Err(AdminError::Refused { ref why, .. }) if why.contains(&format!("{bytes} "))),
            "{refused:?}"
        );
    }
}

#[test]
fn features_go_both_ways() {
    let device = Device::open("mem:1M").unwrap();
    let get = |fid| GetFeatures::current(fid).to_sqe();
    device.admin_command(&SetFeatures::new(fid::ARBITRATION, 3u32).to_sqe(), &mut []).unwrap();
    assert_eq!(device.admin_command(&get(fid::ARBITRATION), &mut []).unwrap(), 3);
    let mut sent = [0; 512];
    sent[1] = 1;
    device.admin_command(&SetFeatures::new(fid::HOST_BEHAVIOR, 0u32).to_sqe(), &mut sent).unwrap();
    let mut read = [9; 512];
    device.admin_command(&get(fid::HOST_BEHAVIOR), &mut read).unwrap();
    assert_eq!(read, sent);
    // Pointers and flags of the caller's mean nothing.
    let astray = Sqe {
        prp1: 1 << 40,
        prp2: 1 << 41,
        mptr: 8,
        flags: Sqe::PSDT_SGL,
        cid: 3,
        ..about(cns::CONTROLLER, 0).to_sqe()
    };
    let mut page = [0; Identify::LEN];
    device.admin_command(&astray, &mut page).unwrap();
    assert_eq!(page, *device.identify(&about(cns::CONTROLLER, 0)).unwrap());
}

#[test]
fn commands_of_the_library_are_refused() {
    let device = Device::open("mem:1M").unwrap();
    let of = |opcode| Sqe { opcode, ..Sqe::default() };
    let queues =
        [opcode::CREATE_SQ, opcode::CREATE_CQ, opcode::DELETE_SQ, opcode::DELETE_CQ].map(of);
    let others = [
        opcode::ABORT,
        opcode::ASYNC_EVENT_REQUEST,
        opcode::KEEP_ALIVE,
        opcode::DOORBELL_BUFFER_CONFIG,
        opcode::FORMAT_NVM,
    ];
    let features = [
        fid::NUMBER_OF_QUEUES,
        fid::INTERRUPT_COALESCING,
        fid::VECTOR_CONFIG,
        fid::HOST_MEMORY_BUFFER,
    ];
    let features = features.map(|fid| SetFeatures::new(fid, 0u32).to_sqe());
    for command in queues.into_iter().chain(others.map(of)).chain(features) {
        let refused = device.admin_command(&command, &mut []);
        assert!(
            matches!(refused, Err(AdminError::Refused { opcode, .. }) if opcode == command.opcode),
            "{refused:?}"
        );
    }
    let said = device.admin_command(&of(opcode::ABORT), &mut []).unwrap_err().to_string();
    assert_eq!(
        said,
        "admin command 08h is not sent: the library aborts commands itself, after the time-out that the device was opened with"
    );
    let said = device
        .admin_command(&about(cns::CONTROLLER, 0).to_sqe(), &mut [0; 512])
        .unwrap_err()
        .to_string();
    assert_eq!(said, "admin command 06h is not sent: it transfers 4096 bytes, and 512 were given");
    // The device works as before.
    let queue = device.queue().unwrap();
    let buf = queue.buffer(4096).unwrap();
    assert_eq!(queue.block_on(queue.read(&device.namespaces()[0], 0, buf)).unwrap().0, Ok(()));
}

/// A controller that answers nothing is reset, which is said; one that is given up refuses at once.
#[test]
fn lost_controllers_end_every_wait() {
    let _watchdog = Watchdog::new("admin commands to a controller that is lost");
    let (device, faults) = open_to_lose(FaultPlan::new(), Mode::POLL, 1, SOON);
    faults.hang();
    std::thread::scope(|scope| {
        let asked = [(); 3].map(|()| scope.spawn(|| device.identify(&about(cns::CONTROLLER, 0))));
        for asked in asked {
            let ended = asked.join().unwrap();
            assert!(matches!(ended, Err(AdminError::Reset | AdminError::Gone)), "{ended:?}");
        }
    });
    while device.health().dead.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(device.identify(&about(cns::CONTROLLER, 0)), Err(AdminError::Gone)));
}

/// Each command is answered, or told that a reset came between; none is lost.
#[test]
fn concurrent_commands_during_resets() {
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
                            Err(AdminError::Reset) => {}
                            Err(other) => panic!("{other}"),
                        }
                        match device.admin_command(
                            &GetFeatures::current(fid::NUMBER_OF_QUEUES).to_sqe(),
                            &mut [],
                        ) {
                            Ok(1..) | Err(AdminError::Reset) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        // No more than that: where one reset follows the other no question may ever be answered in
        // between.
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
    assert!(matches!(
        device.identify(&about(cns::CONTROLLER, 0)),
        Err(AdminError::NoController(_))
    ));
}
