use nvme::Status;
use units::Nanos;

use crate::testing::{Host, TestPort, read, write};
use crate::{Budget, Config, Mem, Namespace, Profile};

fn mem(bytes: u64, block: u32) -> Namespace {
    Namespace::mem(Mem::new(bytes, Budget::new(64 << 20)), block).unwrap()
}

fn host(profile: Profile) -> Host<TestPort> {
    Host::new(Config::new(profile), vec![mem(1 << 20, 512), mem(8 << 20, 4096)]).ready()
}

#[test]
fn what_was_written_is_read_back() {
    let mut host = host(Profile::optane());
    let mut pair = host.pair(1, 16);
    let (from, to) = (host.page(1), host.page(1));
    host.port.memory.write(from, &[7; 1024]).unwrap();
    for sqe in [write(5, 2, from, 1024), read(4, 4, to, 2048)] {
        let cid = host.cid();
        host.post(&mut pair, sqe, cid);
        host.ring(&pair);
        host.run_until(host.now + Nanos::from_millis(1));
        let done = host.reap(&mut pair, 9);
        assert_eq!(done.iter().map(|c| (c.cid(), c.status())).collect::<Vec<_>>(), [(cid, Status::SUCCESS)]);
    }
    assert_eq!(host.port.memory.bytes(to, 2048), [vec![0; 512], vec![7; 1024], vec![0; 512]].concat());
}
