//! Opening: from a link to a controller that is up.

use std::sync::Arc;

use blkmq::QueueMap;
use driver::Inventory;
use units::Nanos;

use super::housekeeping;
use crate::error::OpenError;
use crate::link::RingLink;
use crate::options::OpenOptions;
use crate::shared::board::Seat;
use crate::shared::controller::{Controller, Description, Opened};
use crate::thread::cycle;

/// Brings up the controller of `link`, which was opened as `uri`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(link: RingLink, seat: Option<Seat>, uri: &str, options: &OpenOptions) -> Result<(Controller, Inventory), OpenError> {
    if options.timeout == Nanos::ZERO {
        return Err(OpenError::Options("with a time-out of 0 every command would be late at once; give `timeout` some seconds".into()));
    }
    cycle::prepare(options.mode);
    let (opened, inventory) = housekeeping::bring_up(Arc::new(link), seat, options)?;
    let map = QueueMap::new(options.software_queues, opened.queues.len()).map_err(|e| OpenError::Options(e.to_string()))?;
    let place = |software: usize| {
        let hardware = map.hardware_of(software);
        (hardware, (software - map.software_of(hardware).start) as u8)
    };
    let description = Description { uri: uri.to_owned(), ..opened.description };
    let free = (0..options.software_queues).rev().map(place).collect();
    Ok((Controller::new(Opened { description, ..opened }, free, options.mode, options.latency_slack), inventory))
}
