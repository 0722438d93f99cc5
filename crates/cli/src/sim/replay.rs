//! `reap sim --replay`: what would the other modes have done?

use std::path::Path;
use std::sync::Arc;

use ::sim::file::{self, ScenarioFile};
use ::sim::{Costs, Scenario};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, json};
use workload::record::{Figures, Trace};

use crate::args::SimArgs;
use crate::calibrate::list;
use crate::jobs;
use crate::rows::Results;

/// What is said of a recording beside the rows.
pub struct Told {
    /// The run that was recorded.
    run: Option<Figures>,
    mode: String,
    costs: String,
    /// Some of the times are upper bounds.
    bounds: bool,
}

/// The recording of `args` as a scenario, and what there is to say of it.
///
/// # Errors
/// It cannot be read, or is damaged; a price list that there is not.
pub fn load(path: &Path, args: &SimArgs) -> Result<(ScenarioFile, Told)> {
    let bytes = hw::read_file(path, jobs::MOST_OWN_BYTES).with_context(|| format!("recording {}", path.display()))?;
    let trace = Arc::new(Trace::parse(bytes).with_context(|| format!("recording {}", path.display()))?);
    let header = trace.header();
    let stages = header.threads.iter().map(|thread| thread.stage + 1).max().unwrap_or(0);
    if stages == 0 {
        bail!("recording {}: no thread was recorded", path.display());
    }
    let stage = match args.stage {
        None if stages > 1 => bail!(
            "recording {} has {stages} stages (stonewall), one after the other: choose one with --stage 1 to {stages}",
            path.display()
        ),
        None => 1,
        Some(stage) if (1..=stages).contains(&stage) => stage,
        Some(stage) => bail!("--stage {stage}: recording {} has {stages}", path.display()),
    };
    let recorded = header.mode.parse().map_err(|error| anyhow!("recording {}: mode {}: {error}", path.display(), header.mode))?;
    let (name, costs) = match args.costs.as_deref() {
        None => ("vm", Costs::VIRTUAL),
        Some(name) => (name, costs(name)?),
    };
    let scenario = Scenario::replay(&trace, stage - 1, recorded)?.with_costs(costs);
    let threads = || header.threads.iter().enumerate().filter(|(_, thread)| thread.stage + 1 == stage);
    let submissions: u64 = threads().filter_map(|(number, _)| trace.end().submissions.get(number)).sum();
    let bounds = threads().any(|(number, _)| trace.submissions(number).any(|submission| submission.service.bound));
    // The run's figures are of all stages together.
    let told = Told { run: trace.end().run.filter(|_| stages == 1), mode: header.mode.clone(), costs: name.to_owned(), bounds };
    let mut warnings = Vec::new();
    if trace.end().stopped_early {
        warnings.push(format!("{}: the recording ended before the run did", path.display()));
    }
    let title = format!("replay of {}, {submissions} submissions recorded under {}", path.display(), header.mode);
    Ok((ScenarioFile { title, scenario, modes: Vec::new(), spins: Vec::new(), seeds: 1, warnings }, told))
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
    match list::free(&costs) {
        Some(wrong) => bail!("price list {name}: {wrong}; run `reap calibrate` again with less beside it"),
        None => Ok(costs),
    }
}

impl Told {
    /// Puts it below the table, and into the JSON.
    pub fn tell(&self, results: &mut Results) {
        results.extra.insert("costs".into(), self.costs.clone().into());
        let mut note = format!("Prices: {}. Service times from the recording; think time is CPU time here.", self.costs);
        if self.bounds {
            note += " Some of the times are upper bounds: the device could not be asked.";
        }
        results.notes.insert(0, note);
        let Some(run) = &self.run else { return };
        let iops = if run.wall_ns == 0 { 0.0 } else { run.ios as f64 * 1e9 / run.wall_ns as f64 };
        let mut recorded = Map::new();
        recorded.insert("mode".into(), self.mode.clone().into());
        recorded.insert("iops".into(), json!(iops));
        recorded.insert("run".into(), json!(run));
        results.extra.insert("recorded".into(), recorded.into());
        results.notes.insert(
            0,
            format!(
                "Recorded, for real: {}: {:.0} kIOPS, {:.0} ns CPU per I/O, p50 {:.1} µs, p99 {:.1} µs, {} wake-ups, {:.0} doorbells; recording included.",
                self.mode,
                iops / 1e3,
                run.cpu_ns_per_io,
                run.p50_ns as f64 / 1e3,
                run.p99_ns as f64 / 1e3,
                run.wakeups,
                run.sq_doorbells
            ),
        );
    }
}
