//! Simulator runs that reproduce figures published in posts to mailing lists. [`super::LEGEND`]
//! lists the posts, 000 to 004; each scenario file describes its post.

use completion::Mode;
use workload::fio::{Environment, Nothing};
use workload::{BlockSizes, PerOp, Rate};

use sim::file::{self, FileError};
use sim::{DeviceSpec, JobSpec, Scenario};

/// A run of a scenario, as the post varied it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name by which rows refer to the case.
    pub name: &'static str,
    /// The scenario file in `scenarios/`.
    pub file: &'static str,
    /// The completion mode.
    pub mode: &'static str,
    /// Changes the scenario as the post did, besides the mode.
    pub change: fn(&mut Scenario),
}

/// The scenario files.
pub(super) const FILES: [(&str, &str); 7] = [
    ("post-000.toml", include_str!("../../../../scenarios/post-000.toml")),
    ("post-001.toml", include_str!("../../../../scenarios/post-001.toml")),
    ("post-001-fast.toml", include_str!("../../../../scenarios/post-001-fast.toml")),
    ("post-002.toml", include_str!("../../../../scenarios/post-002.toml")),
    ("post-003-uring.toml", include_str!("../../../../scenarios/post-003-uring.toml")),
    ("post-003-libaio.toml", include_str!("../../../../scenarios/post-003-libaio.toml")),
    ("post-004.toml", include_str!("../../../../scenarios/post-004.toml")),
];

const fn case(
    name: &'static str,
    file: &'static str,
    mode: &'static str,
    change: fn(&mut Scenario),
) -> Case {
    Case { name, file, mode, change }
}

const FAST: &str = "post-001-fast.toml";
const URING: &str = "post-003-uring.toml";
const LIBAIO: &str = "post-003-libaio.toml";

/// All cases.
pub const CASES: &[Case] = &[
    // A drive that coalesces interrupts; `check`: the patch, which polls after each doorbell.
    case("000.irq", "post-000.toml", "interrupt", as_it_is),
    case("000.irq.110k", "post-000.toml", "interrupt", |s| rate(s, 110_000)),
    case("000.check", "post-000.toml", "interrupt+submit-check", as_it_is),
    // blk-iopoll off and on, by block size; `fast`: the post's second machine.
    case("001.off.512", "post-001.toml", "threaded", as_it_is),
    case("001.off.4096", "post-001.toml", "threaded", |s| block(s, 4096)),
    case("001.on.512", "post-001.toml", "irq-poll", as_it_is),
    case("001.on.4096", "post-001.toml", "irq-poll", |s| block(s, 4096)),
    case("001.fast.off", FAST, "threaded", as_it_is),
    case("001.fast.on", FAST, "irq-poll", as_it_is),
    // irq_poll with one queue, five queues, and queue depth 1024.
    case("002.one", "post-002.toml", "irq-poll", as_it_is),
    case("002.five", "post-002.toml", "irq-poll", five_queues),
    case("002.deep", "post-002.toml", "irq-poll", deep),
    // Posted MSI: `u4` and `u5` are io_uring on four and five drives, `l4` is libaio on four.
    case("003.u4.polled", URING, "poll", as_it_is),
    case("003.u4.irq", URING, "interrupt", as_it_is),
    case("003.u4.posted", URING, "posted", as_it_is),
    case("003.u5.polled", URING, "poll", another_drive),
    case("003.u5.irq", URING, "interrupt", another_drive),
    case("003.u5.posted", URING, "posted", another_drive),
    case("003.l4.irq", LIBAIO, "interrupt", as_it_is),
    case("003.l4.posted", LIBAIO, "posted", as_it_is),
    // Multipath policy `queue-depth`: the sum of a counter per hardware queue, and one counter.
    case("004.sum", "post-004.toml", "interrupt", as_it_is),
    case("004.atomic", "post-004.toml", "interrupt", counter_per_controller),
];

impl Case {
    /// The scenario of the case.
    ///
    /// # Errors
    /// Never for [`CASES`]: tests read them all.
    pub fn scenario(&self) -> Result<Scenario, FileError> {
        scenario(self.file).map(|scenario| self.apply_to(scenario))
    }

    /// Applies the case's mode and change to a scenario.
    pub(super) fn apply_to(&self, mut scenario: Scenario) -> Scenario {
        scenario.mode = self.mode.parse::<Mode>().unwrap_or(scenario.mode);
        (self.change)(&mut scenario);
        scenario
    }
}

/// A scenario by file name. The text is compiled in, so that the command works in any directory.
///
/// # Errors
/// Never for [`FILES`]: tests read them all.
pub fn scenario(name: &str) -> Result<Scenario, FileError> {
    let text = FILES.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    read(name, text)
}

/// Parses `text` as the contents of the file `name` in `scenarios/`.
pub(super) fn read(name: &str, text: &str) -> Result<Scenario, FileError> {
    Ok(file::read(&format!("scenarios/{name}"), text, &Shipped)?.scenario)
}

/// The job files that scenarios refer to.
struct Shipped;

impl Environment for Shipped {
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        const JOBS: [(&str, &str); 3] = [
            ("../jobs/post-000.fio", include_str!("../../../../jobs/post-000.fio")),
            ("../jobs/post-003.fio", include_str!("../../../../jobs/post-003.fio")),
            ("../jobs/post-004.fio", include_str!("../../../../jobs/post-004.fio")),
        ];
        let found = JOBS.iter().find(|(name, _)| *name == path);
        found
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
            .ok_or_else(|| Nothing.include(from, path).err().unwrap_or_default())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

fn as_it_is(_: &mut Scenario) {}

/// Sets a constant rate in I/Os per second.
fn rate(scenario: &mut Scenario, iops: u64) {
    for spec in &mut scenario.jobs {
        spec.job.rate = PerOp::all(Some(Rate::Iops(iops)));
    }
}

/// Sets the block size.
fn block(scenario: &mut Scenario, bytes: u64) {
    for spec in &mut scenario.jobs {
        spec.job.block = PerOp::all(BlockSizes::fixed(bytes));
    }
}

/// Adds a drive like the last one, with its own thread and CPU.
fn another_drive(scenario: &mut Scenario) {
    let cpu = scenario.devices.len();
    let (Some(device), Some(spec)) =
        (scenario.devices.last().cloned(), scenario.jobs.last().cloned())
    else {
        return;
    };
    let name = format!("optane{cpu}");
    let mut job = JobSpec { ..spec };
    job.job.filenames = vec![name.clone()];
    job.job.cpus_allowed = Some(vec![cpu as u32]);
    scenario.jobs.push(job);
    scenario.devices.push(DeviceSpec { name, ..device });
}

/// Five threads, each with a CPU and a queue; one CPU handles the interrupts of all queues.
fn five_queues(scenario: &mut Scenario) {
    for spec in &mut scenario.jobs {
        spec.job.numjobs = 5;
    }
}

/// Sets queue depth 1024.
fn deep(scenario: &mut Scenario) {
    for spec in &mut scenario.jobs {
        spec.job.iodepth = 1024;
    }
    for device in &mut scenario.devices {
        // A ring of n entries holds n - 1 commands.
        (device.tags, device.config.queue_entries) = (1023, 1024);
    }
}

/// Multipath policy `queue-depth` with one counter per controller.
fn counter_per_controller(scenario: &mut Scenario) {
    for paths in scenario.jobs.iter_mut().filter_map(|spec| spec.paths.as_mut()) {
        paths.choice_only = Some(sim::DepthCounter::Controller);
    }
}
