//! The files that jobs ask for: `write_bw_log` and its kin, `write_iolog`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use workload::Job;
use workload::plan::Plan;
use workload::report::{log_files, write_log};

use super::ended::Ended;
use crate::output::{Kept, STANDARD, say};

/// Refuses files that cannot be written, before anything runs whose samples could then not be kept. Nothing is left of files that are new.
///
/// # Errors
/// The first of them.
pub fn check(jobs: &[Job], plan: &Plan) -> Result<()> {
    for thread in &plan.threads {
        let job = &jobs[thread.job];
        for file in log_files(job, thread) {
            let path = Path::new(&file.name);
            // A reader of a pipe takes the first close for the end. `write_iolog=-` is a file of that name, as in fio.
            if path == Path::new(STANDARD) || path.exists() && !path.is_file() && !path.is_dir() {
                continue;
            }
            Kept::open(path).with_context(|| cannot(&file.name, job))?;
        }
    }
    Ok(())
}

fn cannot(name: &str, job: &Job) -> String {
    format!("cannot write the log {name} of job '{}'", job.name)
}

/// Writes the files of all threads, in the working directory or where their names say.
///
/// # Errors
/// A file that cannot be written.
pub fn write(jobs: &[Job], plan: &Plan, ended: &[Ended]) -> Result<()> {
    for (thread, end) in plan.threads.iter().zip(ended) {
        let (job, Some(trail)) = (&jobs[thread.job], end.generator.trail()) else { continue };
        let name = |&target: &usize| plan.targets[target].clone().unwrap_or_else(|| "device".to_owned());
        let targets: Vec<String> = thread.targets.iter().map(name).collect();
        for file in log_files(job, thread) {
            let mut out = BufWriter::new(File::create(&file.name).with_context(|| cannot(&file.name, job))?);
            write_log(file.kind, job, &targets, trail, &mut out).and_then(|()| out.flush()).with_context(|| cannot(&file.name, job))?;
        }
        if trail.lost > 0 {
            say(format_args!("note: job '{}': {} samples found no room in its logs; log_avg_msec=1000 needs less", job.name, trail.lost));
        }
    }
    Ok(())
}
