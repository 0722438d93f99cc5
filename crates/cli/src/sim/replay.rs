//! `reap sim --replay`: the I/Os of fio's lists in place of a scenario's jobs; and price lists by name.

use std::path::{Path, PathBuf};

use ::sim::file::{self, ScenarioFile};
use ::sim::{Costs, JobSpec, Scenario};
use anyhow::{Context, Result, anyhow, bail};
use units::{Nanos, Op};
use workload::fio::read_iolog;
use workload::{Iolog, IologStep, Job};

use crate::calibrate;
use crate::jobs;

/// I/Os of a stream in flight at most: beyond them it is as late as the device is slow.
const DEPTH: u32 = 4096;

/// Puts the I/Os of `lists` in place of the jobs of `file`. Each file of a list is a thread with a device of its own, as far as the
/// scenario has devices, and issues its I/Os when the list says, whatever is in flight.
///
/// # Errors
/// A list that cannot be read, or has no time stamps.
pub fn replay(file: &mut ScenarioFile, lists: &[PathBuf]) -> Result<()> {
    let Scenario { devices, jobs, limit, .. } = &mut file.scenario;
    jobs.clear();
    let (mut files, mut ios, mut end) = (Vec::new(), 0, Nanos::ZERO);
    for path in lists {
        let name = path.display().to_string();
        let text = jobs::text(path).with_context(|| format!("list of I/Os {name}"))?;
        let list = read_iolog(&name, &text, false).map_err(|why| anyhow!("{why} (`write_iolog` of fio or `reap run` writes one)"))?;
        for (number, target) in (0..).zip(&list.files) {
            let mut steps = Vec::new();
            let mut bytes = 0;
            for step in &list.steps {
                let IologStep::Io { op, file, offset, len, at: Some(at) } = *step else {
                    bail!(
                        "{name} is a list of version 2, which does not say when its I/Os were issued; fio 3.31 and later write version 3"
                    );
                };
                if file != number {
                    continue;
                }
                steps.push(IologStep::Io { op, file: 0, offset, len, at: Some(at) });
                end = end.max(at);
                if op != Op::Flush {
                    bytes = offset.saturating_add(len).max(bytes);
                }
            }
            if steps.is_empty() {
                continue;
            }
            let at = files.iter().position(|known| known == target).unwrap_or_else(|| {
                files.push(target.clone());
                files.len() - 1
            });
            let at = at % devices.len();
            devices[at].bytes = devices[at].bytes.max(bytes);
            ios += steps.len();
            let depth = steps.len().min(DEPTH as usize) as u32;
            let filenames = vec![devices[at].name.clone()];
            let mut job =
                Job { name: target.clone(), filenames, iodepth: depth, batch_submit: depth, complete_max: depth, ..Job::default() };
            job.replays(Iolog { name: name.clone(), steps, files: vec![target.clone()] });
            jobs.push(JobSpec::new(job));
        }
    }
    *limit = (*limit).max(Nanos(end.0.saturating_mul(2)));
    let names: Vec<String> = lists.iter().map(|path| path.display().to_string()).collect();
    file.title = format!("{ios} I/Os of {} in {} threads, on: {}", names.join(", "), jobs.len(), file.title);
    Ok(())
}

/// The price list of this name, or in this file.
///
/// # Errors
/// There is no such list, or something is wrong with it.
pub fn costs(name: &str) -> Result<Costs> {
    if !name.ends_with(".toml") {
        let known: Vec<&str> = file::COSTS.iter().map(|(name, _)| *name).collect();
        let unknown = || anyhow!("there is no price list '{name}': {}, or a .toml file that `reap calibrate` wrote", known.join(", "));
        return file::costs_of(name).ok_or_else(unknown);
    }
    let text = jobs::text(Path::new(name)).with_context(|| format!("price list {name}"))?;
    let costs = file::read_costs(name, &String::from_utf8_lossy(&text))?;
    match calibrate::free(&costs) {
        Some(wrong) => bail!("price list {name}: {wrong}; run `reap calibrate` again while less else runs"),
        None => Ok(costs),
    }
}
