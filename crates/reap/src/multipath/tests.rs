use nvme::AnaState;
use nvme::log::ana::{AnaGroup, AnaLog};

use super::*;
use driver::multipath::Link;

/// A life of a path as the housekeeping thread tells it, and what a queue reads.
#[test]
fn the_board_counts_lives_and_keeps_the_state() {
    let board = Arc::new(Board::new(2, Nanos::ZERO));
    board.set_group(7);
    let seat = Seat { board: board.clone(), path: PathId(1) };
    let before = board.changes();
    seat.set_link(Link::Live);
    let log = |state: AnaState| {
        let group = AnaGroup { group: 7, state: state.0, ..AnaGroup::default() };
        AnaLog { change_count: 1, groups: vec![(group, Vec::new())] }
    };
    seat.set_ana(&log(AnaState::NON_OPTIMIZED));
    let standing = board.standing(PathId(1));
    assert_eq!((standing.life, standing.link, standing.ana), (1, Link::Live, AnaState::NON_OPTIMIZED));
    assert_eq!(board.changes(), before + 2);
    // The same again is no news; another link is, even if it is the old one again.
    seat.set_ana(&log(AnaState::NON_OPTIMIZED));
    assert_eq!(board.changes(), before + 2);
    seat.set_link(Link::Lost);
    seat.set_link(Link::Live);
    assert_eq!((board.standing(PathId(1)).life, board.changes()), (3, before + 4));
    assert_eq!(board.standing(PathId(0)).link, Link::Connecting);
    // A path that there is not is a lost one.
    assert_eq!(board.standing(PathId(9)).link, Link::Lost);
}

#[test]
fn a_wish_is_taken_once() {
    let board = Arc::new(Board::new(1, Nanos::ZERO));
    let seat = Seat { board: board.clone(), path: PathId(0) };
    assert!(!seat.take_reset_wish() && !seat.take_ana_wish());
    board.ask_reset(PathId(0));
    board.ask_ana(PathId(0));
    assert!(seat.take_reset_wish() && seat.take_ana_wish());
    assert!(!seat.take_reset_wish() && !seat.take_ana_wish());
}
