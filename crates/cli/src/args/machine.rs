//! Arguments of the commands that show what there is: `list`, `id`, `doctor`.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::values::whole;

/// How it is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// for people
    #[default]
    Normal,
    /// for scripts
    Json,
}

/// For people or for scripts, in the words of nvme-cli and in those of other commands.
#[derive(Args, Clone, Copy, Debug)]
pub struct LayoutArgs {
    /// How it is laid out
    #[arg(short = 'o', long = "output-format", value_name = "FORMAT", value_enum, default_value_t = Layout::Normal)]
    output_format: Layout,
    /// The same as --output-format json
    #[arg(long)]
    json: bool,
}

impl LayoutArgs {
    /// It is for scripts.
    pub fn is_json(self) -> bool {
        self.json || self.output_format == Layout::Json
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
