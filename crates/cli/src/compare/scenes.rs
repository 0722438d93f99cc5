//! What is to be compared: which scenes, how each is paced, on which devices, and how long all of it takes.

use anyhow::{Context, Result, anyhow, bail};
use reap::{DeviceUri, Nanos};
use workload::plan::Plan;
use workload::{Job, PerOp, Rate, RateProcess};

use super::design::{BLOCK, CAPACITY_EVERY, RAMP, STOLEN_BLOCKS};
use crate::args::{CompareArgs, once};
use crate::bench::Meant;
use crate::rows::Scene;

/// A scene, and how to make it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// As in the results.
    pub scene: Scene,
    /// The jobs with this scene's depth, without a rate of the scene's.
    pub jobs: Vec<Job>,
    /// I/Os arrive at random, at this share of the capacity in per cent. `None`: as the job says.
    pub load: Option<f64>,
}

impl Setting {
    /// The jobs at this scene's pace, where polling reaches `capacity` I/Os per second over all threads of `plan`.
    pub fn paced(&self, capacity: f64, plan: &Plan) -> Vec<Job> {
        let Some(load) = self.load else { return self.jobs.clone() };
        let each = capacity * load / 100.0 / plan.threads.len().max(1) as f64;
        self.jobs.iter().map(|job| pace(job, each)).collect()
    }

    /// Whether the device is never without I/Os that are asked for: no rate holds them back.
    pub fn is_closed(&self) -> bool {
        let free = |job: &Job| job.rate.read.is_none() && job.rate.write.is_none();
        self.load.is_none() && self.jobs.iter().all(free)
    }
}

/// `job` with `iops` random arrivals per second.
fn pace(job: &Job, iops: f64) -> Job {
    let read = match (job.pattern.reads(), job.pattern.writes()) {
        (true, true) => f64::from(job.read_percent.min(100)) / 100.0,
        (true, false) => 1.0,
        _ => 0.0,
    };
    // A rate is never 0: an operation that a mixed job has none of gets none from its pattern.
    let rate = |part: f64| Some(Rate::Iops((iops * part).round().max(1.0) as u64));
    let rate = PerOp { read: rate(read), write: rate(1.0 - read), trim: None };
    Job { rate, rate_process: RateProcess::Poisson, ..job.clone() }
}

/// Whether the command line asks for more than one scene.
pub fn is_sweep(args: &CompareArgs) -> bool {
    !args.loads.is_empty() || !args.qd.is_empty() || !args.profiles.is_empty() || args.background.is_some()
}

/// The devices for each profile.
///
/// # Errors
/// One that is no profile: it would be found when its turn came; or a device that has none.
pub fn profiles(args: &CompareArgs, meant: &Meant) -> Result<Vec<Meant>> {
    let given = match meant {
        _ if args.profiles.is_empty() => return Ok(vec![meant.clone()]),
        Meant::Name(uri) if meant.is_embedded() => uri,
        _ => bail!(
            "--profiles: a file or block device is as it is, only embedded devices have profiles; leave the option out, or say --device mem:SIZE"
        ),
    };
    once("--profiles", &args.profiles)?;
    let mut all = Vec::new();
    for profile in &args.profiles {
        let uri = with_profile(given, profile);
        let parsed = DeviceUri::behind(&uri).map_err(|error| anyhow!("--profiles {profile}: {}", error.what))?;
        parsed.load_profile().with_context(|| format!("--profiles {profile}"))?;
        all.push(Meant::Name(uri));
    }
    Ok(all)
}

/// The device with that profile; of several paths, each of them.
fn with_profile(uri: &str, profile: &str) -> String {
    if let Some(paths) = uri.strip_prefix("multipath:?") {
        let with = |pair: &str| match pair.strip_prefix("path=") {
            Some(path) => format!("path={}", with_profile(&path.replace("%26", "&"), profile).replace('&', "%26")),
            None => pair.to_owned(),
        };
        return format!("multipath:?{}", paths.split('&').map(with).collect::<Vec<_>>().join("&"));
    }
    let (base, parameters) = uri.split_once('?').unwrap_or((uri, ""));
    let others = parameters.split('&').filter(|parameter| !parameter.is_empty() && !parameter.starts_with("profile="));
    let own = format!("profile={profile}");
    format!("{base}?{}", others.chain([own.as_str()]).collect::<Vec<_>>().join("&"))
}

/// The jobs at the largest depth that will be run: what workers are made for.
pub fn deepest(args: &CompareArgs, jobs: &[Job]) -> Vec<Job> {
    args.qd.iter().max().map_or_else(|| jobs.to_vec(), |&depth| at_depth(jobs, depth))
}

fn at_depth(jobs: &[Job], depth: u32) -> Vec<Job> {
    jobs.iter().map(|job| Job { iodepth: depth, ..job.clone() }).collect()
}

/// The scenes on a device with `profile`.
///
/// # Errors
/// Options that cannot go together.
pub fn settings(args: &CompareArgs, jobs: &[Job], plan: &Plan, profile: &str) -> Result<Vec<Setting>> {
    once("--qd", &args.qd)?;
    let rated = jobs.iter().find(|job| job.rate.read.is_some() || job.rate.write.is_some());
    if let Some(job) = rated.filter(|_| !args.loads.is_empty()) {
        bail!("job '{}' has a rate of its own; --loads sets the rate: take it out of the job", job.name);
    }
    let depths: Vec<Option<u32>> = if args.qd.is_empty() { vec![None] } else { args.qd.iter().copied().map(Some).collect() };
    let backgrounds: Vec<Option<f64>> = std::iter::once(None).chain(args.background.map(|pct| Some(f64::from(pct)))).collect();
    once("--loads", &args.loads)?;
    let mut loads = if args.loads.is_empty() { vec![100.0] } else { args.loads.clone() };
    loads.sort_unstable_by(f64::total_cmp);
    let mut settings = Vec::new();
    for depth in depths {
        let jobs = depth.map_or_else(|| jobs.to_vec(), |depth| at_depth(jobs, depth));
        let qd = plan.threads.iter().map(|thread| u64::from(jobs[thread.job].iodepth)).sum();
        for &background_pct in &backgrounds {
            for &load_pct in &loads {
                let scene = Scene { load_pct, qd, profile: profile.to_owned(), background_pct, ..Scene::default() };
                settings.push(Setting { scene, jobs: jobs.clone(), load: Some(load_pct).filter(|load| *load < 100.0) });
            }
        }
    }
    Ok(settings)
}

/// How many blocks of how long the scenes of one device take, with `labels` (one of them the A/A) each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Blocks, as the progress line counts them.
    pub blocks: u64,
    /// How long they take.
    pub time: Nanos,
}

/// What a block takes beyond its length: threads are told, generators made, counters read.
const AROUND: Nanos = Nanos::from_millis(5);

impl Effort {
    /// Of `settings`, each in `repeat` rounds.
    pub fn of(settings: &[Setting], labels: usize, repeat: u64) -> Effort {
        let modes = labels as u64 - 1;
        let mut effort = Effort::default();
        for setting in settings {
            effort.add(repeat * labels as u64, BLOCK + RAMP);
            // What polling reaches, or how much of its CPU it gets.
            effort.time += Nanos((BLOCK + RAMP + AROUND).0 * repeat.div_ceil(CAPACITY_EVERY as u64));
            if setting.scene.background_pct.is_none() {
                effort.add(STOLEN_BLOCKS as u64 * (modes + 1), BLOCK);
            }
        }
        effort
    }

    fn add(&mut self, blocks: u64, each: Nanos) {
        self.blocks += blocks;
        self.time += Nanos((each + AROUND).0.saturating_mul(blocks));
    }
}

#[cfg(test)]
mod tests;
