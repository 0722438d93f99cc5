use reap::Queue;
use workload::fio::{self, Input};
use workload::plan;

use super::*;

fn jobs(text: &str) -> (Vec<Job>, Plan) {
    let parsed =
        fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap();
    let plan = plan::plan(&parsed.jobs, &[0]);
    (parsed.jobs, plan)
}

#[test]
fn device_needs_follow_the_stages() {
    let (jobs, plan) = jobs(
        "[a]\nnumjobs=3\niodepth=8\nfilename=x\nbs=4k\n[b]\nfilename=x:y\niodepth=4\nbs=2m\n[c]\nstonewall\nfilename=y\niodepth=64\n",
    );
    assert_eq!(
        need(&jobs, &plan, 0),
        Requirements {
            threads: 4,
            tags: 3 * 8 + 4 * 3,
            buffer_bytes: 3 * 8 * 4096 + 4 * (2 << 20)
        }
    );
    assert_eq!(
        need(&jobs, &plan, 1),
        Requirements { threads: 1, tags: 64, buffer_bytes: 4 * (2 << 20) }
    );
}

const MIB: u64 = 1 << 20;

/// Whether the block at `at` holds anything.
fn written(device: &Device, queue: &Queue, at: u64) -> bool {
    let namespace = first_namespace(device).unwrap();
    let (result, buf) =
        queue.block_on(queue.read(&namespace, at / 512, device.buffer(4096).unwrap())).unwrap();
    result.unwrap();
    buf.iter().any(|&byte| byte != 0)
}

#[test]
fn fill_writes_only_its_region() {
    let device = Device::open("mem:8M?profile=optane").unwrap();
    let (region, len) = (MIB..3 * MIB + 4096, 2 * MIB + 4096);
    let filled = fill(&device, region, u64::MAX >> 1, &AtomicBool::new(false)).unwrap();
    assert_eq!(filled, Filled { wanted: len, written: len });
    let queue = device.queue().unwrap();
    for (at, wanted) in
        [(0, false), (MIB - 4096, false), (MIB, true), (3 * MIB, true), (3 * MIB + 4096, false)]
    {
        assert_eq!(written(&device, &queue, at), wanted, "at {at}");
    }
}

#[test]
fn fill_ends_early() {
    let of = |uri: &str, most: u64, stop: bool| {
        fill(&Device::open(uri).unwrap(), 0..8 * MIB, most, &AtomicBool::new(stop)).unwrap().written
    };
    assert_eq!(of("mem:8M", 3 * MIB, false), 3 * MIB);
    assert_eq!(of("mem:8M", u64::MAX >> 1, true), 0);
    let full = of("mem:8M?alloc=4M", u64::MAX >> 1, false);
    assert!((3 * MIB..=4 * MIB).contains(&full), "{full}");
}

/// A stop on request ends what is in flight badly, as it should.
#[test]
fn stopped_fill_is_no_error() {
    let options = OpenOptions::new().timeout(std::time::Duration::from_millis(200));
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("never.toml");
    std::fs::write(&profile, "[read]\n[write]\nbase_ns = 3600000000000\n").unwrap();
    let device =
        Device::open_with(&format!("mem:8M?profile={}", profile.display()), &options).unwrap();
    let stop = AtomicBool::new(false);
    let filled = std::thread::scope(|scope| {
        let fills = scope.spawn(|| fill(&device, 0..8 * MIB, u64::MAX >> 1, &stop));
        while device.in_flight() == 0 && !fills.is_finished() {
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        device.fail_pending();
        fills.join().unwrap()
    });
    assert_eq!(filled.unwrap(), Filled { wanted: 8 * MIB, written: 0 });
}

#[test]
fn only_memory_that_moves_data_flatters() {
    let needs = |uri: &str| needs_fill(&uri.parse().unwrap());
    assert!(needs("mem:1G?profile=tlc"));
    assert!(!needs("mem:1G?profile=null"));
    assert!(!needs("file:/tmp/x"));
}
