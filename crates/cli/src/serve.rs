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

/// Schemes of devices that cannot be served, because they are not embedded.
const NOT_SERVABLE: [&str; 4] = ["kernel:", "pcie:", "tcp:", "vfio-user:"];

/// Runs `reap serve`.
pub fn serve(args: &ServeArgs) -> Result<ExitCode> {
    if let Some(scheme) = NOT_SERVABLE.iter().find(|scheme| args.device.starts_with(**scheme)) {
        bail!(
            "`{scheme}` cannot be served; only embedded controllers can: `mem:SIZE`, `file:PATH`, or a `multipath:` of them"
        );
    }
    // `--allow` and `--advertise` require `--tcp`, but clap skips that check when `--vfio-user` is
    // given, because it conflicts with `--tcp`.
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
        let text = hw::read_text(path, jobs::MAX_INPUT_BYTES)
            .with_context(|| format!("cannot read the script {}", path.display()))?;
        text.parse::<Script>().map_err(|error| anyhow!("script {}: {error}", path.display()))
    });
    let (sockets, script) = (&args.vfio_user[..], script.transpose()?);
    // There is one controller per address or socket; several are controllers of one subsystem.
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
    // Installs the handler by which a second signal exits at once, in case the server does not
    // stop. The flag that the first signal sets is not needed here.
    let _flag = stop::flag().context("cannot listen for signals")?;
    // The server polls file descriptors, so a signal has to be a readable socket.
    let (stop, stop_sender) = UnixStream::pair().context("cannot listen for signals")?;
    for signal in [SIGINT, SIGTERM] {
        let sender = stop_sender.try_clone().context("cannot listen for signals")?;
        signal_hook::low_level::pipe::register(signal, sender)
            .context("cannot listen for signals")?;
    }
    run(&stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `reap ctl`: sends one control command, and prints the reply.
///
/// # Errors
/// There is no server, or it rejects the command.
pub fn ctl(args: &CtlArgs) -> Result<ExitCode> {
    let command = args.command.join(" ");
    // What parses as ADDR:PORT is an address, never a path.
    let address = args.socket.to_str().and_then(|socket| socket.parse().ok());
    let reply = address.map_or_else(
        || serve::ask(&args.socket, &command),
        |address| serve::ask_address(address, &command),
    )?;
    output::print(&reply)?;
    Ok(ExitCode::SUCCESS)
}
