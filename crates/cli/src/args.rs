//! The command line: subcommands, options and help texts. Help is read on terminals of 80 columns
//! by people who know fio and nvme-cli.

mod values;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use completion::{Mode, Spin};
use hw::pci::Bdf;
use serde::Serialize;
use workload::fio;

use crate::bench::{self, Allowed};
use crate::rows;
use values::{address, load, percent, take_jobs, whole};
pub use values::{modes, once};

/// Runs fio jobs on a user-space NVMe stack, and compares completion modes
#[derive(Debug, Parser)]
#[command(name = "reap", version, arg_required_else_help = true, subcommand_required = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Subcommand,
}

const EXAMPLES: &str = "\
Examples:
  reap compare                      compare modes for 4 KiB random reads
  reap run job.fio                  run a fio job file
  reap sim scenarios/small.toml     compare modes on a simulated machine
  reap run --help                   all options of `reap run`

REAP_LOG sets the log level of messages on stderr, for example REAP_LOG=debug or REAP_LOG=warn,reap=debug [default: warn].";

impl Cli {
    /// Parses command-line words, the program's name first. A negative number is accepted as the
    /// value of an option, so that the option's own check reports what is wrong with it.
    pub fn parse_words(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().collect();
        let command_name =
            words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let negative = |arg: clap::Arg| {
            if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg }
        };
        // Help is as wide as the terminal, but at most 100 columns: longer lines are hard to read.
        let width = usize::from(rows::table::width()).min(100);
        let mut command = Cli::command()
            .mut_subcommands(|sub| sub.mut_args(negative).term_width(width))
            .term_width(width);
        let commands: Vec<String> =
            command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        // Sets the usage of subcommands to `reap run …`.
        command.build();
        let mut run = command.find_subcommand("run").cloned().unwrap_or_default();
        let mut jobs = None;
        // clap cannot parse fio's job options, whose order matters, so they are removed first.
        if command_name == "run" {
            let is_own_option = |name: &str| {
                name == "help" || run.get_arguments().any(|arg| arg.get_long() == Some(name))
            };
            let (left, taken) = take_jobs(words.split_off(2), is_own_option)
                .map_err(|why| run.clone().error(ErrorKind::ValueValidation, why))?;
            words.extend(left);
            jobs = taken;
        }
        let matches = command.try_get_matches_from_mut(words).map_err(|mut error| {
            // Without a similar name clap gives no tip at all.
            if error.kind() == ErrorKind::InvalidSubcommand
                && error.get(ContextKind::SuggestedSubcommand).is_none()
            {
                let tip = format!("the commands are {}", commands.join(", "));
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            }
            suggest(&mut error, &command, &command_name);
            error
        })?;
        let mut cli =
            Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if let Subcommand::Run(args) = &mut cli.command {
            // Options before the first --name are defaults for jobs, and not a job themselves.
            let has_job = jobs
                .iter()
                .flat_map(|text| text.lines())
                .any(|line| line.starts_with('[') && line != "[global]");
            if args.files.is_empty() && !has_job {
                let why = "there is no job; give a job file, or a job on the command line, for example --name=mine --rw=randread --bs=4k";
                return Err(run.error(ErrorKind::MissingRequiredArgument, why));
            }
            args.jobs = jobs;
        }
        Ok(cli)
    }
}

/// Adds a tip to the error for an unknown option: the subcommand that has the option, or a similar
/// name. The tip replaces that of clap, which names the nearest option of this command even if it
/// is not similar.
fn suggest(error: &mut clap::Error, all: &clap::Command, command: &str) {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return;
    };
    let Some(name) =
        word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name).to_owned())
    else {
        return;
    };
    error.remove(ContextKind::Suggested);
    // An option of earlier versions.
    if name == "latency-price" {
        let tip = "it was removed; give the mode a parameter instead, --completion or --modes 'adaptive?delay-exponent=N': adaptive minimises C · Lᴺ";
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return;
    }
    let similar = error.get(ContextKind::SuggestedArg).is_some();
    let has = |sub: &&clap::Command| sub.get_arguments().any(|arg| arg.get_long() == Some(&name));
    let others: Vec<String> =
        all.get_subcommands().filter(has).map(|sub| format!("`reap {}`", sub.get_name())).collect();
    let tip = if !others.is_empty() {
        format!("--{name} is an option of {}", others.join(", "))
    } else if command == "run" {
        if let Some(near) = fio::nearest_option(&name).filter(|_| !similar) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
        }
        return;
    } else if fio::option(&name).is_some() {
        // An fio option of exactly this name is a better tip than a similar option.
        let file = if command == "compare" { ": reap compare job.fio" } else { "" };
        format!("{name} is an option of fio jobs: give it to `reap run`, or in a job file{file}")
    } else {
        return;
    };
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The subcommands; each has a module of its name.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Run fio jobs, and print results as fio does
    Run(RunArgs),
    /// Run one job in several completion modes, and compare them
    Compare(CompareArgs),
    /// Compare completion modes on a simulated machine
    Sim(SimArgs),
    /// Measure the costs of this machine, for `reap sim --costs`
    Calibrate(CalibrateArgs),
    /// List NVMe controllers and block devices, and their users
    List(ListArgs),
    /// Show Identify data of a controller and its namespaces
    Id(IdArgs),
    /// Show the discovery log of an NVMe/TCP target
    Discover(DiscoverArgs),
    /// Check what this machine supports, and how to fix what is missing
    Doctor(DoctorArgs),
    /// Bind an NVMe drive to vfio-pci instead of nvme, to use it as pcie:BDF
    Bind(BindArgs),
    /// Bind a drive to the kernel's nvme driver again
    Unbind(UnbindArgs),
    /// Export an embedded controller over vfio-user or NVMe/TCP
    Serve(ServeArgs),
    /// Show the status of a server, or inject faults
    Ctl(CtlArgs),
    /// Measure completions in the kernel, for any block driver (eBPF)
    Trace(trace::cli::TraceArgs),
    /// Install manual pages, and shell completions for bash, zsh and fish
    Install(InstallArgs),
}

/// `reap bind`
#[derive(Args, Clone, Debug)]
pub struct BindArgs {
    /// PCI address of the drive, as in `lspci -D`: 0000:01:00.0. Fails if a namespace is in use
    pub bdf: Bdf,
    /// Allow this user, by name or UID, to use the drive without root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// `reap unbind`
#[derive(Args, Clone, Debug)]
pub struct UnbindArgs {
    /// PCI address of the drive
    pub bdf: Bdf,
}

/// `reap install`
#[derive(Args, Debug)]
#[command(after_help = INSTALL_EXAMPLES)]
pub struct InstallArgs {
    /// Installation prefix: manual pages go to PREFIX/share/man/man1
    #[arg(value_name = "PREFIX")]
    pub prefix: PathBuf,
}

const INSTALL_EXAMPLES: &str = "\
Examples:
  reap install ~/.local             for the current user
  sudo reap install /usr/local      for all users

Prints the name of each file. Existing files are replaced.
Exit status 0: success; 1: a file could not be written.";

/// The device that jobs run on.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// Device URI: kernel:PATH, kernel:, pcie:BDF, vfio-user:SOCKET, tcp://HOST/NQN, mem:SIZE,
    /// file:PATH or multipath: [default: the paths of the jobs' filename= and directory=, as in
    /// fio; if no job has one, mem:1G?profile=optane]
    ///
    /// Parameters follow a question mark and are separated by `&`.
    ///
    /// `kernel:PATH`: a file or block device, through io_uring. Parameters: size (creates the
    /// file), readonly, buffered, lba. `kernel:` without a path sets parameters for the paths of
    /// the jobs.
    ///
    /// `pcie:BDF`: a drive bound to vfio-pci (see `reap bind`). `vfio-user:SOCKET`: a controller of
    /// another process (`reap serve`, SPDK). Parameters: vectors, shadow, sgl; for vfio-user: also
    /// hugepages, trust. `tcp://HOST[:PORT]/NQN`: a controller over NVMe/TCP; parameters as in
    /// docs/tcp.md.
    ///
    /// `mem:SIZE`, `file:PATH`: a controller in this process. filename= of a job is then a name,
    /// not a path, and each name is a separate instance. Parameters: profile (null, optane, tlc,
    /// bimodal, cloud, or the path of a .toml file), lba (512 or 4096), namespaces, queues,
    /// vectors, entries, alloc, seed, sgl; for file: also size, which creates the file. {filename}
    /// in a path is replaced by the job's filename=, with _ for each / ? & and %.
    ///
    /// `multipath:?path=URI&path=URI`: controllers that share namespaces, all embedded, all
    /// vfio-user: or all tcp:. An `&` within a path is written %26; see docs/multipath.md.
    #[arg(long, value_name = "URI", value_parser = device)]
    pub device: Option<String>,
    /// Allow writes to block devices, drives, and other users' files; this DESTROYS THEIR DATA
    #[arg(long)]
    pub allow_writes: bool,
}

impl DeviceArgs {
    /// What jobs may write to.
    pub fn allowed(&self) -> Allowed {
        if self.allow_writes { Allowed::All } else { Allowed::Own }
    }
}

/// Checks that a device URI parses, and returns it as written, because `{filename}` in it is
/// replaced for each device.
fn device(text: &str) -> Result<String, String> {
    bench::check(text)
        .map(|()| text.to_owned())
        .map_err(|e| format!("column {}: {}", e.column, e.what))
}

/// Options for queues: how polling modes share a CPU, and how many hardware queues there are.
#[derive(Args, Clone, Copy, Debug)]
pub struct QueueArgs {
    /// What poll and hybrid-* do while other threads want the CPU: naps (sleep for 50 µs), yields
    /// (sched_yield between polls), or spins (poll until preempted)
    #[arg(long, value_name = "HOW", default_value_t = Spin::Naps)]
    pub poll: Spin,
    /// Hardware queues (SQ/CQ pairs) per device; job threads share them if there are fewer
    /// [default: one per job thread]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=64))]
    pub queues: Option<u16>,
}

/// `reap run`
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// fio job files; `-` for standard input
    #[arg(value_name = "JOBFILE")]
    pub files: Vec<PathBuf>,
    /// Jobs of the command line, as a job file
    #[arg(skip)]
    pub jobs: Option<String>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Completion mode: interrupt, threaded, irq-poll, posted (each also with +submit-check),
    /// hybrid-mean, hybrid-min, suspend, coalesce, dim, vic, poll, adaptive; on kernel: devices
    /// also kernel-iopoll, kernel-hybrid-iopoll, kernel-sqpoll [default: adaptive; on kernel:
    /// devices hipri and sqthread_poll of the jobs select the kernel's modes]
    ///
    /// Parameters follow a question mark and are separated by `&`. irq-poll: weight, completions
    /// per poll; budget, completions per round of polls; time, of a round (64, 256, 2ms). adaptive:
    /// delay-exponent, the n of C · Lⁿ that it minimises (C: CPU time, L: latency), a number or inf
    /// (3).
    #[arg(long, value_name = "MODE", value_parser = Mode::parse_any)]
    pub completion: Option<Mode>,
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Price list of `reap calibrate` on this machine, for the CPU cost of a wake-up that adaptive
    /// includes in what it minimises [default: depends on the kind of machine]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Also print histograms of completions per wake-up, and of the time from notification to poll
    #[arg(long)]
    pub histograms: bool,
    /// Run only the jobs with this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub section: Vec<String>,
    /// Fail if a job writes or trims
    #[arg(long)]
    pub readonly: bool,
    /// Check the job files and exit
    #[arg(long)]
    pub parse_only: bool,
    /// Format of the results
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Normal)]
    pub output_format: OutputFormat,
    /// Write the results to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  reap run job.fio
  reap run --name=mine --rw=randread --bs=4k --iodepth=32 --runtime=5 --time_based
  reap run job.fio --parse-only
  reap run job.fio --completion poll --device 'mem:4G?profile=tlc'
  reap run job.fio --completion 'irq-poll?weight=16&budget=64'
  reap run jobs/post-000.fio --device 'mem:64G?profile=cloud' --completion interrupt+submit-check
  reap run job.fio --queues 1 --output-format json --output results.json
  reap run job.fio --device kernel:/mnt/test.img?size=4G
  reap run job-with-filename.fio --device kernel:?buffered=yes

Options of job files may be given on the command line, as in fio: after --name they belong to that job, before it they are defaults \
for jobs of the command line and of the first job file. Jobs of the command line run first.
The first Ctrl-C waits for the I/Os in flight (without retries) and prints results; a second one exits at once.
Exit status 0: success; 1: bad input, a job failed, or a file could not be written; 130: Ctrl-C.";

/// How results are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// text, as fio prints it
    Normal,
    /// fio's JSON, with an additional object `reap` per job
    Json,
    /// the same with the histogram of each latency (`bins`)
    #[value(name = "json+")]
    JsonPlus,
}

/// `reap compare`
#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArgs {
    /// fio job file; without one, 4 KiB random reads at queue depth 32
    #[arg(value_name = "JOBFILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Completion modes to compare; the first is the baseline of all ratios. By default interrupt
    /// and irq-poll, each with and without +submit-check, hybrid-mean, poll, adaptive; at several
    /// loads or depths interrupt, irq-poll, hybrid-mean, suspend, poll, and adaptive with several
    /// delay exponents. On kernel: devices also kernel-iopoll, kernel-hybrid-iopoll and
    /// kernel-sqpoll. Parameters follow a question mark and are joined by `&`, as in
    /// 'irq-poll?weight=16&budget=64,adaptive?delay-exponent=1'
    #[arg(long, value_name = "MODE,…", value_delimiter = ',', value_parser = Mode::parse_any)]
    pub modes: Vec<Mode>,
    #[command(flatten)]
    pub queue: QueueArgs,
    /// CPUs for the job threads, for example 0-2,5 [default: for kernel: devices the CPU of the
    /// disk's interrupt, else of its queue, else any; for embedded devices all but the last, on
    /// which the device's thread runs]
    // By its path, so that clap does not take each CPU for a value of its own.
    #[arg(long, value_name = "LIST", value_parser = fio::cpus)]
    pub cpus: Option<std::vec::Vec<u32>>,
    /// Loads to compare at, in per cent of the maximum IOPS with mode poll; below 100 the arrival
    /// times of I/Os are random, and do not depend on completions
    #[arg(long, value_name = "PCT,…", value_delimiter = ',', value_parser = load)]
    pub loads: Vec<f64>,
    /// Queue depths to compare at, of each job thread [default: the job's iodepth]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = whole::<u32>(1..=4096))]
    pub qd: Vec<u32>,
    /// Compare without and with another thread that uses this share of each CPU of the job threads
    #[arg(long, value_name = "PCT", value_parser = percent::<u8>(1..=100))]
    pub background: Option<u8>,
    /// Pairs of measurements for each comparison; fewer than 30 make wide intervals
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1..=10_000))]
    pub repeat: u32,
    /// Nanoseconds of simulated application work after each completion, to saturate the CPU
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole::<u64>(0..=1_000_000_000))]
    pub host_work: u64,
    /// Price list of `reap calibrate` on this machine, for the CPU cost of a wake-up that no
    /// thread's CPU clock counts [default: depends on the kind of machine]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Show all columns: ratios, thread CPU, stolen time, messages, wake-ups, p99.9
    #[arg(long)]
    pub wide: bool,
    /// Also write the results to this file as JSON; `-` is the standard output, and the table is
    /// then written to stderr
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the results to this file as an HTML page with charts, which needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  reap compare
  reap compare job.fio --device 'mem:4G?profile=tlc' --modes interrupt,poll
  reap compare --device 'kernel:/mnt/test.img?size=4G'
  reap compare --host-work 2000 --modes interrupt,irq-poll
  reap compare --json results.json --html results.html
  reap compare --loads 1,5,10,25,50,75,90,100 --qd 1,4,32,128 --html loads.html
  reap compare --loads 5,50 --background 50 --modes interrupt,poll,adaptive

The modes run in short blocks, in random order on one open device; a figure is the median over blocks, with the 95 % interval \
of a bootstrap. The first mode runs twice in each round: how far it differs from itself is noise.
With several loads or depths the expected duration is printed first. The first Ctrl-C prints the results so far; \
a second one exits at once. Exit status 0: success; 1: bad input, an I/O failed, or a file could not be written; \
130: Ctrl-C.";

/// `reap sim`
#[derive(Args, Debug)]
#[command(after_help = SIM_EXAMPLES)]
pub struct SimArgs {
    /// Scenario file (TOML, see docs/simulator.md); without one, 4 KiB random reads at queue depth
    /// 32 on one CPU
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Completion modes to compare; the first is the baseline [default: those of the scenario, or
    /// one of each kind]
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    pub modes: Vec<Mode>,
    /// First seed [default: that of the scenario, or 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub seed: Option<u64>,
    /// Number of seeds; confidence intervals need six [default: that of the scenario, or 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=10_000))]
    pub seeds: Option<u32>,
    /// Replay an iolog of version 3 (write_iolog of fio or `reap run`) at its time stamps, instead
    /// of the scenario's jobs; may be repeated, and the logs are then replayed at the same time
    #[arg(long, value_name = "FILE")]
    pub replay: Vec<PathBuf>,
    /// Price list (the costs of the machine): bare-metal, vm, or a file of `reap calibrate`
    /// [default: that of the scenario]
    #[arg(long, value_name = "NAME|FILE")]
    pub costs: Option<String>,
    /// Show all columns, what the CPU time is spent on, and what policies decided
    #[arg(long)]
    pub wide: bool,
    /// Also write the results to this file as JSON; `-` is the standard output, and the table is
    /// then written to stderr
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the results to this file as an HTML page with charts, which needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const SIM_EXAMPLES: &str = "\
Examples:
  reap sim
  reap sim scenarios/common-case.toml
  reap sim scenarios/80-cpus.toml --modes interrupt,irq-poll,poll --json results.json
  reap sim --seed 7 --seeds 20 --modes interrupt,poll
  reap sim --replay run.log --costs here.toml --modes interrupt,poll,hybrid-mean

The same scenario and seed give the same results on any machine. Runs use all cores, one run per core.
The first Ctrl-C prints the results so far (complete rounds of all modes); a second one exits at once. \
Exit status 0: success; 1: bad input, or a run violated an invariant of the simulator (its seed is printed); 130: Ctrl-C.";

/// `reap calibrate`
#[derive(Args, Debug)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub struct CalibrateArgs {
    /// Length of the sleeps whose cost is measured, in microseconds. Give the device's latency to
    /// simulate queue depth 1, or 1 to simulate high queue depths: longer sleeps reach deeper idle
    /// states, which cost more
    #[arg(long, value_name = "US", default_value_t = 15, value_parser = whole::<u64>(1..=10_000))]
    pub sleep_us: u64,
    /// Write the costs, a price list, to this file (TOML)
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  reap calibrate
  reap calibrate --output here.toml
  reap sim --costs here.toml

Takes at most 20 seconds. Values are medians of 31 samples with 95 % confidence intervals; run it on an idle machine.
What cannot be measured from user space (interrupt handlers, the kernel's block layer) is taken from the built-in costs \
of a virtual machine, and marked.
Ctrl-C exits without results. Exit status 0: success; 1: interrupted, or a file could not be written.";

/// Output formats, with nvme-cli's option `-o` and the common `--json`.
#[derive(Args, Clone, Debug)]
pub struct LayoutArgs {
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", value_parser = ["normal", "json"], default_value = "normal")]
    output_format: String,
    /// Same as --output-format json
    #[arg(long)]
    json: bool,
}

impl LayoutArgs {
    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json || self.output_format == "json"
    }
}

/// `reap list`
#[derive(Args, Clone, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListArgs {
    #[command(flatten)]
    pub layout: LayoutArgs,
}

const LIST_EXAMPLES: &str = "\
Examples:
  reap list                         devices and their users
  reap list -o json | jq '.BlockDevices[] | select(.Users == []) | .DevicePath'

JSON keys are those of `nvme list -o json` where it has them. For usage and format of namespaces see `nvme list`.
Open files of other users' processes are shown only to root.
Exit status 0: success, even without devices; 1: sysfs cannot be read.";

/// `reap id`
#[derive(Args, Clone, Debug)]
#[command(after_help = ID_EXAMPLES)]
pub struct IdArgs {
    /// Device URI, as for `reap run --device`; a path in /dev means kernel:PATH
    #[arg(value_name = "URI")]
    pub uri: String,
    /// Only this namespace [default: all active ones]
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", value_parser = whole::<u32>(1..=0xffff_fffe))]
    pub namespace: Option<u32>,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

const ID_EXAMPLES: &str = "\
Examples:
  reap id pcie:0000:01:00.0         a drive bound to vfio-pci; this resets it
  reap id vfio-user:/tmp/nvme.sock  a controller of another process; this resets it
  reap id tcp://192.0.2.1/nqn.2026-11.example:disk  a controller over NVMe/TCP
  reap id mem:1G                    an embedded controller
  reap id /dev/ng0n1                a namespace of the kernel's nvme driver
  reap id /dev/vda                  any block device: size and supported completion modes
  reap id mem:1G --json | jq .controller.mn

Fields are those of `nvme id-ctrl` (JSON object `controller`) and `nvme id-ns` (array `namespaces`).
Exit status 0: success; 1: the device cannot be opened, or does not respond.";

/// `reap discover`
#[derive(Args, Clone, Debug)]
#[command(after_help = DISCOVER_EXAMPLES)]
pub struct DiscoverArgs {
    /// The transport: tcp
    #[arg(short = 't', long = "transport", value_name = "TRTYPE", value_parser = ["tcp"], default_value = "tcp")]
    pub transport: String,
    /// Address or name of the target
    #[arg(short = 'a', long = "traddr", value_name = "TRADDR")]
    pub address: String,
    /// TCP port
    #[arg(short = 's', long = "trsvcid", value_name = "TRSVCID", default_value_t = 8009, value_parser = clap::value_parser!(u16).range(1..))]
    pub service: u16,
    /// NQN of this host [default: that of /etc/nvme/hostnqn]
    #[arg(short = 'q', long = "hostnqn", value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// Identifier of this host, a UUID [default: that of /etc/nvme/hostid]
    #[arg(short = 'I', long = "hostid", value_name = "UUID")]
    pub host_id: Option<String>,
    /// Local address
    #[arg(short = 'w', long = "host-traddr", value_name = "ADDRESS")]
    pub host_address: Option<std::net::IpAddr>,
    /// Digests of headers
    #[arg(short = 'g', long = "hdr-digest")]
    pub hdr_digest: bool,
    /// Digests of data
    #[arg(short = 'G', long = "data-digest")]
    pub data_digest: bool,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

const DISCOVER_EXAMPLES: &str = "\
Examples:
  reap discover -a 192.0.2.1        at port 8009, the usual port of discovery controllers
  reap discover -t tcp -a 127.0.0.1 -s 4420 -o json | jq -r '.records[].subnqn'

Options, layout and keys are those of `nvme discover`. An entry is the device tcp://TRADDR:TRSVCID/SUBNQN.
Exit status 0: the log was read; 1: the target cannot be reached, or refuses the connection.";

/// `reap doctor`
#[derive(Args, Clone, Debug)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// What to check: kernel, pcie, trace, figures [default: kernel; also pcie if there is an NVMe
    /// controller]
    #[arg(long = "for", value_name = "WHAT,…", value_enum, value_delimiter = ',')]
    pub wanted: Vec<Wanted>,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

/// What `reap doctor` checks the requirements of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// devices kernel:
    Kernel,
    /// devices pcie:
    Pcie,
    /// `reap trace`
    Trace,
    /// reproducible measurements
    Figures,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  reap doctor                       check what kernel: devices need, and pcie: if there is a drive
  reap doctor --for pcie,trace      check what pcie: devices and `reap trace` need
  reap doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .command'

mem: and file: devices need none of this.
Exit status 0: nothing required is missing; 1: something required is missing.";

/// `reap serve`
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_EXAMPLES, group = clap::ArgGroup::new("listener").required(true))]
pub struct ServeArgs {
    /// Device: mem:SIZE or file:PATH with the parameters of `reap run --device`, or
    /// multipath:?path=…&path=… of such devices
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Listen on this Unix socket, which is created, and removed at exit. May be repeated: each is
    /// a controller of one subsystem, and all share its namespaces
    #[arg(long, value_name = "SOCKET", group = "listener")]
    pub vfio_user: Vec<PathBuf>,
    /// Listen on this address for NVMe/TCP, with a discovery service. May be repeated: each is a
    /// path to the same subsystem
    #[arg(long, value_name = "ADDR:PORT", group = "listener", value_parser = address)]
    pub tcp: Vec<SocketAddr>,
    /// Accept only this host NQN; may be repeated. Required if other machines can reach the
    /// address. The NQN is compared; hosts are not authenticated
    #[arg(long, value_name = "HOSTNQN", requires = "tcp")]
    pub allow: Vec<String>,
    /// The IP address that the discovery log has instead of those of --tcp, for hosts that reach
    /// them through address translation
    #[arg(long, value_name = "ADDR", requires = "tcp")]
    pub advertise: Option<IpAddr>,
    /// File of timed faults of the controllers, with lines such as `at 10s path 0 hold`; times
    /// count from the connection of the first client
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// `reap ctl`
#[derive(Args, Clone, Debug)]
#[command(after_help = CTL_EXAMPLES)]
pub struct CtlArgs {
    /// Socket of `reap serve --vfio-user` (its control socket is SOCKET.ctl), or address of --tcp
    #[arg(value_name = "SOCKET|ADDR:PORT")]
    pub socket: PathBuf,
    /// `status`, or `fault` followed by a fault as in a script
    #[arg(value_name = "COMMAND", required = true, num_args = 1..)]
    pub command: Vec<String>,
}

const CTL_EXAMPLES: &str = "\
Examples:
  reap ctl /tmp/nvme.sock status
  reap ctl /tmp/nvme.sock fault hold              stop completing commands, until `fault release`
  reap ctl /tmp/nvme.sock fault wrong-status 0x281 times 3
  reap ctl /tmp/nvme.sock fault reset-takes forever
  reap ctl 127.0.0.1:4420 fault lost              make this address unreachable, until `fault back`

All faults are in docs/serve.md. Exit status 0: success; 1: error.";

const SERVE_EXAMPLES: &str = "\
Examples:
  reap serve mem:1G --vfio-user /tmp/nvme.sock
  reap serve 'file:disk.img?profile=tlc' --vfio-user /tmp/nvme.sock --script hang.txt
  reap serve 'mem:1G?profile=null&doorbells=mapped' --vfio-user /tmp/nvme.sock
                                    poll mapped doorbells, at 100 % CPU while connected
  reap serve mem:1G --vfio-user /tmp/a.sock --vfio-user /tmp/b.sock
                                    two controllers, one namespace
  reap serve mem:1G --tcp 127.0.0.1:4420 --tcp 127.0.0.1:4421
                                    an NVMe/TCP subsystem with two paths

QEMU 10.1 or later can connect; its RAM has to be shared memory:
  qemu-system-x86_64 -machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size=1G,share=on \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/nvme.sock\"}}' ...

Stop it with Ctrl-C. Events are printed on stderr. Limits are in docs/serve.md.
Exit status 0: stopped by a signal; 1: error.";

#[cfg(test)]
mod tests;
