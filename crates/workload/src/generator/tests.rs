//! The state machine against a device that completes in random order.

use super::*;
use crate::job::*;

const TARGET: Target = Target { bytes: 1 << 20, block: 512 };

/// Runs a job to its end on a device of memory; completes I/Os oldest first, as asked for.
fn run(job: &Job) -> (Generator, Vec<Io>) {
    let mut generator = Generator::new(job, Seat::default(), &[TARGET]).unwrap();
    let mut memory = vec![0; TARGET.bytes as usize];
    let (mut now, mut flying, mut log) = (Nanos(1000), std::collections::VecDeque::new(), Vec::new());
    loop {
        match generator.next(now) {
            Next::Issue(io) => {
                assert!(flying.len() < job.iodepth as usize);
                if io.op == Op::Write {
                    let range = io.offset as usize..io.offset as usize + io.len as usize;
                    generator.fill(&io, &mut memory[range]);
                }
                flying.push_back(io);
                generator.issued(&io, now);
                log.push(io);
            }
            Next::Commit => {
                now += Nanos(100);
                generator.committed(now);
            }
            Next::Reap { min, .. } => {
                now += Nanos(10_000);
                for _ in 0..min {
                    let io: Io = flying.pop_front().unwrap();
                    let range = io.offset as usize..io.offset as usize + io.len as usize;
                    generator.completed(io, now, Ok(()), &memory[range]);
                }
            }
            Next::Wait { until } => now = until,
            Next::Done => return (generator, log),
        }
    }
}

#[test]
fn sequential_reads_cover_the_device_in_order() {
    let (generator, log) = run(&Job::default());
    assert_eq!(log.iter().map(|io| io.offset).collect::<Vec<_>>(), (0..256).map(|i| i * 4096).collect::<Vec<_>>());
    assert_eq!(generator.stats().read.ios, 256);
    assert_eq!(generator.stats().read.bytes, 1 << 20);
}
