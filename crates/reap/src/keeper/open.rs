//! Opening: from a link to a controller that is up.

use std::sync::Arc;

use driver::Inventory;
use driver::{MapError, QueueMap};
use units::Nanos;

use super::files::FileKeeper;
use super::housekeeping;
use crate::error::{OpenError, OptionsError};
use crate::link::{KernelLink, Link, RingLink};
use crate::options::OpenOptions;
use crate::shared::board::Seat;
use crate::shared::controller::{Controller, Description, Opened, Sizes};
use crate::shared::events::EventKind;
use crate::shared::queue_shared::FileQueues;
use crate::shared::roster::Roster;
use crate::thread::cycle;

/// Most requests in flight on a ring: its completions have to fit in twice as many entries.
const MOST_DEPTH: u32 = 8192;

/// Brings up the controller of `link`, which was opened as `uri`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(link: RingLink, seat: Option<Seat>, uri: &str, options: &OpenOptions) -> Result<(Controller, Inventory), OpenError> {
    has_time(options)?;
    cycle::prepare(options.mode);
    let (opened, inventory) = housekeeping::bring_up(Arc::new(link), seat, options)?;
    let software = options.software_over(opened.queues.len());
    let map = QueueMap::new(software, opened.queues.len()).map_err(OptionsError::from)?;
    let place = |software: usize| {
        let hardware = map.hardware_of(software);
        (hardware, (software - map.software_of(hardware).start) as u8)
    };
    let description = Description { uri: uri.to_owned(), ..opened.description };
    let free = (0..software).rev().map(place).collect();
    let roster = Roster::new(opened.queues.clone(), free);
    Ok((Controller::new(Opened { description, ..opened }, roster, Arc::new(FileQueues::new(0)), options), inventory))
}

/// Opens the file or block device of `link`, which was opened as `uri`. Its queues are made as they are taken.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open_file(link: KernelLink, uri: &str, options: &OpenOptions) -> Result<Controller, OpenError> {
    has_time(options)?;
    cycle::prepare(options.mode);
    let link = Arc::new(link);
    let (namespace, queues) = (link.namespace()?, options.software_queues.unwrap_or(256));
    if queues == 0 || queues > usize::from(u16::MAX) {
        return Err(OptionsError::from(MapError::Software(queues)).into());
    }
    let files = Arc::new(FileQueues::new(queues));
    let control = housekeeping::look_after(|control| Box::new(FileKeeper::new(control.asks(), files.clone(), options.timeout)))?;
    let identity = &link.target().facts().identity;
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let description = Description {
        uri: uri.to_owned(),
        model: said(&identity.model),
        serial: said(&identity.serial),
        firmware: said(&identity.firmware),
        version: "io_uring".to_owned(),
        hardware_queues: queues,
        depth: options.depth.clamp(1, MOST_DEPTH),
        refused: Vec::new(),
    };
    link.target().notes().iter().for_each(|note| control.reporter().push(EventKind::Note(note.clone())));
    let namespaces = vec![namespace];
    let sizes = Sizes::of(&[], link.number());
    let opened = Opened { link: Link::Kernel(link), queues: Vec::new(), namespaces, sizes, control, description };
    Ok(Controller::new(opened, Roster::default(), files, options))
}

fn has_time(options: &OpenOptions) -> Result<(), OpenError> {
    if options.timeout == Nanos::ZERO {
        return Err(OptionsError::NoTimeout.into());
    }
    Ok(())
}
