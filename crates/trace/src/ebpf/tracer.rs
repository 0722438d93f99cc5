//! Loads, attaches and reads the eBPF program. Only file descriptors of this process hold its
//! programs, maps and links (nothing is pinned), so the kernel removes them however the process
//! ends.

use super::layout::{
    self, Config, Globals, Hist, LINEAR_SLOTS, LOG2_SLOTS, LatencyKey, LineStats, QueueName,
    QueueStats,
};
use crate::Error;
use crate::counts::{Counts, Latency, LineCounts, LineCpuCounts, QueueCounts};
use crate::histogram::Histogram;
use crate::machine::Topology;
use crate::preflight;
use crate::settings::{Mode, Settings, usage};
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;
use zerocopy::{FromBytes, IntoBytes};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// Spare entries for lines and queues that appear during the run.
const SPARE: u32 = 64;
/// Maximum number of sampled requests in flight, in `latency`.
const REQUESTS: u32 = 1 << 16;
/// Maximum number of classes (device or queue, operation, size), in `latency`.
const CLASSES: u32 = 2048;

/// The disks and the interrupt lines that the settings select; an empty list selects all.
pub(super) fn selected(
    settings: &Settings,
    machine: &Topology,
) -> Result<(Vec<String>, Vec<u32>), Error> {
    let mut disks = Vec::new();
    for device in &settings.args.devices {
        disks.extend(machine.find_disk(device)?);
    }
    if disks.len() > layout::FILTERS {
        return usage(format!(
            "the selected devices have {} paths together; the limit is {}",
            disks.len(),
            layout::FILTERS
        ));
    }
    Ok((
        disks,
        settings.args.lines.iter().map(|line| machine.find_line(line)).collect::<Result<_, _>>()?,
    ))
}

/// The loaded and attached eBPF program.
pub(super) struct Tracer {
    object: Object,
    links: Vec<Link>,
    mode: Mode,
    per_queue: bool,
    max_lines: u32,
    began: Instant,
    /// The kernel's own interrupt counts at the start, to detect interrupts without a trace event.
    before: HashMap<u32, u64>,
}

impl Tracer {
    /// Loads and attaches the programs of the mode, then starts counting.
    pub(super) fn start(
        settings: &Settings,
        machine: &Topology,
        disks: &[String],
        lines: &[u32],
    ) -> Result<Tracer, Error> {
        // libbpf prints a long explanation of each failure, which is hidden: the returned error is
        // enough. `REAP_TRACE_LIBBPF=1` shows the explanations.
        if std::env::var_os("REAP_TRACE_LIBBPF").is_none() {
            libbpf_rs::set_print(None);
        }
        let known = machine.queue_lines();
        let queues: usize = machine.disks.iter().map(|disk| disk.queues.len()).sum();
        let mut filter = [[0; layout::DISK_NAME]; layout::FILTERS];
        filter.iter_mut().zip(disks).for_each(|(field, name)| *field = layout::padded_name(name));
        let config = Config {
            mode: Mode::ALL.iter().position(|&mode| mode == settings.mode).unwrap_or(0) as u32,
            freq: settings.freq,
            unit: if settings.args.milliseconds { 1_000_000 } else { 1_000 },
            per_queue: settings.args.queues.into(),
            // Slot 0 is unused.
            max_lines: 1 + known.len() as u32 + SPARE,
            max_queues: queues as u32 + SPARE,
            filters: disks.len() as u32,
            pad: 0,
            filter,
        };
        let object = load(settings.mode, &config, machine.irq_table_len())?;
        write_known_lines(&object, machine, &known, disks, lines)?;
        let mut links = Vec::new();
        // Attaching takes a while; nothing is counted until `set_counting`.
        for tracepoint in preflight::tracepoints(settings.mode) {
            let program = object.progs_mut().find(|program| {
                let section = program.section().to_str().unwrap_or_default();
                program.autoload() && section.rsplit('/').next() == Some(tracepoint)
            });
            let program =
                program.ok_or_else(|| refused(tracepoint, "the program is not in the object"))?;
            links.push(
                program
                    .attach()
                    .map_err(|error| refused(&format!("to attach to `{tracepoint}`"), error))?,
            );
        }
        set_counting(&object, true)?;
        let began = Instant::now();
        let before = known.iter().map(|(_, _, irq)| (*irq, machine.interrupts(*irq))).collect();
        Ok(Tracer {
            object,
            links,
            mode: settings.mode,
            per_queue: settings.args.queues,
            max_lines: config.max_lines,
            began,
            before,
        })
    }

    /// Reads all counters. With `last`, counting stops, open cycles are included, and the programs
    /// are detached.
    pub(super) fn read(&mut self, machine: &Topology, last: bool) -> Result<Counts, Error> {
        // The kernel's counts are read before ours: an interrupt in between is then counted by us
        // only, and not reported as lost.
        let kernel: HashMap<u32, u64> =
            self.before.keys().map(|&irq| (irq, machine.interrupts(irq))).collect();
        if last {
            set_counting(&self.object, false)?;
        }
        let time = self.began.elapsed();
        if last {
            // Detached after `time` was taken: detaching is slow, and nothing is counted any more.
            self.links.clear();
        }
        let bytes =
            lookup(&find_map(&self.object, ".data")?, &0u32.to_ne_bytes())?.unwrap_or_default();
        let globals = read::<Globals>(&bytes).ok_or_else(|| refused(".data", "too short"))?;
        let (queues, ids) = self.queues(&globals, last)?;
        let lines = self.lines(machine, globals.next_slot, last)?;
        let latencies = if self.mode == Mode::Latency { self.latencies(&ids)? } else { Vec::new() };
        let untraced = |line: &LineCounts| {
            let (before, now) = (self.before.get(&line.irq)?, kernel.get(&line.irq)?);
            Some(now.saturating_sub(*before).saturating_sub(line.interrupts))
        };
        let lost = [
            lines.iter().filter_map(untraced).sum(),
            self.skipped_program_runs(),
            globals.lost_lines,
            globals.lost_queues,
            globals.lost_starts,
            globals.lost_classes,
        ];
        Ok(Counts { time, lines, queues, latencies, lost })
    }

    fn lines(&self, machine: &Topology, slots: u32, last: bool) -> Result<Vec<LineCounts>, Error> {
        let mut found = Vec::new();
        if self.mode == Mode::Latency {
            return Ok(found);
        }
        let map = find_map(&self.object, "lines")?;
        for irq in 0..map.max_entries() {
            let state = self.value::<layout::BpfLine>("lines", &irq.to_ne_bytes())?;
            // A line that got its slot after `next_slot` was read is left to the next reading.
            let Some(state) =
                state.filter(|state| state.slot != 0 && state.slot < slots && state.ignored == 0)
            else {
                continue;
            };
            let mut line = LineCounts {
                irq,
                name: machine.line_name(irq),
                interrupts: state.seq,
                ..LineCounts::default()
            };
            match self.mode {
                Mode::Completions => {
                    line.per_interrupt =
                        self.histogram::<LINEAR_SLOTS, _>("hists", &state.slot.to_ne_bytes())?;
                    // Cycles that are still open at the end of the run count too.
                    for cycle in state.cycle.iter().filter(|cycle| last && cycle.sampled != 0) {
                        line.per_interrupt.record(cycle.count.into());
                    }
                }
                Mode::Delay => {
                    line.to_softirq = self
                        .histogram::<LINEAR_SLOTS, _>("hists", &(2 * state.slot).to_ne_bytes())?;
                    line.to_completion = self.histogram::<LINEAR_SLOTS, _>(
                        "hists",
                        &(2 * state.slot + 1).to_ne_bytes(),
                    )?;
                }
                Mode::Rate | Mode::Latency => {
                    let cpus = self
                        .per_cpu::<LineStats>("line_stats", &state.slot.to_ne_bytes())?
                        .into_iter();
                    line.per_cpu = cpus
                        .map(|on| LineCpuCounts {
                            interrupts: on.interrupts,
                            hard_ns: on.hard_ns,
                            soft_ns: on.soft_ns,
                        })
                        .collect();
                }
            }
            found.push(line);
        }
        Ok(found)
    }

    /// The queues seen so far, and the names of disks and hardware queues by kernel address.
    fn queues(
        &self,
        globals: &Globals,
        last: bool,
    ) -> Result<(Vec<QueueCounts>, HashMap<u64, String>), Error> {
        let (mut queues, mut ids) = (Vec::new(), HashMap::new());
        for index in 0..globals.next_queue.min(find_map(&self.object, "queues")?.max_entries()) {
            let key = index.to_ne_bytes();
            // hctx 0: not filled in yet, or a duplicate that lost the race to another CPU.
            let Some(state) = self
                .value::<layout::BpfQueue>("queues", &key)?
                .filter(|state| state.hctx != 0 && state.tracked != 0)
            else {
                continue;
            };
            let per_cpu = self.per_cpu::<QueueStats>("queue_stats", &key)?;
            let mut queue = QueueCounts {
                disk: layout::name(&state.name),
                number: state.number,
                polled: state.polled != 0,
                // Stored plus one, so that 0 means unknown.
                irq: state.irq.checked_sub(1),
                contexts: crate::counts::sum(per_cpu.iter().map(|on| on.contexts)),
                per_cpu: per_cpu.iter().map(|on| on.contexts.iter().sum()).collect(),
                ..QueueCounts::default()
            };
            // Histograms of lines come first in the map (two per line in `delay`), then those of
            // queues.
            let first = if self.mode == Mode::Delay { 2 * self.max_lines } else { self.max_lines };
            let key = (first + index).to_ne_bytes();
            match self.mode {
                Mode::Completions if self.per_queue => {
                    queue.per_interrupt = self.histogram::<LINEAR_SLOTS, _>("hists", &key)?;
                    if last && state.cycle_count > 0 {
                        queue.per_interrupt.record(state.cycle_count.into());
                    }
                }
                Mode::Delay if self.per_queue => {
                    queue.to_completion = self.histogram::<LINEAR_SLOTS, _>("hists", &key)?
                }
                _ => {}
            }
            ids.insert(state.disk, queue.disk.clone());
            ids.insert(state.hctx, queue.name());
            queues.push(queue);
        }
        queues.sort_by(|a, b| (&a.disk, a.number).cmp(&(&b.disk, b.number)));
        Ok((queues, ids))
    }

    fn latencies(&self, ids: &HashMap<u64, String>) -> Result<Vec<Latency>, Error> {
        let map = find_map(&self.object, "latencies")?;
        let mut found = Vec::new();
        for key in map.keys() {
            let Some(class) = read::<LatencyKey>(&key) else { continue };
            // No name: the class is of a disk that is not traced.
            let Some(name) = ids.get(&class.id) else { continue };
            let time = self.histogram::<LOG2_SLOTS, _>("latencies", &key)?;
            found.push(Latency { name: name.clone(), op: class.op, size: class.size, time });
        }
        found.sort_by(|a, b| (&a.name, a.op, a.size).cmp(&(&b.name, b.op, b.size)));
        Ok(found)
    }

    /// Runs that the kernel skipped because the program was already running on that CPU
    /// (`recursion_misses` in fdinfo).
    fn skipped_program_runs(&self) -> u64 {
        let of = |fd: i32| -> Option<u64> {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            info.lines()
                .find_map(|line| line.strip_prefix("recursion_misses:"))?
                .trim()
                .parse()
                .ok()
        };
        self.object
            .progs()
            .filter(|program| program.autoload())
            .filter_map(|program| of(program.as_fd().as_raw_fd()))
            .sum()
    }

    fn value<T: FromBytes>(&self, map: &str, key: &[u8]) -> Result<Option<T>, Error> {
        Ok(lookup(&find_map(&self.object, map)?, key)?.and_then(|bytes| read(&bytes)))
    }

    fn per_cpu<T: FromBytes>(&self, map: &str, key: &[u8]) -> Result<Vec<T>, Error> {
        let values = find_map(&self.object, map)?
            .lookup_percpu(key, MapFlags::ANY)
            .map_err(|error| refused(&format!("to read `{map}`"), error))?;
        Ok(values.unwrap_or_default().iter().filter_map(|bytes| read(bytes)).collect())
    }

    /// A per-CPU histogram of `SLOTS` slots, summed over all CPUs.
    fn histogram<const SLOTS: usize, const BUCKETS: usize>(
        &self,
        map: &str,
        key: &[u8],
    ) -> Result<Histogram<BUCKETS>, Error> {
        let mut all = Histogram::default();
        for on in self.per_cpu::<Hist<SLOTS>>(map, key)? {
            all.merge(&Histogram::from_parts(&on.slots, on.sum, on.max));
        }
        Ok(all)
    }
}

/// Opens the object, sets the sizes of its maps for this machine, and loads it: the kernel verifies
/// the programs of the mode.
fn load(mode: Mode, config: &Config, irqs: u32) -> Result<Object, Error> {
    // Copied, because libbpf needs ELF structures aligned, and `include_bytes` does not guarantee
    // that.
    let aligned = PROGRAM.to_vec();
    let mut object = ObjectBuilder::default()
        .open_memory(&aligned)
        .map_err(|error| refused("the object", error))?;
    // Programs of other modes are not loaded: the verifier would check them for nothing.
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(name.contains("latency") == (mode == Mode::Latency));
    }
    let tracing = mode != Mode::Latency;
    // A map cannot have zero entries: an unused map gets one.
    let when = |wanted: bool, size: u32| if wanted { size } else { 1 };
    let hists = match mode {
        Mode::Completions => config.max_lines,
        Mode::Delay => 2 * config.max_lines,
        Mode::Rate | Mode::Latency => 0,
    };
    let hists = hists + if config.per_queue != 0 { config.max_queues } else { 0 };
    let sizes = [
        ("lines", when(tracing, irqs)),
        ("queues", config.max_queues),
        ("queue_index", config.max_queues),
        ("known_lines", config.max_queues),
        ("line_stats", when(mode == Mode::Rate, config.max_lines)),
        ("queue_stats", config.max_queues),
        ("hists", when(tracing, hists.max(1))),
        ("starts", when(!tracing, REQUESTS)),
        ("latencies", when(!tracing, CLASSES)),
    ];
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata") {
            // Constants for the verifier, which drops the branches of other modes.
            map.set_initial_value(config.as_bytes())
                .map_err(|error| refused("its settings", error))?;
        }
        if let Some((_, size)) = sizes.iter().find(|(sized, _)| *sized == name) {
            map.set_max_entries(*size)
                .map_err(|error| refused(&format!("the size of `{name}`"), error))?;
        }
    }
    object.load().map_err(|error| refused("the programs", error))
}

/// Writes into the maps what is known of this machine's interrupt lines: the line of each hardware
/// queue, the lines of block devices, and which lines are not selected.
fn write_known_lines(
    object: &Object,
    machine: &Topology,
    known: &[(String, u32, u32)],
    disks: &[String],
    selected: &[u32],
) -> Result<(), Error> {
    let (names, lines) = (find_map(object, "known_lines")?, find_map(object, "lines")?);
    let update = |map: &Map<'_>, key: &[u8], value: &[u8]| {
        map.update(key, value, MapFlags::ANY)
            .map_err(|error| refused("what is known of the lines", error))
    };
    // Line slot 0 means "no slot".
    let mut slots = 1u32;
    let mut states: HashMap<u32, layout::BpfLine> = HashMap::new();
    for (disk, number, irq) in known {
        let key = QueueName { disk: layout::padded_name(disk), number: *number, pad: 0 };
        update(&names, key.as_bytes(), &irq.to_ne_bytes())?;
        let state = states.entry(*irq).or_default();
        if state.slot == 0 {
            state.slot = slots;
            slots += 1;
        }
        if !disks.is_empty() {
            // A line is traced if any disk on it is selected: disks may share a line.
            let wanted = known.iter().any(|(other, _, line)| line == irq && disks.contains(other));
            state.ignored = (!wanted).into();
        }
    }
    if !selected.is_empty() {
        for irq in 0..lines.max_entries() {
            // Only lines with handlers can interrupt; the other entries keep their default.
            let wanted = selected.contains(&irq);
            if wanted || machine.lines.contains_key(&irq) {
                states.entry(irq).or_default().ignored = (!wanted).into();
            }
        }
    }
    // In `latency` the map has a single, unused entry.
    if lines.max_entries() > 1 {
        for (irq, state) in &states {
            if *irq < lines.max_entries() {
                update(&lines, &irq.to_ne_bytes(), state.as_bytes())?;
            }
        }
    }
    let data = find_map(object, ".data")?;
    let mut bytes = lookup(&data, &0u32.to_ne_bytes())?.unwrap_or_default();
    if let Ok((globals, _)) = Globals::mut_from_prefix(&mut bytes) {
        // The eBPF program assigns the following slots to lines that it discovers.
        globals.next_slot = slots;
    }
    update(&data, &0u32.to_ne_bytes(), &bytes)
}

/// Starts or stops counting, for all CPUs and all programs at once.
fn set_counting(object: &Object, on: bool) -> Result<(), Error> {
    let counting = find_map(object, ".data.switch")?;
    let value = u32::from(on).to_ne_bytes();
    counting
        .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(|error| refused("to switch the counting", error))
}

/// The map of this name, or of this ELF section if the name begins with a dot.
fn find_map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Error> {
    let is_it = |map: &Map<'_>| {
        map.name() == name || name.starts_with('.') && map.name().to_string_lossy().ends_with(name)
    };
    object.maps().find(is_it).ok_or_else(|| refused(name, "no such map"))
}

fn lookup(map: &Map<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    map.lookup(key, MapFlags::ANY)
        .map_err(|error| refused(&format!("to read `{}`", map.name().to_string_lossy()), error))
}

fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

fn refused(what: &str, why: impl std::fmt::Display) -> Error {
    Error::Kernel(format!("the kernel refused {what}: {why}"))
}
