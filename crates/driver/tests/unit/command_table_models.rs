//! Every interleaving of a lockless scan with the life of a slot (`--cfg loom`).

use sync::model::check;
use sync::{Arc, thread};

use super::*;

/// How a slot is read and filled: as the table does, or as a mutant.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Right,
    /// Without the second read of the state.
    OneLook,
    /// The state is stored before the fields.
    StateFirst,
}

fn begin(commands: &CommandTable, how: How, token: u64) -> Cid {
    if how != How::StateFirst {
        return commands.begin(Tag(0), token, Nanos(token));
    }
    let slot = &commands.slots[0];
    let cid = commands.next_cid(slot.state.load(Relaxed) as u16);
    slot.state.store(CommandState::InFlight.bits(cid), Release);
    slot.token.store(token, Release);
    slot.posted_at.store(token, Release);
    Cid(cid)
}

fn look(commands: &CommandTable, how: How) -> Option<OutstandingCommand> {
    let slot = &commands.slots[0];
    if how != How::OneLook {
        return slot.snapshot().map(|(command, _)| command);
    }
    let state = slot.state.load(Acquire);
    CommandState::of(state).is_in_flight().then(|| slot.command(Cid(state as u16)))
}

/// One command completes and the next takes its slot during a scan. The scan sees one of the two,
/// with all of its fields.
fn housekeeping_scan(how: How) {
    check(move || {
        let commands = Arc::new(CommandTable::new(1).0);
        let first = begin(&commands, how, 1);
        let queue = {
            let commands = commands.clone();
            thread::spawn(move || {
                // As `finish`, without its loads: loom checks for a race with the last access to a
                // location only, and they would hide the scan's.
                commands.slots[0].state.store(CommandState::Free.bits(first.0), Relaxed);
                begin(&commands, how, 2)
            })
        };
        let seen = look(&commands, how);
        let second = queue.join().unwrap();
        let whole = |cid, token| OutstandingCommand { cid, token, posted_at: Nanos(token) };
        assert!(
            seen.is_none_or(|seen| seen == whole(first, 1) || seen == whole(second, 2)),
            "a mix of two commands was seen"
        );
    });
}

#[test]
fn snapshot_is_whole_or_none() {
    housekeeping_scan(How::Right);
}

#[test]
#[should_panic(expected = "a mix of two commands was seen")]
fn single_state_read_is_caught() {
    housekeeping_scan(How::OneLook);
}

#[test]
#[should_panic(expected = "a mix of two commands was seen")]
fn early_state_store_is_caught() {
    housekeeping_scan(How::StateFirst);
}
