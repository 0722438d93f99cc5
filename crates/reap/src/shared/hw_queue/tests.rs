use sync::WaiterId;

use crate::{Device, OpenOptions};

/// With CQEs left, the only user is woken, or on a shared queue the owner of the notification.
#[test]
fn leftover_entries_wake_only_the_waiter() {
    for threads in [1, 2] {
        let options = OpenOptions::new().software_queues(threads).hardware_queues(1);
        let device = Device::open_with("mem:1M?profile=null&queues=1", &options).unwrap();
        let queue = device.queue().unwrap();
        let transport = queue.path_queues()[0].controller().transport();
        let hardware = transport.hardware();
        let armed_after = || {
            hardware.users.iter().for_each(|user| user.wake.arm());
            hardware.wake_owner();
            hardware.users.iter().map(|user| user.wake.flag().is_armed()).collect::<Vec<_>>()
        };
        if threads == 1 {
            assert_eq!(armed_after(), [false]);
            continue;
        }
        assert_eq!(armed_after(), [true, true], "no thread has taken the role of sleeping on it");
        assert!(hardware.role.try_take(WaiterId(1)));
        assert_eq!(armed_after(), [true, false]);
    }
}
