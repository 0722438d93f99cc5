//! Arguments of `reap serve`.

use std::path::PathBuf;

use clap::Args;

/// `reap serve`
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// The device: mem:SIZE or file:PATH, with the parameters that `reap run --device` takes, or multipath:?path=…&path=… of such
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Where clients come: a Unix socket, which is made, and removed in the end. Given several times, each is one of this many controllers of one
    /// subsystem, which share the namespaces
    #[arg(long, value_name = "SOCKET", required = true)]
    pub vfio_user: Vec<PathBuf>,
    /// What happens to the controllers, and when, counted from when the first client has come: a file of lines as `at 10s path 0 hold`
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// `reap ctl`
#[derive(Args, Clone, Debug)]
#[command(after_help = CTL_EXAMPLES)]
pub struct CtlArgs {
    /// The socket that `reap serve --vfio-user` was given; the control socket has the same name and `.ctl`
    #[arg(value_name = "SOCKET")]
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

docs/serve.md has every fault. Status 0: it was done; 1: it was not, and stderr says why.";

const SERVE_EXAMPLES: &str = "\
Examples:
  reap serve mem:1G --vfio-user /tmp/nvme.sock
  reap serve 'file:disk.img?profile=tlc' --vfio-user /tmp/nvme.sock --script hang.txt
  reap serve 'mem:1G?profile=null&doorbells=mapped' --vfio-user /tmp/nvme.sock      it polls, and never idles while a client is there
  reap serve mem:1G --vfio-user /tmp/a.sock --vfio-user /tmp/b.sock                 two controllers, one namespace

QEMU 10.1 and later connects to it, with RAM that another process can map:
  qemu-system-x86_64 -machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size=1G,share=on \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/nvme.sock\"}}' ...

Ctrl-C ends it. What it tells goes to stderr. docs/serve.md has the limits.
Status 0: it served until it was told to end; 1: it could not.";
