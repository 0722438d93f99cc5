//! Events of a device, and their receivers.

use std::thread;
use std::time::Duration;

use reap::{Change, Device, EventKind, Events, Instant, Loss, OpenOptions, PathLink, ResetCause};

use crate::common::{open, wait_for_path};
use crate::happened::happened;

/// The next event, within a minute.
fn next(events: &mut Events) -> EventKind {
    let limit = Instant::now() + Duration::from_secs(60);
    events.next(Some(limit)).expect("nothing happens").kind
}

/// Each receiver gets every event, whatever it waits by, and wherever it stands.
#[test]
fn resets_are_told_to_every_receiver() {
    let device = Device::open("mem:1M?profile=null").unwrap();
    let (mut first, mut late) = (device.events(), device.events());
    assert_eq!((first.try_next(), first.next(Some(Instant::now())), first.lost()), (None, None, 0));
    let waits = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime
            .block_on(async { [first.recv().await, first.recv().await] })
            .map(|event| event.unwrap().kind)
    });
    device.reset();
    let told = [EventKind::Reset(ResetCause::Requested), EventKind::Restored];
    assert_eq!(waits.join().unwrap(), told);
    assert_eq!([next(&mut late), next(&mut late)], told);
    assert_eq!(happened(&device), told, "a receiver begins with what has happened");
}

/// A receiver that sleeps is woken by the end, and keeps no device open.
#[test]
fn closed_device_ends_its_events() {
    let device = Device::open("mem:1M?profile=null").unwrap();
    let [mut first, mut second] = [device.events(), device.events()];
    let blocks = thread::spawn(move || first.next(None));
    let awaits = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(second.recv())
    });
    thread::sleep(Duration::from_millis(5));
    drop(device);
    assert_eq!((blocks.join().unwrap(), awaits.join().unwrap()), (None, None));
}

#[test]
fn oldest_events_are_dropped_and_counted() {
    let device = Device::open("mem:1M?profile=null").unwrap();
    let [mut events, mut follows] = [device.events(), device.events()];
    for _ in 0..150 {
        device.reset();
        assert_eq!(
            [next(&mut follows), next(&mut follows)],
            [EventKind::Reset(ResetCause::Requested), EventKind::Restored]
        );
    }
    assert!(events.try_next().is_some());
    assert_eq!(events.lost(), 300 - 256);
    assert_eq!(std::iter::from_fn(|| events.try_next()).count(), 255);
}

#[test]
fn lost_path_is_told_with_its_number() {
    let device = open(
        "multipath:?path=mem:1M?profile=null&path=mem:1M?profile=null",
        OpenOptions::default(),
    );
    let mut events = device.events();
    assert!(happened(&device).is_empty(), "{:?}", happened(&device));
    device.embedded().unwrap().change_path(1, Change::Lost(Loss::Gone)).unwrap();
    wait_for_path(&device, 1, PathLink::Lost);
    device.embedded().unwrap().change_path(1, Change::Back).unwrap();
    wait_for_path(&device, 1, PathLink::Live);
    let mut links = Vec::new();
    while links.last() != Some(&PathLink::Live) {
        let event = events.next(None).unwrap();
        assert_eq!(event.path, Some(1), "{event}");
        if let EventKind::Path(status) = event.kind {
            links.push(status.link);
        }
    }
    assert!(links.contains(&PathLink::Lost), "{links:?}");
}
