use nvme::admin::{CreateCq, delete_cq, delete_sq};
use nvme::{QueueId, Status};
use units::Nanos;

use crate::testing::{Host, mem, read};
use crate::{Config, Profile, Service};

#[test]
fn deleted_queues_leave_no_memory() {
    let fixed = Service { base: Nanos::from_micros(100), ..Service::default() };
    let mut host =
        Host::new(Config::new(Profile { read: fixed, ..Profile::null() }), vec![mem(1 << 20, 512)])
            .ready();
    let mut stays = host.pair(1, 16);
    let mut goes = host.pair(2, 64);
    let to = host.page(1);
    // One command in service on each queue, so that slots are freed out of order.
    for pair in [&mut goes, &mut stays] {
        let cid = host.cid();
        host.post(pair, read(0, 1, to, 512), cid);
        host.ring(pair);
        host.settle();
    }
    let ring = host.page(1);
    let (no_sq, no_cq) = (delete_sq(QueueId(2)), delete_cq(QueueId(2)));
    let create =
        CreateCq { queue: QueueId(2), entries: 64, addr: ring, contiguous: true, vector: None }
            .to_sqe();
    assert_eq!(host.admin(no_sq).status(), Status::SUCCESS);
    for _ in 0..50 {
        for sqe in [no_cq, create] {
            assert_eq!(host.admin(sqe).status(), Status::SUCCESS);
        }
    }
    let commands = &host.device.commands;
    assert_eq!(
        (commands.slots.len(), commands.free.len()),
        (15 + 63, 15 + 63 - 1),
        "and one in service"
    );
    assert!(commands.free.capacity() < 200, "{}", commands.free.capacity());
    host.run_until(Nanos::from_millis(1));
    assert_eq!(host.reap(&mut stays, 9).len(), 1);
}
