use nvme::{AnaState, Nsid, Status};
use units::{Nanos, Op};

use super::*;
use crate::Namespace;

mod ghost;
mod laws;

const MS: Nanos = Nanos::from_millis(1);

fn traits(volatile_cache: bool) -> PathTraits {
    let quiesce_after = PathTraits::quiesce_after(Nanos::from_millis(100), false, Nanos::from_millis(50));
    PathTraits { quiesce_after, ana_transition: Nanos::from_secs(10), volatile_cache }
}

/// Paths that are all up and optimized.
fn up(paths: usize, config: FailoverConfig) -> Failover {
    let marks = WriteMarks::new(1, paths);
    let mut failover = Failover::new(config, &vec![traits(true); paths], &marks, 0, 8).unwrap();
    (0..paths).for_each(|path| failover.path_up(Nanos::ZERO, PathId(path as u8), AnaState::OPTIMIZED));
    failover
}

fn first(among: PathSet) -> PathId {
    among.first().unwrap()
}

fn poll(failover: &mut Failover, now: Nanos) -> Vec<Action> {
    std::iter::from_fn(|| failover.poll(now, |_, among| first(among))).collect()
}

fn send(failover: &mut Failover, now: Nanos, token: u64, op: Op) -> (RequestId, PathId) {
    match failover.submit(now, token, op, first) {
        Submitted::Send { request, path } => (request, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_on_a_lost_path_waits_until_its_controller_has_come_to_rest() {
    let mut failover = up(2, FailoverConfig::default());
    let (read, _) = send(&mut failover, MS, 1, Op::Read);
    let (write, path) = send(&mut failover, MS, 2, Op::Write);
    assert_eq!(path, PathId(0));
    failover.path_lost(MS, path);
    assert_eq!(poll(&mut failover, MS), [Action::Send { request: read, token: 1, path: PathId(1) }]);
    // Two keep-alive time-outs and the quiesce time.
    assert_eq!(failover.next_deadline(), Nanos::from_millis(251));
    failover.tick(Nanos::from_millis(250));
    assert_eq!(poll(&mut failover, Nanos::from_millis(250)), []);
    failover.tick(Nanos::from_millis(251));
    assert_eq!(poll(&mut failover, Nanos::from_millis(251)), [Action::Send { request: write, token: 2, path: PathId(1) }]);
    assert_eq!((failover.counters().held, failover.counters().longest_hold), (1, Nanos::from_millis(250)));
}

#[test]
fn an_acknowledged_reset_ends_the_wait_and_the_unsafe_way_does_not_wait() {
    let mut failover = up(2, FailoverConfig::default());
    let (write, path) = send(&mut failover, MS, 2, Op::Write);
    failover.path_lost(MS, path);
    assert_eq!(poll(&mut failover, MS), []);
    failover.quiesced(MS, path);
    assert_eq!(poll(&mut failover, MS), [Action::Send { request: write, token: 2, path: PathId(1) }]);
    let mut failover = up(2, FailoverConfig { unsafe_fast_failover: true, ..FailoverConfig::default() });
    let (write, path) = send(&mut failover, MS, 2, Op::Write);
    failover.path_lost(MS, path);
    assert_eq!(poll(&mut failover, MS), [Action::Send { request: write, token: 2, path: PathId(1) }]);
    assert_eq!(failover.counters().unsafe_resends, 1);
}

fn namespace(id: u8) -> Namespace {
    Namespace {
        nsid: Nsid(1),
        blocks: 8,
        block_log2: 9,
        boundary: 0,
        read_only: false,
        shared: true,
        ana_group: 1,
        nguid: [0; 16],
        eui64: [0; 8],
        uuid: [id; 16],
    }
}

fn identity(controller: u16, id: u8) -> PathIdentity {
    PathIdentity { nqn: "nqn.2026-11.test:a".into(), controller, namespace: namespace(id) }
}

#[test]
fn paths_to_one_namespace_join_and_mismatches_are_named() {
    assert_eq!(join(vec![identity(1, 7), identity(2, 7)]).unwrap().namespace(), Some(namespace(7)));
    let message = join(vec![identity(1, 7), identity(2, 8)]).unwrap_err().to_string();
    let expected = "path 1 leads elsewhere than path 0: UUID is 08080808-0808-0808-0808-080808080808, \
                    and 07070707-0707-0707-0707-070707070707 on path 0";
    assert_eq!(message, expected);
}

#[test]
fn statuses_of_the_path_go_elsewhere_and_others_do_not() {
    assert_eq!(verdict(Status::ANA_INACCESSIBLE), Verdict::Elsewhere);
    assert_eq!(verdict(Status::ANA_INACCESSIBLE.with_dnr()), Verdict::Over);
    assert_eq!(verdict(Status::UNRECOVERED_READ_ERROR), Verdict::Over);
    assert_eq!(verdict(Status::COMMAND_INTERRUPTED), Verdict::Again);
}
