//! Opening a device: from a transport to an [`OpenController`] that is up. If an open fails,
//! nothing is left running.

use std::sync::Arc;

use driver::Inventory;
use driver::{MapError, QueueMap};
use units::Nanos;

use super::file_task::FileTask;
use super::housekeeping;
use crate::error::{OpenError, OptionsError};
use crate::options::OpenOptions;
use crate::shared::controller::{Description, NamespaceSizes, OpenController, Opened};
use crate::shared::events::EventKind;
use crate::shared::path_states::PathHandle;
use crate::shared::queue_shared::FileQueues;
use crate::shared::queue_table::QueueTable;
use crate::thread::sleep_cost;
use crate::transport::{KernelFile, RingController, Transport};

/// The maximum number of requests in flight on a ring. Their completions must fit in a CQ of twice
/// as many entries.
const MAX_DEPTH: u32 = 8192;

/// Brings up the controller behind `controller`, which was opened as `uri`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(
    controller: RingController,
    path_handle: Option<PathHandle>,
    uri: &str,
    options: &OpenOptions,
) -> Result<(OpenController, Inventory), OpenError> {
    check_timeout(options)?;
    // Before the first queue is taken: a measurement takes 10 ms.
    sleep_cost::prepare(options.mode);
    let (opened, inventory) = housekeeping::bring_up(Arc::new(controller), path_handle, options)?;
    let software = options.software_over(opened.queues.len());
    let map = QueueMap::new(software, opened.queues.len()).map_err(OptionsError::from)?;
    let place = |software: usize| {
        let hardware = map.hardware_of(software);
        (hardware, (software - map.software_of(hardware).start) as u8)
    };
    let description = Description { uri: uri.to_owned(), ..opened.description };
    // Descending: the table is a stack, and the first thread gets the first queue.
    let free = (0..software).rev().map(place).collect();
    let queue_table = QueueTable::new(opened.queues.clone(), free);
    Ok((
        OpenController::new(
            Opened { description, ..opened },
            queue_table,
            Arc::new(FileQueues::new(0)),
            options,
        ),
        inventory,
    ))
}

/// Opens the file or block device `kernel_file`, which was opened as `uri`. Its queues are made
/// when they are taken.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open_file(
    kernel_file: KernelFile,
    uri: &str,
    options: &OpenOptions,
) -> Result<OpenController, OpenError> {
    check_timeout(options)?;
    sleep_cost::prepare(options.mode);
    let kernel_file = Arc::new(kernel_file);
    let (namespace, queues) = (kernel_file.namespace()?, options.software_queues.unwrap_or(256));
    if queues == 0 || queues > usize::from(u16::MAX) {
        return Err(OptionsError::from(MapError::Software(queues)).into());
    }
    let files = Arc::new(FileQueues::new(queues));
    let control = housekeeping::add_file(|control| {
        Box::new(FileTask::new(control.shared(), files.clone(), options.timeout))
    })?;
    let identity = &kernel_file.target().facts().identity;
    // Sysfs does not have all of them for every device.
    let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
    let description = Description {
        uri: uri.to_owned(),
        model: or_empty(&identity.model),
        serial: or_empty(&identity.serial),
        firmware: or_empty(&identity.firmware),
        version: "io_uring".to_owned(),
        hardware_queues: queues,
        depth: options.depth.clamp(1, MAX_DEPTH),
        refused: Vec::new(),
    };
    kernel_file
        .target()
        .notes()
        .iter()
        .for_each(|note| control.reporter().push(EventKind::Note(note.clone())));
    let namespaces = vec![namespace];
    let sizes = NamespaceSizes::of(&[], kernel_file.number());
    let opened = Opened {
        transport: Transport::Kernel(kernel_file),
        queues: Vec::new(),
        namespaces,
        sizes,
        control,
        description,
    };
    Ok(OpenController::new(opened, QueueTable::default(), files, options))
}

fn check_timeout(options: &OpenOptions) -> Result<(), OpenError> {
    // Every request would be late at once.
    if options.timeout == Nanos::ZERO {
        return Err(OptionsError::NoTimeout.into());
    }
    Ok(())
}
