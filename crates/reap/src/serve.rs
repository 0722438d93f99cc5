//! Serving controllers that URIs name: as PCI devices for other processes over vfio-user, or to
//! hosts over NVMe/TCP. The servers are in `emu::serve`; this module builds what they serve from
//! URIs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use emu::serve::{Namespaces, Served};
use emu::{Ana, Change, Script};
use units::Nanos;

use crate::error::{OpenError, OptionsError};
use crate::multipath::{self, MultipathUri};
use crate::transport::embedded;
use crate::uri::DeviceUri;

pub use emu::serve::{
    ControlError, ServeError as ServerError, ServeEvent, Server, SocketFault, TcpServer, ask,
    ask_address,
};

/// Why a device cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server cannot be set up.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The number of sockets is not the number of paths.
    #[error(
        "the device has {paths} paths, and {sockets} sockets are named: name one for each path"
    )]
    Sockets {
        /// Paths of the device.
        paths: usize,
        /// Sockets that were named.
        sockets: usize,
    },
    /// A parameter that concerns hosts: how they choose paths, and how long requests wait for one.
    #[error(
        "`{parameter}` says how a host uses its paths: leave it out here, and give it to each client of the server"
    )]
    OfTheHost {
        /// The parameter.
        parameter: &'static str,
    },
}

/// A server of the controller of `uri`, with a socket at `path`. The times of `script` count from
/// the first client's connection.
///
/// ```no_run
/// let uri = "mem:1G?profile=tlc".parse()?;
/// let mut server = reap::serve::open(&uri, "/run/nvme.sock".as_ref(), None)?;
/// // Until a byte can be read from the other end of `stop`.
/// let (stop, _other) = std::os::unix::net::UnixStream::pair()?;
/// server.run(&stop, &mut |event| eprintln!("{event}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`ServeError`].
pub fn open(uri: &DeviceUri, path: &Path, script: Option<Script>) -> Result<Server, ServeError> {
    let mut server = Server::new()?;
    let mut served = served(uri, uri.to_string(), Namespaces::Own(embedded::namespaces(uri)?))?;
    served.config.serial = embedded::serial(uri)?;
    server.add(path, served)?;
    server.play(script.unwrap_or_default())?;
    Ok(server)
}

/// A server of the controllers of one subsystem and their shared namespaces: path `n` at
/// `sockets[n]`. The times of the URI's script and of `script` count from the first client's
/// connection to any of them.
///
/// # Errors
/// See [`ServeError`].
pub fn open_paths(
    uri: &MultipathUri,
    sockets: &[PathBuf],
    script: Option<Script>,
) -> Result<Server, ServeError> {
    let mut steps = check_paths(uri, sockets.len())?;
    steps.steps.extend(script.unwrap_or_default().steps);
    let mut server = Server::new()?;
    let mut subsystem = multipath::shared_subsystem(&uri.paths)?;
    for (n, (path, socket)) in uri.paths.iter().zip(sockets).enumerate() {
        let controller_id = path.controller.unwrap_or_else(|| subsystem.next_controller_id());
        let mut served = served(
            multipath::embedded_uri(path)?,
            path.text.clone(),
            Namespaces::Shared(&mut subsystem),
        )?;
        (served.config.controller_id, served.config.ana) =
            (controller_id, Some(Ana::new(path.ana)));
        server.add(socket, served)?;
        // A delay of the URI is a change at time 0.
        if path.delay > Nanos::ZERO {
            steps = steps.with(Nanos::ZERO, n, Change::Delay(path.delay));
        }
    }
    server.play(steps)?;
    Ok(server)
}

/// A server of a subsystem over NVMe/TCP: path `n` at `addresses[n]`, with a controller for each
/// host that connects there. `allowed`: the hosts' NQNs; empty: any. The times of scripts count
/// from the first host's connection.
///
/// # Errors
/// See [`ServeError`].
pub fn open_tcp(
    uri: &MultipathUri,
    addresses: &[SocketAddr],
    allowed: Vec<String>,
    script: Option<Script>,
) -> Result<TcpServer, ServeError> {
    let mut steps = check_paths(uri, addresses.len())?;
    steps.steps.extend(script.unwrap_or_default().steps);
    let mut server = TcpServer::new(multipath::shared_subsystem(&uri.paths)?, allowed)?;
    for (n, (path, address)) in uri.paths.iter().zip(addresses).enumerate() {
        let device = multipath::embedded_uri(path)?;
        // A controller on a fabric has no doorbells, reads no host memory, and its identifier is
        // allocated by Connect.
        let parameters = [
            (device.mapped_doorbells, "doorbells=mapped"),
            (device.shadow.is_some(), "shadow="),
            (device.trust, "trust=yes"),
            (path.controller.is_some(), "cntlid="),
        ];
        if let Some((_, word)) = parameters.into_iter().find(|(given, _)| *given) {
            return Err(OpenError::from(OptionsError::BusOnly(word)).into());
        }
        let Served { mut config, .. } =
            served(device, path.text.clone(), Namespaces::Own(Vec::new()))?;
        config.serial = embedded::serial(device)?;
        config.ana = Some(Ana::new(path.ana));
        server.add(*address, path.text.clone(), config)?;
        if path.delay > Nanos::ZERO {
            steps = steps.with(Nanos::ZERO, n, Change::Delay(path.delay));
        }
    }
    server.play(steps)?;
    Ok(server)
}

/// The script of a URI that is served at `sockets` sockets. The URI must have that many paths, and
/// no parameter for hosts.
fn check_paths(uri: &MultipathUri, sockets: usize) -> Result<Script, ServeError> {
    let paths = uri.paths.len();
    if sockets != paths {
        return Err(ServeError::Sockets { paths, sockets });
    }
    // `node=` is the NUMA node of the host's path.
    let node = uri.paths.iter().any(|path| path.node.is_some()).then_some("node");
    if let Some(&parameter) = uri.of_the_host.iter().chain(&node).next() {
        return Err(ServeError::OfTheHost { parameter });
    }
    Ok(uri.script.clone())
}

/// The controller of `uri`, without its serial number and identifiers.
fn served<'a>(
    uri: &DeviceUri,
    device: String,
    namespaces: Namespaces<'a>,
) -> Result<Served<'a>, OpenError> {
    // These describe the host's side of an embedded controller.
    let parameters = [
        (!uri.masks, "masks=no"),
        (uri.late_properties, "properties=late"),
        (uri.own_thread, "thread=own"),
    ];
    if let Some((_, word)) = parameters.into_iter().find(|(given, _)| *given) {
        return Err(OptionsError::HostOnly(word).into());
    }
    let mut config = embedded::config(uri)?;
    config.shadow_doorbells = uri.shadow != Some(false);
    Ok(Served {
        device,
        config,
        namespaces,
        trust: uri.trust,
        maps_doorbells: uri.mapped_doorbells,
    })
}

#[cfg(test)]
mod tests;
