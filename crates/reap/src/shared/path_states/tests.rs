use nvme::AnaState;
use nvme::log::ana::{AnaGroup, AnaLog};

use super::*;
use driver::multipath::Link;

fn namespace() -> driver::Namespace {
    driver::Namespace {
        nsid: nvme::Nsid(1),
        blocks: 100,
        block_log2: 9,
        boundary: 0,
        read_only: false,
        deallocates_zeroes: true,
        shared: true,
        ana_group: 7,
        nguid: [1; 16],
        eui64: [1; 8],
        uuid: [1; 16],
    }
}

/// A new size holds for the namespace; paths with another size are not used until they report it
/// too.
#[test]
fn new_sizes_are_published() {
    let path_states = Arc::new(PathStates::new(2, 1, Nanos::ZERO));
    let path_handles = [0, 1].map(|path| PathHandle { path_states: path_states.clone(), path: PathId(path) });
    let fits = || [0, 1].map(|path| path_states.snapshot(PathId(path)).fits);
    path_states.set_namespace(&namespace());
    path_handles[0].set_blocks(nvme::Nsid(1), 100);
    assert_eq!((fits(), path_states.blocks()), ([true, true], 100));
    path_handles[1].set_blocks(nvme::Nsid(1), 100);
    path_handles[1].set_blocks(nvme::Nsid(2), 7);
    assert_eq!((fits(), path_states.blocks()), ([true, true], 100), "another namespace is another matter");
    path_handles[1].set_blocks(nvme::Nsid(1), 50);
    assert_eq!((fits(), path_states.blocks()), ([false, true], 50));
    // A controller that repeats the old size has not seen the resize yet.
    path_handles[0].set_blocks(nvme::Nsid(1), 100);
    assert_eq!((fits(), path_states.blocks()), ([false, true], 50));
    path_handles[0].set_blocks(nvme::Nsid(1), 50);
    assert_eq!((fits(), path_states.blocks()), ([true, true], 50));
    // Detached from one controller: the others still have it.
    path_handles[1].set_blocks(nvme::Nsid(1), 0);
    assert_eq!((fits(), path_states.blocks()), ([true, false], 50));
    path_handles[1].set_blocks(nvme::Nsid(1), 50);
    assert_eq!((fits(), path_states.blocks()), ([true, true], 50));
}

/// The size after a reconnect is not taken for a resize: the path is not used until the sizes
/// agree.
#[test]
fn stale_sizes_are_ignored() {
    let path_states = Arc::new(PathStates::new(2, 1, Nanos::ZERO));
    let path_handles = [0, 1].map(|path| PathHandle { path_states: path_states.clone(), path: PathId(path) });
    let fits = || [0, 1].map(|path| path_states.snapshot(PathId(path)).fits);
    path_states.set_namespace(&namespace());
    path_handles.each_ref().map(|path_handle| path_handle.set_blocks(nvme::Nsid(1), 100));
    path_handles[0].set_reconnected_size(nvme::Nsid(1), 50);
    path_handles[0].set_blocks(nvme::Nsid(1), 50);
    path_handles[0].set_reconnected_size(nvme::Nsid(2), 7);
    assert_eq!((fits(), path_states.blocks()), ([false, true], 100));
    path_handles[1].set_blocks(nvme::Nsid(1), 50);
    assert_eq!((fits(), path_states.blocks()), ([true, true], 50), "another path's controller tells of the change");
    path_handles[0].set_reconnected_size(nvme::Nsid(1), 50);
    assert_eq!((fits(), path_states.blocks()), ([true, true], 50));
}

/// The states of a path as the task sets them, and as a queue reads them.
#[test]
fn path_states_count_link_changes() {
    let path_states = Arc::new(PathStates::new(2, 1, Nanos::ZERO));
    path_states.set_namespace(&namespace());
    let path_handle = PathHandle { path_states: path_states.clone(), path: PathId(1) };
    let before = path_states.changes();
    path_handle.set_link(Link::Live);
    let log = |state: AnaState| {
        let group = AnaGroup { group: 7, state: state.0, ..AnaGroup::default() };
        AnaLog { change_count: 1, groups: vec![(group, Vec::new())] }
    };
    path_handle.set_ana(&log(AnaState::NON_OPTIMIZED));
    let snapshot = path_states.snapshot(PathId(1));
    assert_eq!((snapshot.life, snapshot.link, snapshot.ana), (1, Link::Live, AnaState::NON_OPTIMIZED));
    assert_eq!(path_states.changes(), before + 2);
    // The same ANA state is no change. Setting the link always is.
    path_handle.set_ana(&log(AnaState::NON_OPTIMIZED));
    assert_eq!(path_states.changes(), before + 2);
    path_handle.set_link(Link::Lost);
    path_handle.set_link(Link::Live);
    assert_eq!((path_states.snapshot(PathId(1)).life, path_states.changes()), (3, before + 4));
    assert_eq!(path_states.snapshot(PathId(0)).link, Link::Connecting);
    // A path that does not exist is lost.
    assert_eq!(path_states.snapshot(PathId(9)).link, Link::Lost);
}

#[test]
fn path_requests_are_taken_once() {
    let path_states = Arc::new(PathStates::new(1, 1, Nanos::ZERO));
    let path_handle = PathHandle { path_states: path_states.clone(), path: PathId(0) };
    assert!(!path_handle.take_reset_request() && !path_handle.take_refresh_request());
    path_states.request_reset(PathId(0));
    path_states.request_refresh(PathId(0));
    assert!(path_handle.take_reset_request() && path_handle.take_refresh_request());
    assert!(!path_handle.take_reset_request() && !path_handle.take_refresh_request());
}
