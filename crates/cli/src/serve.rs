//! `reap serve`: exports an embedded controller as a PCI device (vfio-user) or over NVMe/TCP until
//! SIGINT or SIGTERM. `reap ctl`: sends commands to a running server, for example to inject faults.
//!
//! ```text
//! VM or host ── vfio-user socket ──┐
//! host ──────── NVMe/TCP ──────────┼─► server (reap::serve) ─► embedded controller ─► mem: or file:
//! reap ctl ──── control commands ──┘
//! ```

use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use reap::serve;
use reap::{MultipathUri, Script};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{CtlArgs, ServeArgs};
use crate::{jobs, output, stop};

/// Schemes of devices that are not embedded.
const OTHERS: [&str; 4] = ["kernel:", "pcie:", "tcp:", "vfio-user:"];

/// Runs `reap serve`.
pub fn serve(args: &ServeArgs) -> Result<ExitCode> {
    if let Some(scheme) = OTHERS.iter().find(|scheme| args.device.starts_with(**scheme)) {
        bail!(
            "`{scheme}` cannot be served; only embedded controllers can, `mem:SIZE` or `file:PATH`"
        );
    }
    // clap does not check `requires` if another option conflicts with the required one.
    if !args.allow.is_empty() && args.tcp.is_empty() {
        bail!(
            "--allow needs --tcp; access to a socket of --vfio-user is controlled by its file permissions"
        );
    }
    if args.advertise.is_some() && args.tcp.is_empty() {
        bail!("--advertise needs --tcp: there is no discovery at a socket of --vfio-user");
    }
    if let Some(nqn) = args.allow.iter().find(|nqn| !nqn.starts_with("nqn.") || nqn.len() > 223) {
        bail!("--allow {nqn}: an NQN starts with `nqn.` and has at most 223 bytes");
    }
    let script = args.script.as_deref().map(|path| {
        let text = hw::read_text(path, jobs::MOST_BYTES)
            .with_context(|| format!("cannot read the script {}", path.display()))?;
        text.parse::<Script>().map_err(|error| anyhow!("script {}: {error}", path.display()))
    });
    let (sockets, script) = (&args.vfio_user[..], script.transpose()?);
    if !args.tcp.is_empty() {
        let uri = if args.device.starts_with("multipath:") {
            args.device.parse()?
        } else {
            MultipathUri::repeated(&args.device, args.tcp.len())?
        };
        let mut server = serve::open_tcp(&uri, &args.tcp, args.allow.clone(), script)?;
        if let Some(address) = args.advertise {
            server.advertise(address);
        }
        return until_stopped(|stop| server.run(stop, &mut |event| output::say(event)));
    }
    // Each socket is a controller; several are controllers of one subsystem.
    let mut server = match sockets {
        _ if args.device.starts_with("multipath:") => {
            serve::open_paths(&args.device.parse()?, sockets, script)?
        }
        [socket] => serve::open(&args.device.parse()?, socket, script)?,
        _ => serve::open_paths(
            &MultipathUri::repeated(&args.device, sockets.len())?,
            sockets,
            script,
        )?,
    };
    until_stopped(|stop| server.run(stop, &mut |event| output::say(event)))
}

/// Runs a server until SIGINT or SIGTERM.
fn until_stopped(
    run: impl FnOnce(&UnixStream) -> Result<(), serve::ServerError>,
) -> Result<ExitCode> {
    // A second signal exits at once, if the server does not stop.
    let _flag = stop::flag().context("cannot listen for signals")?;
    // The server polls file descriptors, so a signal has to be a readable socket.
    let (stop, written) = UnixStream::pair().context("cannot listen for signals")?;
    for signal in [SIGINT, SIGTERM] {
        let written = written.try_clone().context("cannot listen for signals")?;
        signal_hook::low_level::pipe::register(signal, written)
            .context("cannot listen for signals")?;
    }
    run(&stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `reap ctl`: sends one command, and prints the answer.
///
/// # Errors
/// There is no server, or it rejects the command.
pub fn ctl(args: &CtlArgs) -> Result<ExitCode> {
    let order = args.order.join(" ");
    // What parses as ADDR:PORT is an address, never a path.
    let address = args.socket.to_str().and_then(|socket| socket.parse().ok());
    let answer = address.map_or_else(
        || serve::ask(&args.socket, &order),
        |address| serve::ask_address(address, &order),
    )?;
    output::print(&answer)?;
    Ok(ExitCode::SUCCESS)
}
