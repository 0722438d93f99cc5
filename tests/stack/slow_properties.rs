//! Whole-stack: a controller whose properties answer late (`properties=late`), as over fabrics.
//! Opening, resets, closing and losing it come to the same as where they answer at once.

use crate::common::{open, wait_until};
use driver::BringupCause;
use reap::{
    Change, Device, EmbeddedOptions, FaultPlan, Faults, IoError, Loss, OpenError, OpenOptions,
    PathLink, Queue, Request,
};

/// Opens the same device with another seed, so that the answers take other times.
fn late(seed: u64) -> String {
    format!("mem:64M?profile=optane&namespaces=2&properties=late&seed={seed}")
}

/// Writes blocks and reads them back.
fn round_trip(queue: &Queue, g: u64) {
    let ns = queue.namespaces()[0];
    for lba in (0..32).map(|n| n * 8) {
        let mut buf = queue.buffer(4096).unwrap();
        buf.iter_mut().enumerate().for_each(|(i, byte)| *byte = (lba ^ g ^ i as u64) as u8);
        let (written, buf) = queue.block_on(queue.write(&ns, lba, buf)).unwrap();
        written.unwrap();
        let (read, back) =
            queue.block_on(queue.read(&ns, lba, queue.buffer(4096).unwrap())).unwrap();
        read.unwrap();
        assert!(*back == *buf, "block {lba}");
    }
    queue.block_on(queue.flush(&ns)).unwrap().unwrap();
}

/// Until something is so. A watchdog, not a measurement: the machine may be busy.
#[test]
fn late_answers_find_the_same() {
    let found = |uri: &str| {
        let device = open(uri, OpenOptions::default());
        let namespaces: Vec<_> =
            device.namespaces().iter().map(|ns| (ns.nsid(), ns.blocks())).collect();
        let about = device.description();
        (namespaces, about.model.clone(), about.version.clone(), about.hardware_queues, about.depth)
    };
    let at_once = found("mem:64M?profile=null&namespaces=2");
    assert_eq!(found("mem:64M?profile=null&namespaces=2&properties=now"), at_once);
    for seed in 0..8 {
        assert_eq!(
            found(&format!("mem:64M?profile=null&namespaces=2&properties=late&seed={seed}")),
            at_once,
            "seed {seed}"
        );
    }
}

#[test]
fn use_reset_and_close() {
    for seed in 0..4 {
        let device = open(&late(seed), OpenOptions::default());
        let queue = device.queue().unwrap();
        for resets in 1..=4 {
            round_trip(&queue, resets);
            // Whatever is in flight meanwhile is posted again.
            let ns = queue.namespaces()[0];
            let reads = (0..16).map(|n| Request::read(&ns, n * 8, queue.buffer(4096).unwrap()));
            queue.submit(reads).map_err(|(why, _)| why).unwrap();
            device.reset();
            let mut out = Vec::with_capacity(16);
            while out.len() < 16 {
                queue.wait(1, None).unwrap();
                queue.reap(&mut out);
            }
            out.iter().for_each(|done| done.result.unwrap());
            wait_until("the reset is begun", || device.health().resets == resets as u32);
        }
        round_trip(&queue, 9);
        assert_eq!((device.health().dead, device.counters().leaked_bytes), (None, 0));
    }
}

/// The health look goes the same way: what befalls an idle controller is found by nothing else.
#[test]
fn idle_controller_is_watched() {
    let faults = Faults::new(FaultPlan::new());
    let options = OpenOptions::new()
        .embedded(EmbeddedOptions {
            faults: Some(faults.clone()),
            ready_timeout: Some(std::time::Duration::from_secs(60)),
            ..EmbeddedOptions::default()
        })
        .timeout(std::time::Duration::from_secs(3600));
    let device = open(&late(1), options);
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    round_trip(&queue, 1);
    faults.remove();
    wait_until("the controller is given up", || device.health().dead.is_some());
    let (failed, _) = queue.block_on(queue.read(&ns, 0, queue.buffer(4096).unwrap())).unwrap();
    assert_eq!(failed, Err(IoError::DeviceLost));
    let why = device.health().last_reset;
    assert!(why.as_ref().is_some_and(|why| why.to_string().contains("all ones")), "{why:?}");
}

/// One that hangs is found by its time-out, one that is pulled out by its status; wherever in the
/// sequence that happens.
#[test]
fn failed_bringup_is_refused() {
    let refused = |apply_to: fn(&Faults)| {
        let faults = Faults::new(FaultPlan::new());
        apply_to(&faults);
        let options = OpenOptions::new()
            .embedded(EmbeddedOptions {
                faults: Some(faults),
                ready_timeout: Some(std::time::Duration::from_secs(1)),
                ..EmbeddedOptions::default()
            })
            .pool_bytes(16 << 20);
        match Device::open_with(&late(3), &options).err() {
            Some(OpenError::Bringup(error)) => error.cause,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(refused(Faults::hang), BringupCause::NotReady { .. }));
    assert!(matches!(refused(Faults::remove), BringupCause::Gone));
}

#[test]
fn lost_path_returns() {
    let path = "path=mem:64M?profile=optane%26properties=late%26seed";
    let uri = format!("multipath:?{path}=1&{path}=2&policy=round-robin&keep_alive=2s");
    let device = open(&uri, OpenOptions::default());
    let queue = device.queue().unwrap();
    let is = |path: usize, link| device.paths()[path].status.link == link;
    for (g, (path, loss)) in
        (1..).zip([(0, Loss::Gone), (1, Loss::Frozen), (0, Loss::Frozen), (1, Loss::Gone)])
    {
        round_trip(&queue, g);
        device.embedded().unwrap().change_path(path, Change::Lost(loss)).unwrap();
        wait_until("the path is lost", || is(path, PathLink::Lost));
        round_trip(&queue, g + 100);
        device.embedded().unwrap().change_path(path, Change::Back).unwrap();
        wait_until("the path is live", || is(path, PathLink::Live));
    }
    round_trip(&queue, 1000);
    let paths = device.paths();
    assert!(paths.iter().all(|path| path.ios > 0 && path.in_flight == 0), "{paths:?}");
    assert_eq!(device.counters().leaked_bytes, 0);
}
