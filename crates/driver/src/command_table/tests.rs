use std::collections::HashMap;

use crate::tags::Tags;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;

/// An event of a command table.
#[derive(Clone, Debug)]
enum Event {
    Post,
    /// The n-th command in flight completes.
    Complete(prop::sample::Index),
    /// The n-th command that ever completed completes again.
    Repeat(prop::sample::Index),
    /// A completion for any CID at all.
    Stray(u16),
    /// An Abort for the n-th command in flight is posted.
    Abort(prop::sample::Index),
    /// The n-th Abort completes.
    AbortDone(prop::sample::Index),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let index = any::<prop::sample::Index>;
    prop::collection::vec(
        prop_oneof![
            4 => Just(Event::Post),
            4 => index().prop_map(Event::Complete),
            1 => index().prop_map(Event::Repeat),
            1 => any::<u16>().prop_map(Event::Stray),
            1 => index().prop_map(Event::Abort),
            1 => index().prop_map(Event::AbortDone),
        ],
        0..200,
    )
}

/// Runs the events against a table and a plain map of the commands in flight. Returns the first
/// difference as an error.
fn run(
    (commands, mut right): (CommandTable, Finisher),
    tags: u32,
    events: &[Event],
) -> Result<(), String> {
    let (free, mut taker, mut returner) = Tags::new(tags);
    let mut in_flight: Vec<(Cid, u64)> = Vec::new();
    let mut aborts: Vec<Cid> = Vec::new();
    let mut ended: Vec<Cid> = Vec::new();
    let mut tokens = HashMap::new();
    let pick =
        |list: &[Cid], n: &prop::sample::Index| (!list.is_empty()).then(|| n.index(list.len()));
    for event in events {
        let posted: Vec<Cid> = in_flight.iter().map(|&(cid, _)| cid).collect();
        let completion = match event {
            Event::Post => {
                if let Some(tag) = taker.take(&free) {
                    let token = 1000 + tokens.len() as u64;
                    let cid = commands.begin(tag, token, Nanos(token));
                    if cid.0 == u16::MAX || aborts.contains(&cid) {
                        return Err(format!("CID {cid} must not be used now"));
                    }
                    tokens.insert(token, 0);
                    in_flight.push((cid, token));
                }
                continue;
            }
            Event::Abort(n) => {
                if let Some(n) = pick(&posted, n) {
                    let (cid, token) = in_flight[n];
                    if commands.begin_abort(
                        &mut right,
                        &OutstandingCommand { cid, token, posted_at: Nanos(token) },
                    ) {
                        aborts.push(cid);
                    }
                }
                continue;
            }
            Event::AbortDone(n) => {
                if let Some(n) = pick(&aborts, n)
                    && let Some(tag) = commands.end_abort(&mut right, aborts.swap_remove(n))
                {
                    {
                        returner.add(&free, tag);
                        returner.flush(&free);
                    }
                }
                continue;
            }
            Event::Complete(n) => pick(&posted, n).map(|n| posted[n]),
            // Only while generations are unique: 65,536 / tags of them.
            Event::Repeat(n) => pick(&ended, n).map(|n| ended[n]),
            Event::Stray(cid) => Some(Cid(*cid)),
        };
        let Some(cid) = completion else { continue };
        let expected = in_flight.iter().position(|&(other, _)| other == cid);
        match (commands.complete_slow(&mut right, cid), expected) {
            (Ok((command, tag)), Some(n)) if !matches!(event, Event::Repeat(_)) => {
                let (cid, token) = in_flight.remove(n);
                if command != (OutstandingCommand { cid, token, posted_at: Nanos(token) }) {
                    return Err(format!("{cid} ended as {:?}, not with token {token}", command));
                }
                if let Some(tag) = tag {
                    returner.add(&free, tag);
                    returner.flush(&free);
                }
                *tokens.get_mut(&token).unwrap() += 1;
                ended.push(cid);
            }
            (Err(_), None) => {}
            (other, _) => return Err(format!("completion for {cid} in {event:?} gave {other:?}")),
        }
    }
    let mut left = Vec::new();
    commands.abandon(&mut right, |command| left.push((command.cid, command.token)));
    left.sort();
    in_flight.sort();
    if left != in_flight {
        return Err(format!("in flight {in_flight:?}, but abandoned {left:?}"));
    }
    left.iter().for_each(|(_, token)| *tokens.get_mut(token).unwrap() += 1);
    if let Some((token, times)) = tokens.iter().find(|&(_, &times)| times != 1) {
        return Err(format!("token {token} came back {times} times"));
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_token_returns_once(tags in prop_oneof![1u32..9, Just(200)], events in events()) {
        prop_assert_eq!(run(CommandTable::new(tags), tags, &events), Ok(()));
    }

    /// FFFFh is never a CID, and every tag keeps its place in every generation.
    #[test]
    fn every_generation_names_its_tag(tags in 1u32..=65_535, tag in any::<prop::sample::Index>()) {
        let (commands, mut right) = CommandTable::new(tags);
        let tag = Tag(tag.index(tags as usize) as u16);
        for n in 0..70_000 / u64::from((tags + 1).next_power_of_two()) + 3 {
            let cid = commands.begin(tag, n, Nanos(n));
            prop_assert_ne!(cid.0, u16::MAX);
            let (command, held) = commands.in_flight(cid).unwrap();
            prop_assert_eq!((command.token_and_time(), held), ((n, Nanos(n)), tag));
            command.end(cid, &mut right);
            prop_assert!(commands.in_flight(cid).is_none());
        }
    }
}

/// Mutant without generations: takes a repeated completion for the slot's next command's.
#[test]
fn a_table_without_generations_is_caught() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let caught = (0..200).any(|_| {
        let events = events().new_tree(&mut runner).unwrap().current();
        run(CommandTable::with_step(4, 7, 0), 4, &events).is_err()
    });
    assert!(caught);
}

#[test]
fn expired_commands_have_their_state() {
    let (commands, mut right) = CommandTable::new(4);
    let cids: Vec<_> =
        (0..3).map(|n| commands.begin(Tag(n), u64::from(n), Nanos(u64::from(n) * 10))).collect();
    let first = OutstandingCommand { cid: cids[0], token: 0, posted_at: Nanos(0) };
    assert!(commands.begin_abort(&mut right, &first));
    assert!(!commands.begin_abort(&mut right, &first));
    let mut out = Vec::new();
    commands.expired(Nanos(110), Nanos(100), &mut out);
    let seen: Vec<_> = out.iter().map(|e| (e.command.token, e.state)).collect();
    assert_eq!(seen, [(0, CommandState::Aborting), (1, CommandState::InFlight)]);

    // The Abort completes first: the command is still in flight. Its completion returns the tag.
    assert_eq!(commands.end_abort(&mut right, cids[0]), None);
    assert_eq!(commands.stage(cids[0]), Some(CommandState::Aborted));
    assert_eq!(commands.complete_slow(&mut right, cids[0]).unwrap().1, Some(Tag(0)));

    // The command completes first: the CID stays reserved for the Abort, and a second completion is
    // recognised.
    let second = OutstandingCommand { cid: cids[1], token: 1, posted_at: Nanos(10) };
    assert!(commands.begin_abort(&mut right, &second));
    assert_eq!(commands.complete_slow(&mut right, cids[1]).unwrap().1, None);
    assert_eq!(commands.complete_slow(&mut right, cids[1]), Err(CompletionError::Duplicate));
    assert_eq!(commands.end_abort(&mut right, cids[1]), Some(Tag(1)));
}
