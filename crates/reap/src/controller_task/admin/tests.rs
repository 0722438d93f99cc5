use driver::{AdminCommand, Purpose};
use nvme::admin::{Identify, cns};
use nvme::prp::Dptr;
use nvme::{Nsid, Sqe};
use units::Nanos;

use super::Admin;
use crate::options::OpenOptions;
use crate::transport::RingController;

/// A shutdown begins while a log page is read. The first completion is of another command, so the
/// page stays lent.
#[test]
fn log_page_survives_other_completions() {
    let options = OpenOptions::default();
    let controller = RingController::embedded(
        &"mem:1M".parse().unwrap(),
        &options.embedded,
        crate::transport::DmaContext::new(options.pool_bytes).unwrap(),
        None,
    )
    .unwrap();
    let mut admin = Admin::new(&controller, options.pool_bytes).unwrap();
    let sqe = Identify::new(cns::CONTROLLER, Nsid(0), Dptr::NONE).to_sqe();
    let reading = Purpose::Own(2);
    assert!(admin.post(&controller, AdminCommand { sqe, needs_page: true }, reading, Nanos::ZERO));
    assert!(admin.post(&controller, AdminCommand { sqe: Sqe::default(), needs_page: false }, Purpose::Sequence, Nanos::ZERO));
    assert_eq!(admin.take_page(Purpose::Sequence).len(), 0);
    assert!(!admin.post(&controller, AdminCommand { sqe, needs_page: true }, Purpose::Sequence, Nanos::ZERO), "the page is out");
    assert_eq!(admin.take_page(reading).len(), 4096);
    assert_eq!(admin.take_page(reading).len(), 0, "it was taken already");
}
