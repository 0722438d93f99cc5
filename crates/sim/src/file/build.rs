//! Converts the keys of a file to a checked [`Scenario`]: applies defaults, resolves names and
//! rejects inconsistent values, each error with its line and column.

use std::collections::BTreeSet;
use std::ops::Range;

use completion::Mode;
use driver::RecoveryConfig;
use driver::multipath::FailoverConfig;
use emu::{Change, Profile, Script, ScriptError};
use serde::de::DeserializeOwned;
use toml::Spanned;
use units::Nanos;
use workload::fio::{self, Diagnostic, Environment, Input, ParseErrors};
use workload::{Generator, Job, TargetSize, plan};

use super::raw::{self, NameOr, OptionValue};
use super::{FileError, Source};
use crate::costs::{COSTS, costs_of};
use crate::{
    Costs, DepthCounter, DeviceSpec, HostStack, JobSpec, Machine, Multipath, Scenario, Softirq,
    Spin,
};

/// Measured time if neither the file nor its jobs say when the jobs end.
const DURATION: Nanos = Nanos::from_millis(50);

/// Maximum number of seeds of a file.
const MAX_SEEDS: u32 = 10_000;

type Built<T> = Result<T, FileError>;

/// Maximum number of I/Os of a thread, which takes hours to simulate.
const MAX_IOS: u64 = 10_000_000_000;

/// Maximum length of a file in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A scenario file: what is simulated, in which modes, and with how many seeds.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    /// What the scenario shows, in one line.
    pub title: String,
    /// The scenario, with the first mode and the first seed.
    pub scenario: Scenario,
    /// The modes to compare; empty: all.
    pub modes: Vec<Mode>,
    /// What a spinning thread does while other threads are runnable, for the modes that spin: each
    /// value is compared. `scenario` has the first value.
    pub spins: Vec<Spin>,
    /// Number of seeds, from the scenario's seed on: s, s + 1, …
    pub seeds: u32,
    /// Warnings about the jobs.
    pub warnings: Vec<String>,
}

/// Reads the tables of a text.
pub(super) fn parse<T: DeserializeOwned>(source: Source<'_>) -> Result<T, FileError> {
    if source.text.len() > MAX_BYTES {
        return Err(source.error(None, format!("a scenario has at most {} MiB", MAX_BYTES >> 20)));
    }
    toml::from_str(source.text).map_err(|error| source.toml(&error))
}

/// The scenario of a file.
pub(super) fn scenario(
    source: Source<'_>,
    file: raw::File,
    env: &dyn Environment,
) -> Built<ScenarioFile> {
    let machine_at = file.machine.as_ref().map(Spanned::span);
    let machine = machine(source, file.machine.map(Spanned::into_inner).unwrap_or_default(), env)?;
    machine.check().map_err(|error| source.error(machine_at, error.to_string()))?;
    let host = file.host;
    let (devices, device_places) = devices(source, file.devices)?;
    let mut warnings = Vec::new();
    let (mut jobs, mut places) = (Vec::new(), Vec::new());
    for job in file.jobs {
        let (place, span) =
            (Jobs { source, machine: &machine, host, devices: &devices, env }, job.span());
        jobs.extend(place.read(job, &mut warnings)?);
        places.resize(jobs.len(), span);
    }
    if jobs.is_empty() {
        return Err(source
            .error(None, "there is no job")
            .help("add a table [[job]] with fio = \"\"\"…\"\"\", file = \"…\" or options = {…}"));
    }
    let ios = match &file.ios {
        Some(ios) if ios.get_ref().get() > MAX_IOS => {
            let error = source.error(
                Some(ios.span()),
                format!("{} I/Os of each thread: a run has at most {MAX_IOS}", ios.get_ref()),
            );
            return Err(error.help("`duration` ends a run after a time"));
        }
        ios => ios.as_ref().map(|ios| ios.get_ref().get()),
    };
    for spec in &mut jobs {
        end(&mut spec.job, file.duration, file.ramp, ios);
    }
    let mut modes: Vec<Mode> = Vec::new();
    for word in file.modes {
        let mode = word.get_ref().0;
        if modes.contains(&mode) {
            return Err(source.error(Some(word.span()), format!("`modes` names {mode} twice")));
        }
        modes.push(mode);
    }
    if let Some(price) = &file.latency_price {
        let error = source.error(
            Some(price.span()),
            "`latency_price` has been replaced by a parameter of the mode",
        );
        return Err(error.help("modes = [\"adaptive?delay-exponent=3\"]".to_owned()));
    }
    let seeds = match file.seeds {
        Some(seeds) if !(1..=MAX_SEEDS).contains(seeds.get_ref()) => {
            return Err(source.error(
                Some(seeds.span()),
                format!("{} seeds: there must be 1 to {MAX_SEEDS}", seeds.get_ref()),
            ));
        }
        seeds => seeds.map_or(1, Spanned::into_inner),
    };
    let script = script(source, &file.events, &devices, &jobs)?;
    let mut scenario = Scenario {
        machine,
        host,
        devices,
        jobs,
        mode: modes.first().copied().unwrap_or(Mode::INTERRUPT),
        recovery: script.as_ref().map(|(_, recovery)| *recovery),
        script: script.map(|(script, _)| script).unwrap_or_default(),
        switches: file.switches.into_iter().map(|switch| (switch.at, switch.mode.0)).collect(),
        ..Scenario::new(Mode::INTERRUPT, Profile::null(), Job::default())
    };
    let spins = file.poll.map_or_else(|| vec![scenario.spin], |spins| spins.0);
    scenario.spin = spins.first().copied().unwrap_or_default();
    scenario.seed = file.seed.unwrap_or(scenario.seed);
    scenario.limit = file.limit.unwrap_or(scenario.limit);
    for (device, at) in scenario.devices.iter().zip(device_places) {
        device.check(&scenario).map_err(|error| source.error(Some(at), error.to_string()))?;
    }
    warnings.extend(fit(source, &scenario, &places)?);
    let title = file.title.unwrap_or_else(|| source.name.to_owned());
    Ok(ScenarioFile { title, scenario, modes, spins, seeds, warnings })
}

/// The events of a file, and the time-outs that notice them. `None`: there are no events.
fn script(
    source: Source<'_>,
    events: &[raw::EventTable],
    devices: &[DeviceSpec],
    jobs: &[JobSpec],
) -> Built<Option<(Script, RecoveryConfig)>> {
    let mut script = Script::default();
    let mut keep_alive = Nanos::ZERO;
    for event in events {
        let name = event.device.get_ref();
        let path = device_number(source, devices, name, event.device.span().start)?;
        let uses_path = |job: &&JobSpec| {
            job.paths.is_some_and(|paths| paths.choice_only.is_none())
                && job.job.filenames.contains(name)
        };
        let Some(paths) = jobs.iter().find(uses_path).and_then(|job| job.paths) else {
            let error = source
                .error(Some(event.device.span()), format!("`{name}` is not a path of any job"));
            return Err(error.help(
                "add `paths = { policy = \"latency\" }` to a job that lists it in `devices`",
            ));
        };
        keep_alive = keep_alive.max(paths.keep_alive);
        let change =
            event.change.get_ref().parse().map_err(|wrong: ScriptError| {
                source.error(Some(event.change.span()), wrong.what)
            })?;
        let followed = matches!(
            change,
            Change::Ana { .. }
                | Change::Lost(_)
                | Change::Back
                | Change::Delay(_)
                | Change::Hold(_)
                | Change::Release
        );
        // The simulated host does not read the log pages that other changes need.
        if !followed {
            let error = source.error(
                Some(event.change.span()),
                format!("a simulated host does not follow `{change}`"),
            );
            return Err(error.help("it follows ana, lost, back, delay, hold and release; the embedded device's `script=` has the others"));
        }
        script = script.with(event.at, path, change);
    }
    Ok((!events.is_empty()).then(|| (script, Multipath::recovery(keep_alive))))
}

/// The number of the device with this name.
fn device_number(
    source: Source<'_>,
    devices: &[DeviceSpec],
    name: &str,
    at: usize,
) -> Built<usize> {
    let names = || devices.iter().map(|device| device.name.as_str());
    names().position(|known| known == name).ok_or_else(|| {
        let error = source.error(Some(at..at), format!("there is no device `{name}`"));
        error.nearest(
            name,
            names(),
            format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        )
    })
}

/// Checks every job against its devices. Returns warnings about where its threads run.
fn fit(source: Source<'_>, scenario: &Scenario, places: &[Range<usize>]) -> Built<Vec<String>> {
    let jobs: Vec<Job> = scenario.jobs.iter().map(|spec| spec.job.clone()).collect();
    let cpus: Vec<u32> = (0..scenario.machine.cpus as u32).collect();
    let plan = plan::plan(&jobs, &cpus);
    for ((spec, at), n) in scenario.jobs.iter().zip(places).zip(0..) {
        let unfit =
            |error: &dyn std::fmt::Display| source.error(Some(at.clone()), error.to_string());
        scenario.check_job(spec).map_err(|error| unfit(&error))?;
        let Some(thread) = plan.threads.iter().find(|thread| thread.job == n) else { continue };
        let names = &spec.job.filenames;
        let named = |device: &&DeviceSpec| names.is_empty() || names.contains(&device.name);
        let mut devices: Vec<&DeviceSpec> = scenario.devices.iter().filter(named).collect();
        if names.is_empty() || spec.paths.is_some() {
            // A job without names uses the first device. Devices that are paths are one target.
            devices.truncate(1);
        }
        let targets: Vec<TargetSize> = devices
            .iter()
            .map(|device| TargetSize {
                bytes: device.bytes,
                block: DeviceSpec::BLOCK,
                size_at_setup: None,
            })
            .collect();
        Generator::new(&spec.job, thread.id(scenario.seed), &targets)
            .map_err(|misfit| unfit(&misfit))?;
    }
    Ok(plan.warnings)
}

/// Sets when a job ends, and its ramp.
fn end(job: &mut Job, duration: Option<Nanos>, ramp: Option<Nanos>, ios: Option<u64>) {
    if let Some(ios) = ios {
        // The number of I/Os alone ends the job, whatever the size of the device.
        (job.number_ios, job.io_size) = (Some(ios), Some(workload::Amount::Bytes(u64::MAX)));
        (job.runtime, job.time_based) = (duration, false);
    } else if duration.is_some() || (job.runtime.is_none() && job.number_ios.is_none()) {
        (job.runtime, job.time_based) = (Some(duration.unwrap_or(DURATION)), true);
    }
    if let Some(ramp) = ramp {
        job.ramp_time = ramp;
    }
}

fn machine(source: Source<'_>, raw: raw::MachineTable, env: &dyn Environment) -> Built<Machine> {
    let mut machine = Machine::default();
    if let Some(list) = &raw.costs {
        machine.costs = match list.get_ref() {
            // A price list in a file of its own, as `reap calibrate` writes.
            NameOr::Name(path) if path.ends_with(".toml") => {
                let found = env.include(source.name, path);
                let (name, text) = found.map_err(|what| {
                    source.error(Some(list.span()), format!("the price list `{path}`: {what}"))
                })?;
                super::read_costs(&name, &String::from_utf8_lossy(&text))?
            }
            NameOr::Name(name) => base(source, name, list.span())?,
            NameOr::Table(table) => costs(source, table)?,
        };
    }
    let raw::MachineTable { posted, scheduler, softirq, interrupts, .. } = raw;
    let moved =
        [("weight", &softirq.weight), ("budget", &softirq.budget), ("time", &softirq.time_limit)];
    if let Some((key, value)) =
        moved.into_iter().find_map(|(key, value)| Some((key, value.as_ref()?)))
    {
        let error = source
            .error(Some(value.span()), format!("the {key} of a poll is a parameter of the mode"));
        return Err(error.help(format!(
            "modes = [\"irq-poll?{key}={}\"]",
            value.get_ref().to_string().trim_matches('"')
        )));
    }
    let softirq = Softirq { restarts: softirq.restarts.unwrap_or(machine.softirq.restarts) };
    let (cpus, nodes) = (raw.cpus.unwrap_or(machine.cpus), raw.nodes.unwrap_or(machine.nodes));
    Ok(Machine { cpus, nodes, posted, scheduler, softirq, interrupts, hogs: raw.hogs.0, ..machine })
}

/// The price list of this name.
fn base(source: Source<'_>, name: &str, at: Range<usize>) -> Built<Costs> {
    let names = || COSTS.iter().map(|(name, _)| *name);
    costs_of(name).ok_or_else(|| {
        let error = source.error(Some(at), format!("there is no price list `{name}`"));
        error.nearest(name, names(), format!("known: {}", names().collect::<Vec<_>>().join(", ")))
    })
}

/// Applies changes to a price list. The list is serialized as a table and read back, so that the
/// names of its fields are listed only once.
pub(super) fn costs(source: Source<'_>, raw: &raw::CostTable) -> Built<Costs> {
    let percent = raw.percent.as_ref().map_or(100, |percent| *percent.get_ref());
    if !(1..=100_000).contains(&percent) {
        let at = raw.percent.as_ref().map(Spanned::span);
        return Err(source.error(
            at,
            format!("{percent} percent of the list's prices: it has to be 1 to 100000"),
        ));
    }
    let base = raw
        .base
        .as_ref()
        .map_or(Ok(Costs::BARE_METAL), |name| base(source, name.get_ref(), name.span()))?;
    let broken = |error: &dyn std::error::Error| source.error(None, error.to_string());
    let mut table =
        toml::Table::try_from(base.at_percent(percent)).map_err(|error| broken(&error))?;
    let groups = [
        ("interrupt", &raw.interrupt),
        ("thread", &raw.thread),
        ("memory", &raw.memory),
        ("library", &raw.library),
        ("block", &raw.block),
        ("libaio", &raw.libaio),
        ("io_uring", &raw.io_uring),
        ("wake_up", &raw.wake_up),
    ];
    for (group, prices) in groups {
        let Some(toml::Value::Table(known)) = table.get_mut(group) else { continue };
        for (name, price) in prices {
            let Some(slot) = known.get_mut(name.get_ref()) else {
                let error = source.error(
                    Some(name.span()),
                    format!("there is no price `{group}.{}`", name.get_ref()),
                );
                let all = known.keys().cloned().collect::<Vec<_>>().join(", ");
                return Err(error.nearest(name.get_ref(), known.keys().map(String::as_str), all));
            };
            // At most a second each, so that sums of prices cannot overflow.
            let limit = 1_000_000_000;
            if *price.get_ref() > limit {
                return Err(source.error(
                    Some(price.span()),
                    format!(
                        "{} ns: a price is {limit} ns at most",
                        price.get_ref().to_string().trim_matches('"')
                    ),
                ));
            }
            *slot = toml::Value::Integer(*price.get_ref() as i64);
        }
    }
    table.try_into().map_err(|error| broken(&error))
}

/// The devices, and the place of each in the file.
fn devices(
    source: Source<'_>,
    raw: Vec<Spanned<raw::DeviceTable>>,
) -> Built<(Vec<DeviceSpec>, Vec<Range<usize>>)> {
    let (mut devices, mut places): (Vec<DeviceSpec>, _) = (Vec::new(), Vec::new());
    for (at, spanned) in raw.into_iter().enumerate() {
        let span = spanned.span();
        let mut raw = spanned.into_inner();
        let (name, count) = (raw.name.take().unwrap_or_else(|| format!("nvme{at}")), raw.count);
        // Checked before the devices are made: the count comes from the file.
        if count == Some(0)
            || devices.len().saturating_add(count.unwrap_or(1)) > Scenario::MAX_DEVICES
        {
            return Err(source.error(
                Some(span),
                format!("a scenario has 1 to {} devices", Scenario::MAX_DEVICES),
            ));
        }
        let device = device(source, &name, raw)?;
        for n in 0..count.unwrap_or(1) {
            let name = if count.is_some() { format!("{name}{n}") } else { name.clone() };
            devices.push(DeviceSpec { name, ..device.clone() });
            places.push(span.clone());
        }
    }
    if devices.is_empty() {
        return Err(source
            .error(None, "there is no device")
            .help("add a table [[device]] with profile = \"optane\""));
    }
    Ok((devices, places))
}

fn device(source: Source<'_>, name: &str, raw: raw::DeviceTable) -> Built<DeviceSpec> {
    let at = raw.profile.span();
    let profile = match raw.profile.into_inner() {
        NameOr::Table(profile) => Profile { name: "own profile".into(), ..profile },
        NameOr::Name(name) => name.parse().map_err(|_| {
            let error = source.error(Some(at), format!("there is no profile `{name}`"));
            error.nearest(
                &name,
                Profile::NAMES.into_iter(),
                format!("known: {}", Profile::NAMES.join(", ")),
            )
        })?,
    };
    let mut device =
        DeviceSpec { masks: raw.masks != Some(false), ..DeviceSpec::new(name, profile) }
            .with_queues(raw.queues);
    if let Some(vectors) = raw.vectors {
        // The admin queue needs one more vector.
        device.config.vectors = vectors.saturating_add(1);
    }
    device.bytes = raw.bytes.map_or(device.bytes, |bytes| bytes.0);
    device.tags = raw.tags.unwrap_or(device.tags);
    (device.affinity, device.in_process, device.inside) =
        (raw.affinity, raw.in_process, raw.inside);
    Ok(device)
}

/// What jobs refer to.
struct Jobs<'a> {
    source: Source<'a>,
    machine: &'a Machine,
    host: HostStack,
    devices: &'a [DeviceSpec],
    env: &'a dyn Environment,
}

impl Jobs<'_> {
    fn read(
        &self,
        spanned: Spanned<raw::JobTable>,
        warnings: &mut Vec<String>,
    ) -> Built<Vec<JobSpec>> {
        let span = spanned.span();
        let raw = spanned.into_inner();
        let mut jobs = self.jobs(&raw, span.start, warnings)?;
        // The user host has no system-call interface, so the option has no effect there.
        if self.host == HostStack::Kernel && raw.engine.is_none() {
            warnings.extend(jobs.iter().filter_map(|job| self.other_engine(job, span.start)));
        }
        // Names are checked here, where their place in the file is known.
        let named = match &raw.devices {
            Some(names) if names.is_empty() => {
                return Err(self
                    .source
                    .error(Some(span), "`devices` is empty")
                    .help("leave it out to use the first device"));
            }
            Some(names) => Some(
                names
                    .iter()
                    .map(|name| self.device(name.get_ref(), name.span().start))
                    .collect::<Built<Vec<String>>>()?,
            ),
            None => None,
        };
        for job in &mut jobs {
            match &named {
                Some(names) => job.filenames.clone_from(names),
                None => job
                    .filenames
                    .iter()
                    .try_for_each(|name| self.device(name, span.start).map(drop))?,
            }
            if let Some(list) = &raw.cpus {
                let allowed: BTreeSet<u32> =
                    list.get_ref().0.iter().map(|&cpu| cpu as u32).collect();
                if allowed.last().is_none_or(|&last| last as usize >= self.machine.cpus) {
                    let error = self.source.error(
                        Some(list.span()),
                        format!("the machine has CPUs 0 to {}", self.machine.cpus - 1),
                    );
                    return Err(error.help("set cpus under [machine]"));
                }
                (job.cpus_allowed, job.cpus_split) = (Some(allowed.into_iter().collect()), false);
            }
        }
        let spec = |job: Job| {
            let paths = raw.paths.as_ref().map(|paths| self.multipath(paths, &job));
            let (think, work, phases, queues) =
                (raw.think, raw.work, raw.phases.clone(), raw.queues);
            let spec = JobSpec { think, work, phases, paths, queues, ..JobSpec::new(job) };
            JobSpec { engine: raw.engine.unwrap_or(spec.engine), ..spec }
        };
        Ok(jobs.into_iter().map(spec).collect())
    }

    /// The warning for a job whose ioengine is not simulated.
    fn other_engine(&self, job: &Job, at: usize) -> Option<String> {
        let other =
            job.engine.name.as_deref().filter(|name| !["libaio", "io_uring"].contains(name))?;
        let (line, column) = self.source.place(at);
        let (file, name) = (self.source.name, &job.name);
        Some(format!(
            "{file}:{line}:{column}: job '{name}': ioengine={other} is not simulated, io_uring is used instead (key `engine`)"
        ))
    }

    fn multipath(&self, raw: &raw::MultipathTable, job: &Job) -> Multipath {
        let paths = raw.count.unwrap_or(job.filenames.len().try_into().unwrap_or(u8::MAX));
        let usual = Multipath::over(paths, raw.policy.0);
        // Limits of the file replace the library's defaults one by one.
        let failover = FailoverConfig {
            no_path_limit: raw.no_path_limit.unwrap_or(usual.failover.no_path_limit),
            no_path_timeout: raw.no_path_timeout.unwrap_or(usual.failover.no_path_timeout),
            held_timeout: raw.held_timeout.unwrap_or(usual.failover.held_timeout),
            unsafe_fast_failover: raw.unsafe_fast_failover,
            ..usual.failover
        };
        let keep_alive = raw.keep_alive.unwrap_or(usual.keep_alive);
        let queues = raw.queues.unwrap_or(self.machine.cpus as u16);
        let choice_only = raw.count.map(|_| raw.counter.unwrap_or(DepthCounter::Controller));
        Multipath { queues, choice_only, failover, keep_alive, ..usual }
    }

    /// The name of a device, if it exists.
    fn device(&self, name: &str, at: usize) -> Built<String> {
        device_number(self.source, self.devices, name, at).map(|_| name.to_owned())
    }

    fn jobs(&self, raw: &raw::JobTable, at: usize, warnings: &mut Vec<String>) -> Built<Vec<Job>> {
        // For each line of the text, where its name and its value are in the file.
        let mut places = Vec::new();
        let (name, text) = match (&raw.fio, &raw.file, &raw.options) {
            (Some(fio), None, None) => {
                (self.source.name.to_owned(), self.in_place(fio).into_bytes())
            }
            (None, Some(file), None) => {
                let found = self.env.include(self.source.name, file.get_ref());
                found.map_err(|why| {
                    self.source.error(
                        Some(file.span()),
                        format!("the job file `{}`: {why}", file.get_ref()),
                    )
                })?
            }
            (None, None, Some(options)) => {
                (self.source.name.to_owned(), self.listed(options, &mut places)?.into_bytes())
            }
            _ => {
                let error = self
                    .source
                    .error(Some(at..at), "a job has exactly one of the keys `fio` (text of a job file), `file` (its path) and `options` (a table)");
                return Err(error);
            }
        };
        let placed = |mut message: Diagnostic| {
            if let Some(location) = &mut message.location
                && let Some(&(name, value)) = places.get(location.line as usize - 1)
            {
                let (line, column) =
                    self.source.place(if location.column == 1 { name } else { value });
                (location.line, location.column) = (line as u32, column as u32);
            }
            message
        };
        let parsed =
            fio::parse(&[Input { name: &name, text: &text }], self.env).map_err(|errors| {
                FileError::job(&ParseErrors(errors.0.into_iter().map(placed).collect()))
            })?;
        warnings.extend(parsed.warnings.into_iter().map(|warning| placed(warning).to_string()));
        Ok(parsed.jobs)
    }

    /// The text of a string, preceded by empty lines, so that its line numbers are those of the
    /// file.
    fn in_place(&self, text: &Spanned<String>) -> String {
        let (line, _) = self.source.place(text.span().start);
        let quoted = self.source.text.get(text.span()).unwrap_or_default();
        let opening = ["\"\"\"", "'''"].iter().find_map(|quotes| quoted.strip_prefix(quotes));
        let next = opening.is_some_and(|rest| rest.trim_start_matches('\r').starts_with('\n'));
        "\n".repeat(if next { line } else { line - 1 }) + text.get_ref()
    }

    /// A job file with one option per line, and the place of each line.
    fn listed(
        &self,
        options: &Spanned<raw::Options>,
        places: &mut Vec<(usize, usize)>,
    ) -> Built<String> {
        let mut text = "[job]".to_owned();
        places.push((options.span().start, options.span().start));
        for (key, value) in options.get_ref() {
            let (name, OptionValue(words)) = (key.get_ref(), value.get_ref());
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(self
                    .source
                    .error(Some(key.span()), format!("`{name}` is not the name of a fio option")));
            }
            text += &format!("\n{name}={words}");
            places.push((key.span().start, value.span().start));
        }
        Ok(text)
    }
}
