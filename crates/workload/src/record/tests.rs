//! Round trips, damage, and a recording submitted again.

use proptest::prelude::*;
use std::sync::Arc;

use super::*;
use crate::Next;

mod damage;
mod joined;
mod replayed;

const BLOCK: u32 = 512;
const DEVICE: u64 = 1 << 30;

pub(super) fn header(threads: usize, depth: u32, batch: u32) -> Header {
    let device =
        DeviceHead { uri: "mem:1G".into(), bytes: DEVICE, block_bytes: BLOCK, hardware_queues: 1, stamped: true, ..DeviceHead::default() };
    let thread = ThreadHead { job: "job".into(), targets: vec![0, 1], depth, batch, longest: 1 << 20, ..ThreadHead::default() };
    Header { mode: "interrupt".into(), devices: vec![device.clone(), device], threads: vec![thread; threads], ..Header::default() }
}

/// A submission, except for its cause: of the three kinds, by number.
fn any_submission() -> impl Strategy<Value = (Submission, u8, u64)> {
    let place = (0..3u8, 0..2u16, 0..DEVICE / u64::from(BLOCK) - 256, 1..256u32);
    let times = (0..1_000u64, any::<u32>(), 0..1u64 << 43, 0..10_000u64, any::<bool>());
    (place, times, 0..70u32, any::<bool>(), 0..3u8, 0..1u64 << 40).prop_map(|(place, times, wait, ends_batch, kind, far)| {
        let (op, target, block, blocks) = place;
        let (think, queued, service, late, bound) = times;
        let service = Service { queued: Nanos(queued.into()), service: Nanos(service), late: Nanos(late), bound };
        let op = [Op::Read, Op::Write, Op::Flush][usize::from(op)];
        let (offset, len, think) = (block * u64::from(BLOCK), blocks * BLOCK, Nanos(think));
        (Submission { op, target, offset, len, cause: Cause::Start, wait, think, ends_batch, service }, kind, far)
    })
}

pub(super) fn any_thread() -> impl Strategy<Value = Vec<Submission>> {
    prop::collection::vec(any_submission(), 0..300).prop_map(|list| {
        let cause = |number: u64, kind, far| match kind {
            1 if number > 0 => Cause::After(number - 1 - far % number),
            2 => Cause::At(Nanos(far)),
            _ => Cause::Start,
        };
        list.into_iter().zip(0..).map(|((s, kind, far), number)| Submission { cause: cause(number, kind, far), ..s }).collect()
    })
}

pub(super) fn write(header: &Header, threads: &[Vec<Submission>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for (thread, list) in threads.iter().enumerate() {
        list.iter().for_each(|s| writer.push(thread, s).unwrap());
    }
    writer.finish(End::default()).unwrap()
}

proptest! {
    #[test]
    fn what_was_written_is_read(threads in prop::collection::vec(any_thread(), 0..4), depth in 1..64u32) {
        let header = header(threads.len(), depth, 0);
        let trace = Trace::parse(write(&header, &threads)).unwrap();
        prop_assert_eq!(trace.header(), &header);
        for (thread, list) in threads.iter().enumerate() {
            prop_assert_eq!(&trace.submissions(thread).collect::<Vec<_>>(), list);
            prop_assert_eq!(trace.end().submissions[thread], list.len() as u64);
        }
    }
}

/// 4 KiB at a depth of 32: what most recordings consist of.
#[test]
fn a_submission_takes_16_bytes() {
    let service = Service { queued: Nanos(40_000), service: Nanos(10_300), late: Nanos(150), bound: false };
    let submission = |n: u64| Submission {
        op: Op::Read,
        target: 0,
        offset: (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (DEVICE >> 12)) << 12,
        len: 4096,
        cause: if n < 32 { Cause::Start } else { Cause::After(n - 32) },
        wait: 1,
        think: Nanos(110),
        ends_batch: true,
        service,
    };
    let list: Vec<Submission> = (0..10_000).map(submission).collect();
    let bytes = write(&header(1, 32, 1), &[list]).len();
    assert!(bytes < 17 * 10_000, "{bytes}");
}

fn parse(bytes: Vec<u8>) -> Arc<Trace> {
    Arc::new(Trace::parse(bytes).unwrap())
}
