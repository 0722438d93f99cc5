use std::io::Write;

use completion::{Batch, Mode, Route};

use super::*;
use crate::keeper::Control;
use crate::link::{KernelLink, Reaper};
use crate::request::Request;
use crate::shared::book::Claim;
use crate::shared::reports::Kick;
use crate::shared::roster::Maker;
use crate::{Device, KernelUri, OpenOptions};

/// A request counts as late, and is reported, once its time-out has passed, and only once.
#[test]
fn late_requests_are_reported_once() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 4096]).unwrap();
    let uri: KernelUri = format!("kernel:{}?readonly=yes", file.path().display()).parse().unwrap();
    let link = match KernelLink::open(&uri, 1 << 20) {
        Ok(link) => Arc::new(link),
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let control = Control::new(Arc::new(Kick::new().unwrap()));
    let roster = Arc::new(Roster::growing(Maker { link: link.clone(), depth: 4, reporter: control.reporter() }, 1));
    let timeout = Nanos::from_secs(10);
    let mut keeper = FileKeeper::new(roster.clone(), control.asks(), timeout);
    let (queue, _) = roster.take(Reaper::Any, Mode::INTERRUPT).unwrap();
    let now = hw::now();
    keeper.turn(now);
    let health = keeper.asks.health().clone();
    assert_eq!((health.aborts, health.events), (0, vec![]), "nothing is in flight");

    let mut book = queue.softs[0].requests();
    let at = book.tickets().issue();
    let ways = (|request: Request| request.check(link.pool()), |_: &Batch| Route::Notify);
    let submitted = queue.submit(0, &mut book, now, (true, Claim::Future(at)), [Request::flush(&link.namespace().unwrap())], ways);
    assert!(submitted.refused.is_none());
    drop(book);
    for later in [now, now + timeout + timeout, now + Nanos(3 * timeout.0)] {
        keeper.turn(later);
        let (health, is_late) = (keeper.asks.health().clone(), later > now);
        assert_eq!((health.aborts, health.events.len()), (u32::from(is_late), usize::from(is_late)), "{:?}", health.events);
    }
}

#[test]
fn software_queues_have_bounds() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 4096]).unwrap();
    let uri = format!("kernel:{}?readonly=yes", file.path().display());
    let open = |queues: usize| Device::open_with(&uri, &OpenOptions::new().software_queues(queues));
    match open(65_535) {
        Ok(_) => {}
        Err(why) => return eprintln!("skipped: {why}"),
    }
    for queues in [0, 65_536] {
        let error = open(queues).unwrap_err().to_string();
        assert!(error.contains(&format!("{queues} software queues: there can be 1 to 65535")), "{error}");
    }
}
