//! The command line.

mod values;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use completion::{Mode, Spin};
use hw::pci::Bdf;
use serde::Serialize;
use workload::fio;

use crate::bench::{self, Allowed};
use crate::rows;
use values::{load, percent, take_jobs, whole};
pub use values::{modes, once};

/// Runs fio job files on a user-space NVMe stack, and says what each way of finding completions costs.
#[derive(Debug, Parser)]
#[command(name = "reap", version, arg_required_else_help = true, subcommand_required = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  reap compare                      which completion mode suits 4 KiB random reads here?
  reap run job.fio                  run a fio job file
  reap sim scenarios/small.toml     compare modes on a machine that is not here
  reap run --help                   what else a run can do

The environment variable REAP_LOG says what of the library's log goes to stderr, as REAP_LOG=debug, or REAP_LOG=warn,reap=debug; \
only warnings do by themselves.";

impl Cli {
    /// Parses these words, the program's name first. A negative number is a value, which its option refuses in words of its own.
    pub fn parse_words(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().collect();
        let asked = words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let negative = |arg: clap::Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
        // Help is for people: as wide as the terminal, and no wider than lines can be read.
        let width = usize::from(rows::table::width()).min(100);
        let mut command = Cli::command().mut_subcommands(|sub| sub.mut_args(negative).term_width(width)).term_width(width);
        let commands: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        // So that each part says its usage as a part.
        command.build();
        let mut run = command.find_subcommand("run").cloned().unwrap_or_default();
        let mut jobs = None;
        if asked == "run" {
            let own = |name: &str| name == "help" || run.get_arguments().any(|arg| arg.get_long() == Some(name));
            let (left, taken) = take_jobs(words.split_off(2), own).map_err(|why| run.clone().error(ErrorKind::ValueValidation, why))?;
            words.extend(left);
            jobs = taken;
        }
        let matches = command.try_get_matches_from_mut(words).map_err(|mut error| {
            if error.kind() == ErrorKind::InvalidSubcommand && error.get(ContextKind::SuggestedSubcommand).is_none() {
                let tip = format!("the commands are {}", commands.join(", "));
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            }
            suggest(&mut error, &command, &asked);
            error
        })?;
        let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if let Command::Run(args) = &mut cli.command {
            let begun = jobs.iter().flat_map(|text| text.lines()).any(|line| line.starts_with('[') && line != "[global]");
            if args.files.is_empty() && !begun {
                let why = "there is no job: name a job file, or give one on the command line, as --name=mine --rw=randread --bs=4k";
                return Err(run.error(ErrorKind::MissingRequiredArgument, why));
            }
            args.jobs = jobs;
        }
        Ok(cli)
    }
}

/// Puts a tip into the error of an option that there is not: where it belongs, or which one is near. What clap says by itself is that the
/// word might be no option, and the nearest name of this command, however far.
fn suggest(error: &mut clap::Error, all: &clap::Command, command: &str) {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) = (error.kind(), error.get(ContextKind::InvalidArg)) else { return };
    let Some(name) = word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name).to_owned()) else { return };
    error.remove(ContextKind::Suggested);
    if name == "latency-price" {
        let tip = "it is a parameter of the mode: --completion or --modes 'adaptive?latency-price=0.5'";
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return;
    }
    let similar = error.get(ContextKind::SuggestedArg).is_some();
    let has = |sub: &&clap::Command| sub.get_arguments().any(|arg| arg.get_long() == Some(&name));
    let others: Vec<String> = all.get_subcommands().filter(has).map(|sub| format!("`reap {}`", sub.get_name())).collect();
    let tip = if !others.is_empty() {
        format!("--{name} is an option of {}", others.join(", "))
    } else if command == "run" {
        if let Some(near) = fio::nearest_option(&name).filter(|_| !similar) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
        }
        return;
    } else if fio::option(&name).is_some() {
        // The same name says more than a similar one.
        let file = if command == "compare" { ": reap compare job.fio" } else { "" };
        format!("{name} is an option of jobs: `reap run` takes it on its command line, other commands in a job file{file}")
    } else {
        return;
    };
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// One subcommand each; each has a module of its name.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run fio job files and print results as fio does
    Run(RunArgs),
    /// Run one job under several completion modes and compare them
    Compare(CompareArgs),
    /// Simulate a machine, its devices and jobs, and compare completion modes on it
    Sim(SimArgs),
    /// Measure what things cost on this machine, as a price list for `reap sim`
    Calibrate(CalibrateArgs),
    /// List NVMe controllers, namespaces and block devices, and who uses them
    List(ListArgs),
    /// Show what a controller and its namespaces say of themselves (Identify)
    Id(IdArgs),
    /// Say what this machine can do for Reap, what is missing, and which command mends it
    Doctor(DoctorArgs),
    /// Give an NVMe drive from the kernel's driver to vfio-pci, so that pcie:BDF can be used
    Bind(BindArgs),
    /// Give a drive back from vfio-pci to the kernel's driver
    Unbind(UnbindArgs),
    /// Serve an embedded controller: to QEMU and others as a PCI device (vfio-user), or over NVMe/TCP
    Serve(ServeArgs),
    /// Ask a device that is served how it stands, or have something go wrong with it
    Ctl(CtlArgs),
    /// Show what completions cost in this machine's kernel, for any block driver
    Trace(trace::cli::TraceArgs),
    /// Write manual pages, and completions for bash, zsh and fish, below a directory
    Install(InstallArgs),
}

/// `reap bind`
#[derive(Args, Clone, Debug)]
pub struct BindArgs {
    /// The drive's PCI address, as `lspci -D` prints it: 0000:01:00.0. One with a namespace that is in use is refused
    pub bdf: Bdf,
    /// Let this user, by name or number, use the drive afterwards, without being root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// `reap unbind`
#[derive(Args, Clone, Debug)]
pub struct UnbindArgs {
    /// The drive's PCI address
    pub bdf: Bdf,
}

/// `reap install`
#[derive(Args, Debug)]
#[command(after_help = INSTALL_EXAMPLES)]
pub struct InstallArgs {
    /// Where: the pages go to share/man/man1 in it, the completions to where each shell looks for them
    #[arg(value_name = "PREFIX")]
    pub prefix: PathBuf,
}

const INSTALL_EXAMPLES: &str = "\
Examples:
  reap install ~/.local             for yourself
  sudo reap install /usr/local      for everybody

Each file is named when it is written; one that is there already is replaced.
Status 0: all were written; 1: a file could not be written.";

/// The device that jobs run on.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// The device: kernel:PATH, kernel:, pcie:BDF, vfio-user:SOCKET, mem:SIZE, file:PATH or multipath:, with parameters [default: the paths of
    /// the jobs' filename= and directory=, as in fio; where no job has one, mem:1G?profile=optane]
    ///
    /// `kernel:PATH` is a file or a block device, through io_uring; its parameters are size (lays a new file out), readonly,
    /// buffered and lba. `kernel:` alone is for parameters of the paths that the jobs name. `pcie:BDF` is a drive that `reap bind` has given to vfio-pci, and `vfio-user:SOCKET` one that another process serves (`reap serve`, SPDK's target); their parameters are vectors, shadow and sgl, and of the second hugepages and trust. Everything else is embedded in
    /// this program, and there a filename= is no path but a name: each gets an instance of its own. Parameters follow a question mark and are joined by `&`: profile (null, optane, tlc, bimodal, cloud, or the path
    /// of a .toml file), lba (512 or 4096), namespaces, queues, vectors, entries, alloc, seed, sgl; for `file:` also size,
    /// which creates the file. Where the device is a file, {filename} in its path stands for the name, with _ for each / ? & and %. `multipath:?path=URI&path=URI` joins controllers that share namespaces, embedded or `vfio-user:` all;
    /// an `&` within a path is written %26, and docs/multipath.md has the rest.
    #[arg(long, value_name = "URI", value_parser = device)]
    pub device: Option<String>,
    /// Let jobs write to block devices, drives, and files of other users; what they hold there is lost
    #[arg(long)]
    pub allow_writes: bool,
}

impl DeviceArgs {
    /// What jobs may write to.
    pub fn allowed(&self) -> Allowed {
        if self.allow_writes { Allowed::All } else { Allowed::Own }
    }
}

/// A URI that parses; it is kept as written, because `{filename}` in it is replaced for each device.
fn device(text: &str) -> Result<String, String> {
    bench::check(text).map(|()| text.to_owned()).map_err(|e| format!("column {}: {}", e.column, e.what))
}

/// How queues are made, and what some modes do in them.
#[derive(Args, Clone, Copy, Debug)]
pub struct QueueArgs {
    /// What poll and hybrid-* do about other threads that want the CPU: naps (for 50 µs), yields (gives it to them between
    /// looks), or spins (until the scheduler takes it)
    #[arg(long, value_name = "HOW", default_value_t = Spin::Naps)]
    pub poll: Spin,
    /// Hardware queues of each device; fewer than job threads are shared by them [default: one for each job thread]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=64))]
    pub queues: Option<u16>,
}

/// `reap run`
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// fio job files; `-` is the standard input
    #[arg(value_name = "JOBFILE")]
    pub files: Vec<PathBuf>,
    /// Jobs of the command line, as a job file
    #[arg(skip)]
    pub jobs: Option<String>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// How completions are found: interrupt, threaded, irq-poll, posted (each also with +submit-check), hybrid-mean,
    /// hybrid-min, suspend, coalesce, dim, vic, poll, adaptive; on kernel: devices also the kernel's own, kernel-iopoll,
    /// kernel-hybrid-iopoll and kernel-sqpoll. Parameters follow a question mark and are joined by `&`: of irq-poll weight, budget and
    /// time, which limit a poll and a round of polls (64, 256, 2ms); of adaptive latency-price, the CPU time that it may spend to find a
    /// completion one unit of time sooner, a number or inf (0.2) [default: adaptive; on kernel: devices as the jobs say by hipri and sqthread_poll]
    #[arg(long, value_name = "MODE", value_parser = Mode::parse_any)]
    pub completion: Option<Mode>,
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Also draw what each wake-up brought: completions, and the time from the notification to the first look
    #[arg(long)]
    pub histograms: bool,
    /// Run only the jobs of this name; may be given several times
    #[arg(long, value_name = "NAME")]
    pub section: Vec<String>,
    /// Refuse jobs that write or trim
    #[arg(long)]
    pub readonly: bool,
    /// Run nothing: say what is wrong with the jobs, or that nothing is
    #[arg(long)]
    pub parse_only: bool,
    /// How the results are laid out
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Normal)]
    pub output_format: OutputFormat,
    /// Write the results to this file instead of the standard output; `-` is that as well
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

Every option of a job file is one of the command line as well: those behind a --name are that job's, all others are what the first job \
file and the jobs of the line begin with. Jobs of the line come first.
The first Ctrl-C ends the jobs, once what is in flight has ended (nothing is tried again, nothing waits for a path), and prints \
what they have measured; a second one ends the program.
Status 0: all jobs went well; 1: bad input, a job failed, or a file could not be written; 130: Ctrl-C.";

/// How results are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// for people, as fio prints them
    Normal,
    /// for scripts, in fio's schema, with one more object `reap` for each job
    Json,
    /// the same, with the histogram of each latency (`bins`)
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
    /// Completion modes to compare; the first is what the others are compared with. By default interrupt
    /// and irq-poll, each with and without +submit-check, hybrid-mean, poll, adaptive; at several loads or depths interrupt,
    /// irq-poll, hybrid-mean, suspend, poll, and adaptive at several latency prices. On kernel: devices also
    /// kernel-iopoll, kernel-hybrid-iopoll and kernel-sqpoll. Parameters follow a question mark and are joined by `&`, as in
    /// 'irq-poll?weight=16&budget=64,adaptive?latency-price=0.5'
    #[arg(long, value_name = "MODE,…", value_delimiter = ',', value_parser = Mode::parse_any)]
    pub modes: Vec<Mode>,
    #[command(flatten)]
    pub queue: QueueArgs,
    /// CPUs for the job threads, as 0-2,5 [default: of a kernel: device the CPU of its disk's interrupt, else of its queue, and where
    /// neither is known none in particular; otherwise all but one, which is the emulated drive's]
    // By its path, so that clap does not take each CPU for a value of its own.
    #[arg(long, value_name = "LIST", value_parser = fio::cpus)]
    pub cpus: Option<std::vec::Vec<u32>>,
    /// Loads to compare at, in per cent of what polling reaches; below 100 I/Os arrive at random and wait for nobody
    #[arg(long, value_name = "PCT,…", value_delimiter = ',', value_parser = load)]
    pub loads: Vec<f64>,
    /// Queue depths to compare at, of each job thread [default: the job's iodepth]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = whole::<u32>(1..=4096))]
    pub qd: Vec<u32>,
    /// Compare without and with another thread that wants so much of the host's CPU
    #[arg(long, value_name = "PCT", value_parser = percent::<u8>(1..=100))]
    pub background: Option<u8>,
    /// Pairs of blocks for each comparison; fewer than 30 make wide intervals
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1..=10_000))]
    pub repeat: u32,
    /// Nanoseconds of application work after each completion, to saturate the host on purpose
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole::<u64>(0..=1_000_000_000))]
    pub host_work: u64,
    /// A price list that `reap calibrate` wrote here: what a wake-up takes from other work [default: by kind of machine]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Show all columns: ratios, thread CPU, stolen time, messages, wake-ups, p99.9
    #[arg(long)]
    pub wide: bool,
    /// Also write the results to this file; `-` is the standard output, and the table goes to stderr then
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw the results: a page that needs no network, to be opened in a browser
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

Blocks of all modes run in random order on one open device; a figure is the median over blocks, with the 95 % interval \
of a bootstrap. The first mode runs twice in each round: how far it differs from itself is noise.
Several loads or depths say first how long they take; Ctrl-C ends it and prints what there is by then, \
a second one ends the program. Status 0: all went well; 1: bad input, an I/O that failed, or a file that could not be written; \
130: Ctrl-C.";

/// `reap sim`
#[derive(Args, Debug)]
#[command(after_help = SIM_EXAMPLES)]
pub struct SimArgs {
    /// Scenario file (TOML, see docs/simulator.md); without one, 4 KiB random reads at queue depth 32 on one CPU
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// Completion modes to compare; the first is what the others are compared with [default: the scenario's, or one of
    /// each family]
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    pub modes: Vec<Mode>,
    /// The first seed [default: the scenario's, or 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub seed: Option<u64>,
    /// How many seeds, from the first on; six give intervals [default: the scenario's, or 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=10_000))]
    pub seeds: Option<u32>,
    /// In place of the scenario's jobs, the I/Os of a list that fio's or `reap run`'s `write_iolog` wrote (version 3), at its
    /// time stamps; several lists at the same time if given several times
    #[arg(long, value_name = "FILE")]
    pub replay: Vec<PathBuf>,
    /// What things cost: bare-metal, vm, or a file that `reap calibrate` wrote [default: the scenario's]
    #[arg(long, value_name = "NAME|FILE")]
    pub costs: Option<String>,
    /// Show all columns, where the CPUs' time goes, and what policies decided
    #[arg(long)]
    pub wide: bool,
    /// Also write the results to this file; `-` is the standard output, and the table goes to stderr then
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw the results: a page that needs no network, to be opened in a browser
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

The same scenario and seed give the same figures on any machine. All cores are used, one run each.
The first Ctrl-C prints what is done (whole rounds of all modes only); a second one ends the program. \
Status 0: all went well; 1: bad input, or a run that broke a law of the simulator, with its seed; 130: Ctrl-C.";

/// `reap calibrate`
#[derive(Args, Debug)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub struct CalibrateArgs {
    /// How long the threads sleep whose sleeps are priced, in microseconds: about the time that the device takes, at a queue
    /// depth of 1; at high depths, 1. What a sleep costs depends on how deep the CPU has gone meanwhile
    #[arg(long, value_name = "US", default_value_t = 15, value_parser = whole::<u64>(1..=10_000))]
    pub sleep_us: u64,
    /// Write the price list to this file (TOML)
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  reap calibrate
  reap calibrate --output here.toml
  reap sim --costs here.toml

At most 20 seconds. Medians of 31 samples with their 95 % interval; a busy machine makes them worse, not longer.
What cannot be measured from user space (interrupt handlers, a kernel's block layer) is taken from the list for virtual \
machines that ships, and marked.
Ctrl-C ends it, and nothing is printed. Status 0: all went well; 1: stopped, or a file that could not be written.";

/// For people or for scripts, in the words of nvme-cli and in those of other commands.
#[derive(Args, Clone, Debug)]
pub struct LayoutArgs {
    /// How it is laid out: for people, or for scripts
    #[arg(short = 'o', long, value_name = "FORMAT", value_parser = ["normal", "json"], default_value = "normal")]
    output_format: String,
    /// The same as --output-format json
    #[arg(long)]
    json: bool,
}

impl LayoutArgs {
    /// It is for scripts.
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
  reap list                         what is there, and who uses it?
  reap list -o json | jq '.BlockDevices[] | select(.Users == []) | .DevicePath'

Keys are those of `nvme list -o json`, as far as it has them. `nvme list` shows how much of a namespace is allocated, and its format.
Users and open files of other users' processes are shown to root alone.
Status 0: it was listed, and there may be nothing; 1: the system cannot be read.";

/// `reap id`
#[derive(Args, Clone, Debug)]
#[command(after_help = ID_EXAMPLES)]
pub struct IdArgs {
    /// The device, as for `reap run --device`; /dev/ng0n1 and other paths below /dev are kernel:PATH
    #[arg(value_name = "URI")]
    pub uri: String,
    /// Only this namespace [default: all that can be used]
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", value_parser = whole::<u32>(1..=0xffff_fffe))]
    pub namespace: Option<u32>,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

const ID_EXAMPLES: &str = "\
Examples:
  reap id pcie:0000:01:00.0         a drive that `reap bind` has given to vfio-pci; it is reset
  reap id vfio-user:/tmp/nvme.sock  a controller that another process serves; it is reset
  reap id mem:1G                    the embedded controller
  reap id /dev/ng0n1                a namespace of a drive of the kernel's
  reap id /dev/vda                  any other block device: its size, and the completion modes it allows
  reap id mem:1G --json | jq .controller.mn

Fields and layout are those of `nvme id-ctrl` and `nvme id-ns`; with --json the first is `controller`, the second one of `namespaces`.
Status 0: everything was shown; 1: it cannot be opened, or does not answer.";

/// `reap doctor`
#[derive(Args, Clone, Debug)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// What is to work here: kernel, pcie, trace, figures [default: kernel; pcie too, where there is an NVMe controller]
    #[arg(long = "for", value_name = "WHAT,…", value_enum, value_delimiter = ',')]
    pub wanted: Vec<Wanted>,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

/// What is to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// the link `kernel:`
    Kernel,
    /// the link `pcie:`
    Pcie,
    /// `reap trace`
    Trace,
    /// figures that are to be compared
    Figures,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  reap doctor                       what can this machine do, and what is missing?
  reap doctor --for pcie,trace      are these two possible?
  reap doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .command'

mem: and file: need nothing that is looked for here.
Status 0: nothing is missing that is needed for what is to work; 1: something is.";

/// `reap serve`
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// The device: mem:SIZE or file:PATH, with the parameters that `reap run --device` takes, or multipath:?path=…&path=… of such
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Where clients come: a Unix socket, which is made, and removed in the end. Given several times, each is one of this many controllers of one
    /// subsystem, which share the namespaces
    #[arg(long, value_name = "SOCKET", required_unless_present = "tcp", conflicts_with = "tcp")]
    pub vfio_user: Vec<PathBuf>,
    /// Serve over NVMe/TCP instead, at this address. Given several times, each is a path to the same subsystem. It has a discovery service
    #[arg(long, value_name = "ADDR:PORT")]
    pub tcp: Vec<SocketAddr>,
    /// Only a host of this name may connect, of several if given several times. Needed where other machines reach the address; names are
    /// compared, and nothing is authenticated
    #[arg(long, value_name = "HOSTNQN", requires = "tcp")]
    pub allow: Vec<String>,
    /// The address that discovery names instead of those of --tcp: the one at which hosts behind address translation reach them
    #[arg(long, value_name = "ADDR", requires = "tcp")]
    pub advertise: Option<IpAddr>,
    /// What happens to the controllers, and when, counted from when the first client has come: a file of lines as `at 10s path 0 hold`
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// `reap ctl`
#[derive(Args, Clone, Debug)]
#[command(after_help = CTL_EXAMPLES)]
pub struct CtlArgs {
    /// The socket that `reap serve --vfio-user` was given, or the address of --tcp; the control socket of a socket has the same name and `.ctl`
    #[arg(value_name = "SOCKET|ADDR:PORT")]
    pub socket: PathBuf,
    /// What is asked: status, or fault and a change, in the words of a script
    #[arg(value_name = "ORDER", required = true, num_args = 1..)]
    pub order: Vec<String>,
}

const CTL_EXAMPLES: &str = "\
Examples:
  reap ctl /tmp/nvme.sock status
  reap ctl /tmp/nvme.sock fault hold              commands hang, until: fault release
  reap ctl /tmp/nvme.sock fault wrong-status 0x281 times 3
  reap ctl /tmp/nvme.sock fault reset-takes forever
  reap ctl 127.0.0.1:4420 fault lost              no host reaches this address, until: fault back

docs/serve.md has every fault. Status 0: it was done; 1: it was not, and stderr says why.";

const SERVE_EXAMPLES: &str = "\
Examples:
  reap serve mem:1G --vfio-user /tmp/nvme.sock
  reap serve 'file:disk.img?profile=tlc' --vfio-user /tmp/nvme.sock --script hang.txt
  reap serve 'mem:1G?profile=null&doorbells=mapped' --vfio-user /tmp/nvme.sock      it polls, and never idles while a client is there
  reap serve mem:1G --vfio-user /tmp/a.sock --vfio-user /tmp/b.sock                 two controllers, one namespace
  reap serve mem:1G --tcp 127.0.0.1:4420 --tcp 127.0.0.1:4421                       an NVMe/TCP subsystem with two paths

QEMU 10.1 and later connects to it, with RAM that another process can map:
  qemu-system-x86_64 -machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size=1G,share=on \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/nvme.sock\"}}' ...

Ctrl-C ends it. What it tells goes to stderr. docs/serve.md has the limits.
Status 0: it served until it was told to end; 1: it could not.";

#[cfg(test)]
mod tests;
