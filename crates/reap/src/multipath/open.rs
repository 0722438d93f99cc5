//! Opens a multipath device: one controller for each path, and the check that all of them lead to
//! the same namespace.

use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};

use crossbeam_utils::CachePadded;
use driver::Inventory;
use driver::multipath::{MultipathCounters, PathIdentity, PathTraits, join};
use driver::paths::{Distances, PathId, Paths};
use emu::{Change, PathControl, Subsystem};
use hw::DmaPool;
use units::Nanos;

use super::shared::Multipath;
use super::uri::{MultipathUri, PathDevice, PathUri};
use crate::controller_task::open as controller_task;
use crate::error::{OpenError, OptionsError};
use crate::namespace::Namespace;
use crate::options::OpenOptions;
use crate::shared::controller::{Description, OpenController};
use crate::shared::events::EventKind;
use crate::shared::path_states::{PathHandle, PathStates};
use crate::transport::embedded::{SubsystemMember, subsystem};
use crate::transport::tcp;
use crate::transport::vfio_user::{self, ConnectedController};
use crate::transport::{self, DmaContext, RingController};
use crate::uri::DeviceUri;

/// Opens the paths of `uri` and joins them.
pub(crate) fn open(uri: MultipathUri, options: &OpenOptions) -> Result<Multipath, OpenError> {
    open_reachable(uri, options, Vec::new(), false)
}

/// Opens the paths of `uri` that can be reached. `left_out`: why others could not. `again`: a path
/// was lost while it was opened, so all begin anew.
fn open_reachable(
    mut uri: MultipathUri,
    options: &OpenOptions,
    mut left_out: Vec<OpenError>,
    again: bool,
) -> Result<Multipath, OpenError> {
    let PathTransports { transports, pool, subsystem } =
        match uri.paths.first().map(|path| &path.device) {
            Some(PathDevice::Tcp(_)) => over_tcp(&mut uri, options, &mut left_out)?,
            Some(PathDevice::Served(_)) => served(&uri, options)?,
            _ => embedded(&uri, options)?,
        };
    // Shared by all controllers' tasks, which report their state there.
    let path_states =
        Arc::new(PathStates::new(uri.paths.len(), options.software(), uri.keep_alive));
    for error in &left_out {
        let note = EventKind::Note(format!("a path cannot be reached, and is left out: {error}"));
        path_states.events.push(None, note);
    }
    let mut controllers = Vec::with_capacity(uri.paths.len());
    let mut inventories = Vec::with_capacity(uri.paths.len());
    let mut lost = None;
    for ((n, path), transport) in (0..).zip(&uri.paths).zip(transports) {
        let path_handle = PathHandle { path_states: path_states.clone(), path: PathId(n) };
        // One after the other: an error closes those that are open already.
        match controller_task::open(transport, Some(path_handle), &path.text, options) {
            Ok((controller, inventory)) => {
                controllers.push(controller);
                inventories.push(inventory);
            }
            Err(error) => {
                lost = Some((usize::from(n), error));
                break;
            }
        }
    }
    if let Some((n, error)) = lost {
        let over_tcp = matches!(uri.paths[n].device, PathDevice::Tcp(_));
        if !over_tcp || !error.is_unreachable() || uri.paths.len() == 1 {
            return Err(error);
        }
        // Connected, but lost since. A slow target may have ended it for want of Keep Alive, while
        // other paths were connected: once more. The tasks know the indices of their paths, so all
        // are opened anew.
        drop(controllers);
        if again {
            uri.paths.remove(n);
            left_out.push(error);
        }
        return open_reachable(uri, options, left_out, true);
    }
    let identities = identities(&uri, &inventories)?;
    path_states.set_namespace(&join(&identities).map_err(|e| OptionsError::Paths(e.to_string()))?);
    for n in 0..uri.paths.len() {
        // ANA states are read after joining: only now is it known which namespace they concern.
        path_states.request_refresh(PathId(n as u8));
    }
    controllers.iter().for_each(OpenController::wake_task);
    let control = subsystem.control();
    // After all paths are up: the script's clock begins with a complete device.
    apply_script(&uri, &control)?;
    let multipath =
        assemble(uri, options, controllers.into(), &inventories, (path_states, pool, control))?;
    multipath.kick_device();
    Ok(multipath)
}

/// The transports of all paths, over one pool.
struct PathTransports {
    transports: Vec<RingController>,
    pool: DmaPool,
    /// The subsystem of embedded controllers; empty if the controllers are in other processes.
    subsystem: Subsystem,
}

/// Opens embedded controllers.
fn embedded(uri: &MultipathUri, options: &OpenOptions) -> Result<PathTransports, OpenError> {
    let dma = DmaContext::new(options.pool_bytes)?;
    let mut subsystem = shared_subsystem(&uri.paths)?;
    let transport = |(n, path): (usize, &PathUri)| {
        let device = embedded_uri(path)?;
        let member = SubsystemMember {
            subsystem: &mut subsystem,
            ana: path.ana,
            controller: path.controller,
            path: n,
        };
        RingController::embedded(device, &options.embedded, dma.clone(), Some(member))
    };
    let transports = uri.paths.iter().enumerate().map(transport).collect::<Result<_, _>>()?;
    Ok(PathTransports { transports, pool: dma.pool, subsystem })
}

/// Opens controllers of other processes. All are connected before the pool is made, because its
/// memory is mapped at each of them.
fn served(uri: &MultipathUri, options: &OpenOptions) -> Result<PathTransports, OpenError> {
    let connect = |path: &PathUri| match &path.device {
        PathDevice::Served(uri) => ConnectedController::connect(uri, options),
        _ => Err(OptionsError::Paths(format!(
            "path `{}` is not a `vfio-user:` controller",
            path.text
        ))
        .into()),
    };
    let connected = uri.paths.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    let (shared, mut note) = vfio_user::shared_pool(&connected, options)?;
    let transports = connected
        .into_iter()
        .map(|controller| controller.join(&shared, note.take(), options.pool_bytes))
        .collect::<Result<_, _>>()?;
    Ok(PathTransports { transports, pool: shared.dma.pool, subsystem: elsewhere()? })
}

/// Connects to controllers over NVMe/TCP, those included that discovery controllers name. Paths that
/// cannot be reached are left out; one is enough.
fn over_tcp(
    uri: &mut MultipathUri,
    options: &OpenOptions,
    left_out: &mut Vec<OpenError>,
) -> Result<PathTransports, OpenError> {
    let mut paths = Vec::new();
    for path in std::mem::take(&mut uri.paths) {
        match &path.device {
            PathDevice::Tcp(tcp) if tcp.discover => {
                let found = tcp::addresses(tcp)
                    .map_err(|fault| OpenError::Tcp { address: tcp.address(), fault })?;
                let to_path =
                    |tcp| PathUri { node: path.node, ..PathUri::new(PathDevice::Tcp(tcp)) };
                paths.extend(found.into_iter().map(to_path));
            }
            _ => paths.push(path),
        }
    }
    let (dma, mut transports) = (DmaContext::new(options.pool_bytes)?, Vec::new());
    let connect = |path: &PathUri| match &path.device {
        PathDevice::Tcp(device) => {
            // One KATO, in Connect and in Set Features: the fence counts from it.
            tcp::open(&device.with_keep_alive(uri.keep_alive), dma.clone(), options)
        }
        _ => {
            let what = format!("path `{}` is not a `tcp:` controller", path.text);
            Err(OptionsError::Paths(what).into())
        }
    };
    // All at the same time: an address that does not answer takes seconds.
    let connected: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = paths.iter().map(|path| scope.spawn(|| connect(path))).collect();
        threads.into_iter().map(ScopedJoinHandle::join).collect()
    });
    for (path, result) in paths.into_iter().zip(connected) {
        match result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(transport) => {
                transports.push(transport);
                uri.paths.push(path);
            }
            Err(error) if error.is_unreachable() => left_out.push(error),
            Err(error) => return Err(error),
        }
    }
    if transports.is_empty()
        && let Some(error) = left_out.pop()
    {
        return Err(error);
    }
    uri.check().map_err(OptionsError::Paths)?;
    Ok(PathTransports { transports, pool: dma.pool, subsystem: elsewhere()? })
}

/// A subsystem without controllers: `control` refuses every path.
fn elsewhere() -> Result<Subsystem, OpenError> {
    Ok(Subsystem::new("nqn.2026-11.reap:elsewhere")
        .map_err(|e| OptionsError::Paths(e.to_string()))?)
}

/// The URI of a path's embedded controller.
///
/// # Errors
/// The path leads to another process.
pub(crate) fn embedded_uri(path: &PathUri) -> Result<&DeviceUri, OpenError> {
    match &path.device {
        PathDevice::Embedded(device) => Ok(device),
        _ => Err(OptionsError::Paths(format!(
            "path `{}` leads to a controller of another process",
            path.text
        ))
        .into()),
    }
}

/// The subsystem that has the paths' controllers. Paths with different media are refused here: once
/// they are open, only the namespaces' names could be compared.
pub(crate) fn shared_subsystem(paths: &[PathUri]) -> Result<Subsystem, OpenError> {
    let Some((first, others)) = paths.split_first() else {
        return Err(OptionsError::Paths("multipath needs at least one path".into()).into());
    };
    let device = embedded_uri(first)?;
    for (n, path) in (1..).zip(others) {
        let differences = embedded_uri(path)?.medium_differences(device).into_iter();
        let texts: Vec<_> = differences
            .map(|(field, here, there)| format!("{field} is {here}, and {there} on path 0"))
            .collect();
        if !texts.is_empty() {
            let texts = texts.join("; ");
            return Err(OptionsError::Paths(format!(
                "path {n} (`{}`) leads to another namespace than path 0 (`{}`): {texts}. Paths have to name the same medium",
                path.text, first.text
            ))
            .into());
        }
    }
    subsystem(device)
}

/// The identity of the namespace that each path leads to.
fn identities(
    uri: &MultipathUri,
    inventories: &[Inventory],
) -> Result<Vec<PathIdentity>, OpenError> {
    let identity = |(n, (path, inventory)): (usize, (&PathUri, &Inventory))| {
        // The first namespace if the URI names none.
        let wanted = |ns: &&driver::Namespace| uri.nsid.is_none_or(|nsid| ns.nsid.0 == nsid);
        let namespace = inventory.namespaces.iter().find(wanted).ok_or_else(|| {
            let there = inventory
                .namespaces
                .iter()
                .map(|ns| ns.nsid.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            let there = if there.is_empty() {
                "it has none that can be used".to_owned()
            } else {
                format!("it has {there}")
            };
            OptionsError::Paths(format!(
                "path {n} (`{}`) does not lead to namespace {}: {there}",
                path.text,
                uri.nsid.unwrap_or(1)
            ))
        })?;
        Ok(PathIdentity::new(inventory, namespace))
    };
    uri.paths.iter().zip(inventories).enumerate().map(identity).collect()
}

/// Applies the paths' delays and starts the script.
fn apply_script(uri: &MultipathUri, control: &PathControl) -> Result<(), OpenError> {
    let options = |e: emu::NoSuchPath| OptionsError::Paths(e.to_string());
    for (n, path) in uri.paths.iter().enumerate().filter(|(_, path)| path.delay > Nanos::ZERO) {
        control.apply(n, Change::Delay(path.delay)).map_err(options)?;
    }
    Ok(control.play(&uri.script, hw::now()).map_err(options)?)
}

/// The distance between each memory node and each path's controller; unknown for a path without
/// `node=`.
fn distances(uri: &MultipathUri, nodes: &hw::Nodes) -> Result<Distances, OpenError> {
    let count = nodes.count() as u16;
    let mut named =
        uri.paths.iter().enumerate().filter_map(|(n, path)| Some((n, path, path.node?)));
    // A typing error, not an unknown distance.
    if let Some((n, path, node)) = named.find(|&(.., node)| nodes.distance(node, node).is_none()) {
        return Err(OptionsError::Paths(format!(
            "path {n} (`{}`): there is no memory node {node} here; there are {count}, counted from 0",
            path.text
        ))
        .into());
    }
    let distance = |from: u16, path: &PathUri| {
        path.node.and_then(|node| nodes.distance(from, node)).unwrap_or(Distances::UNKNOWN)
    };
    Ok(Distances(
        (0..count)
            .map(|from| uri.paths.iter().map(|path| distance(from, path)).collect())
            .collect(),
    ))
}

fn assemble(
    uri: MultipathUri,
    options: &OpenOptions,
    controllers: Arc<[OpenController]>,
    inventories: &[Inventory],
    (path_states, pool, control): (Arc<PathStates>, DmaPool, PathControl),
) -> Result<Multipath, OpenError> {
    let count = controllers.len();
    let found = |controller: &OpenController| {
        let wanted = |ns: &&Namespace| uri.nsid.is_none_or(|nsid| ns.nsid().0 == nsid);
        // Unlimited: requests are checked against the device's namespace, and the controller checks
        // them again.
        let found = controller
            .namespaces()
            .iter()
            .find(wanted)
            .map(|namespace| namespace.with_blocks(u64::MAX));
        found.ok_or_else(|| OptionsError::Paths("a namespace was removed".into()))
    };
    let path_namespaces = controllers.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let Some((first, controller)) = path_namespaces.first().zip(controllers.first()) else {
        return Err(OptionsError::Paths("multipath needs at least one path".into()).into());
    };
    // The device's own number: its requests are checked against this, not against a path's.
    let number = transport::next_number();
    // The device supports only what every path supports.
    let splitter = path_namespaces
        .iter()
        .fold(first.splitter(), |all, namespace| all.and_optional(namespace.splitter()));
    let namespaces = [Namespace::new(first.nsid(), splitter, path_states.blocks(), number)];
    // The paths are controllers of one subsystem: the first one's description serves for all.
    let description = Description { uri: uri.to_string(), ..controller.description().clone() };
    let (queues, nodes) = (options.software(), hw::Nodes::detect());
    let selector = Paths::new(count, distances(&uri, &nodes)?, uri.policy)
        .map_err(|e| OptionsError::Paths(e.to_string()))?;
    Ok(Multipath {
        path_states,
        selector: Arc::new(selector),
        failover: uri.failover,
        traits: inventories.iter().map(PathTraits::of).collect(),
        namespaces,
        path_namespaces,
        number,
        pool,
        description,
        free: Mutex::new((0..queues).rev().collect()),
        software_queues: queues,
        nodes,
        path_counters: (0..queues * count).map(|_| CachePadded::default()).collect(),
        counters: Mutex::new(vec![MultipathCounters::default(); queues]),
        control,
        controllers,
        uri,
    })
}
