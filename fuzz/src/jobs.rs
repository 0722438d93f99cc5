//! Job files, what they include, and the threads that they come to.

use std::cell::Cell;

use units::Nanos;
use workload::fio::{Environment, Input, parse};
use workload::{Generator, Job, Next, TargetSize, plan};

use crate::source::Source;

/// The text after the first NUL is a file that can be included under any name, or the value of a
/// variable.
struct World<'a> {
    other: &'a [u8],
    includes: Cell<u32>,
}

impl Environment for World<'_> {
    fn include(&self, _from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        self.includes.set(self.includes.get() + 1);
        if path.starts_with('-') {
            Err("no such file".into())
        } else {
            Ok((path.to_owned(), self.other.to_vec()))
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (!name.starts_with('N')).then(|| String::from_utf8_lossy(self.other).into_owned())
    }
}

pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (text, other) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let world = World { other, includes: Cell::new(0) };
    let parsed = match parse(&[Input { name: "fuzz.fio", text }], &world) {
        Ok(parsed) => parsed,
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            return;
        }
    };
    assert!(!parsed.jobs.is_empty());
    let plan = plan::plan(&parsed.jobs, &[0, 1, 5]);
    assert!(plan.threads.iter().all(|thread| !thread.targets.is_empty()
        && thread.stage < plan.stages
        && thread.report < plan.reports));
    for thread in plan.threads.iter().take(4) {
        let targets = vec![
            TargetSize { bytes: 1 << 20, block: 512, size_at_setup: None };
            thread.targets.len()
        ];
        let job = &parsed.jobs[thread.job];
        // One that would hold a million I/Os in flight is right, and slow.
        if job.iodepth <= 256 && targets.len() <= 16 {
            play(
                job,
                &targets,
                Generator::new(job, thread.id(7), &targets),
                &mut Source::new(other),
            );
        }
    }
}

/// Does what a job says for some steps. Everything completes when it is waited for.
fn play<E: std::fmt::Display>(
    job: &Job,
    targets: &[TargetSize],
    generator: Result<Generator, E>,
    source: &mut Source,
) {
    let mut generator = match generator {
        Ok(generator) => generator,
        Err(misfit) => return assert!(!misfit.to_string().is_empty()),
    };
    let (mut now, mut flying, mut buf) = (Nanos(1_000), Vec::new(), Vec::new());
    for _ in 0..64 {
        match generator.next(now) {
            Next::Issue(io) => {
                let target = targets[usize::from(io.target)];
                assert!(
                    io.offset.checked_add(io.len.into()).is_some_and(|end| end <= target.bytes),
                    "{io:?} of {target:?}"
                );
                assert!(io.slot < job.iodepth, "{io:?}");
                buf.resize(io.len as usize, source.u8());
                if io.op == units::Op::Write {
                    generator.fill(&io, &mut buf);
                }
                flying.push(io);
            }
            Next::Commit => generator.committed(now),
            Next::Reap { min } => {
                assert!(min >= 1 && min as usize <= flying.len());
                now = Nanos(now.0 + 10_000);
                for io in flying.drain(..) {
                    buf.resize(io.len as usize, 0);
                    generator.completed(io.slot, now, Ok(()), &buf);
                }
            }
            Next::Wait { until } => {
                assert!(until > now, "it waits until {until} at {now}");
                now = until;
            }
            Next::Done => return,
        }
    }
}
