use nvme::opcode::admin;

use super::*;
use crate::testing::controller::{Controller, Script};
use crate::testing::host::Host;

fn up(script: Script) -> (Host, Inventory) {
    let (mut host, config) = Host::new(Controller::new(script));
    let inventory = host.bring_up(config).unwrap();
    (host, inventory)
}

/// Whatever fails, a controller that can be stopped is stopped within bounded time.
#[test]
fn failures_before_stop_are_ignored() {
    let scripts = [
        Script { silent: vec![(admin::DELETE_SQ, 0)], ..Script::default() },
        Script { shutdown_after: Nanos::MAX, ..Script::default() },
        Script {
            refuse: [((admin::DELETE_CQ, 0), nvme::Status::INVALID_QUEUE_ID)].into(),
            ..Script::default()
        },
    ];
    for script in scripts {
        let (mut host, inventory) = up(script);
        let start = host.now;
        assert_eq!(host.shut_down(&inventory), Ok(()));
        assert!(!host.controller.csts().rdy());
        assert!(host.now <= start + Nanos::from_secs(7));
    }
    let (mut host, inventory) = up(Script::default());
    host.controller.break_down();
    assert_eq!(host.shut_down(&inventory), Ok(()));
}

#[test]
fn gone_controller_cannot_shut_down() {
    let (mut host, inventory) = up(Script::default());
    host.controller.remove();
    assert_eq!(host.shut_down(&inventory), Err(ShutdownError::Gone));
}

/// A violation stops the admin queue: the remaining deletions are skipped.
#[test]
fn violation_ends_queue_deletion() {
    for astray in [admin::DELETE_SQ, admin::DELETE_CQ] {
        let (mut host, inventory) = up(Script { astray: vec![(astray, 0)], ..Script::default() });
        let start = host.now;
        assert_eq!(host.shut_down(&inventory), Ok(()));
        assert!(!host.controller.csts().rdy());
        assert!(
            host.now < start + Nanos::from_millis(500),
            "{astray:#x}: it waited for an answer until {}",
            host.now - start
        );
    }
}
