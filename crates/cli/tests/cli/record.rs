//! `reap run --record`.

use std::thread;

use workload::record::{Cause, Submission, Trace};

use crate::support::{Ended, Place, interrupt, patiently};

fn recorded(job: &str, more: &str) -> (Trace, serde_json::Value) {
    let place = Place::new();
    place.write("job.fio", job);
    let ended = place.reap(&format!("run job.fio --record run.trace --output-format json {more}")).ok();
    (Trace::parse(std::fs::read(place.path("run.trace")).unwrap()).unwrap(), ended.json())
}

#[test]
fn a_recording_has_every_submission_with_its_cause_and_its_stamp() {
    for mode in ["interrupt", "poll", "irq-poll+submit-check"] {
        let job = "[first]\nrw=randread\nbs=4k\niodepth=8\nnumber_ios=3000\n";
        let (trace, json) = recorded(job, &format!("--device mem:16M?profile=optane --completion {mode}"));
        let (header, end) = (trace.header(), trace.end());
        assert_eq!((header.mode.as_str(), header.threads.len(), header.threads[0].depth), (mode, 1, 8));
        assert_eq!(header.devices[0].timing.as_ref().map(|timing| timing.channels), Some(16));
        let list: Vec<Submission> = trace.submissions(0).collect();
        assert_eq!((list.len(), end.submissions.as_slice(), end.stopped_early), (3_000, &[3_000][..], false));
        assert_eq!(list.iter().filter(|s| s.cause == Cause::Start).count(), 8, "the first eight");
        assert!(list.iter().all(|s| !s.service.bound && (8_000..).contains(&s.service.service.0)), "{:?}", list[17]);
        assert!(list.iter().all(|s| s.len == 4096 && s.offset + 4096 <= 16 << 20));
        let run = end.run.unwrap();
        assert_eq!(run.ios, 3_000);
        let batches = list.iter().filter(|s| s.ends_batch).count() as u64;
        assert_eq!(json["jobs"][0]["reap"]["sq_doorbells"], batches, "a batch for each doorbell");
        assert_eq!(json["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"], run.p50_ns);
    }
}

#[test]
fn batches_rates_threads_and_long_requests_are_recorded() {
    let batches = "[a]\nrw=write\nbs=4k\niodepth=16\niodepth_batch=4\niodepth_batch_complete_min=4\nnumber_ios=800\nsize=4m\n";
    let (trace, _) = recorded(batches, "--device mem:16M?profile=tlc");
    let list: Vec<Submission> = trace.submissions(0).collect();
    assert!(list[16..].iter().filter(|s| s.wait > 0).all(|s| s.wait == 4), "{:?}", &list[16..24]);

    let rate = "[b]\nrw=randread\nbs=4k\niodepth=4\nrate_iops=20000\nnumber_ios=400\n";
    let (trace, _) = recorded(rate, "--device mem:16M?profile=optane");
    let due: Vec<u64> = trace.submissions(0).filter_map(|s| if let Cause::At(at) = s.cause { Some(at.0) } else { None }).collect();
    assert_eq!(due, (0..400).map(|n| n * 50_000).collect::<Vec<_>>());

    // Two threads on one queue, and requests of more than one command.
    let many = "[c]\nrw=randread\nbs=2m\niodepth=2\nnumjobs=2\nnumber_ios=30\n[d]\nstonewall\nrw=read\nbs=4k\nnumber_ios=30\n";
    let (trace, _) = recorded(many, "--device mem:64M?profile=optane --queues 1");
    let stages: Vec<u32> = trace.header().threads.iter().map(|t| t.stage).collect();
    assert_eq!((stages, trace.end().submissions.clone()), (vec![0, 0, 1], vec![30, 30, 30]));
    // A megabyte takes the link of 2.5 GB/s 400 µs.
    assert!(trace.submissions(1).all(|s| !s.service.bound && s.service.service.0 > 400_000));
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error_before_anything_runs() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nruntime=100s\ntime_based\n");
    let words = ["cannot write the recording to no/such/place", "there is no directory no/such; make it first"];
    place.reap("run job.fio --record no/such/place --device mem:16M").fails_with(&words);
    if std::path::Path::new("/dev/full").exists() {
        place.write("job.fio", "[a]\nrw=randread\nnumber_ios=10\n");
        place.reap("run job.fio --record /dev/full --device mem:16M").fails_with(&["cannot write the recording to /dev/full"]);
    }
}

#[test]
fn ctrl_c_ends_a_recording_in_good_order() {
    let place = Place::new();
    place.write("job.fio", "[a]\nrw=randread\nbs=4k\niodepth=4\nruntime=100s\ntime_based\n");
    let trace = patiently(|time| {
        let child = place.start("run job.fio --record run.trace --device mem:16M?profile=optane");
        thread::sleep(time);
        interrupt(&child);
        let ended: Ended = child.wait_with_output().unwrap().into();
        // None while it does not listen to signals.
        ended.code?;
        let trace = Trace::parse(std::fs::read(place.path("run.trace")).unwrap()).unwrap();
        ended.stopped();
        (trace.submissions(0).count() > 0).then_some(trace)
    });
    assert!(trace.submissions(0).all(|s| !s.service.bound));
}
