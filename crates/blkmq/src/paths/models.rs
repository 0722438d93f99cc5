//! Every interleaving of two submitters with a switch of policy between them, and of an owner's end with the next one's
//! beginning (`--cfg loom`, see `docs/testing.md`).

use sync::{Arc, model, thread};
use units::{Class, Nanos, Op};

use super::*;

/// How a request that has ended is taken out of its count.
#[derive(Clone, Copy)]
enum TakeBack {
    Right,
    /// As if the thread owned the row: load, then store, and another thread's may come in between.
    AsOwner,
    /// By what the policy is at that moment.
    ByPolicy,
}

fn read() -> Class {
    Class::new(Op::Read, 4096)
}

impl TakeBack {
    fn end(self, paths: &Paths, token: Token, place: &Place) {
        let end = |token| paths.end(token, place, Nanos(10), Nanos(10), &mut ());
        let by = |kind| Token::new(place.row(kind), kind, token.class(), token.path());
        match self {
            TakeBack::Right => end(token),
            TakeBack::AsOwner => paths.counts.take(token.row(), token.path(), token.weight(), true, &mut ()),
            TakeBack::ByPolicy => match paths.policy() {
                Policy::QueueDepth(counting) => end(by(counting.kind())),
                Policy::Latency => end(by(Kind::Loads)),
                Policy::Numa | Policy::RoundRobin => {}
            },
        }
    }
}

fn one_path(policy: Policy) -> Arc<Paths> {
    let shape = Shape { paths: 1, queues: 1, cpus: 1, namespaces: 1, distances: Distances::default() };
    Arc::new(Paths::new(shape, policy).unwrap())
}

/// Two threads, one of which owns the counts, have a request each in flight on the same path; a third switches the policy
/// meanwhile.
fn two_submitters(from: Policy, to: Policy, how: TakeBack) {
    model(move || {
        let paths = one_path(from);
        let places = [0, 1].map(|_| paths.place(0, 0, 0, 0));
        let submitters = places.map(|place| {
            let paths = paths.clone();
            thread::spawn(move || {
                let token = paths.start(PathId(0), &place, read(), Nanos::ZERO, &mut ());
                how.end(&paths, token, &place);
            })
        });
        paths.set_policy(to);
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
        assert_eq!(paths.counted(), 0, "something is still counted");
    });
}

const CONTROLLER: Policy = Policy::QueueDepth(Counting::Controller);
const CPU: Policy = Policy::QueueDepth(Counting::Cpu);

#[test]
fn counts_come_back_to_zero() {
    two_submitters(CONTROLLER, CPU, TakeBack::Right);
    two_submitters(Policy::RoundRobin, CONTROLLER, TakeBack::Right);
}

#[test]
#[should_panic(expected = "something is still counted")]
fn two_threads_that_write_as_the_owner_are_caught() {
    two_submitters(CONTROLLER, CONTROLLER, TakeBack::AsOwner);
}

#[test]
#[should_panic(expected = "something is still counted")]
fn taking_back_by_the_policy_of_the_moment_is_caught() {
    two_submitters(CONTROLLER, CPU, TakeBack::ByPolicy);
}

/// One owner leaves the CPU with a request in flight, and takes it back from elsewhere; another becomes the owner.
fn a_row_changes_hands(claim: fn(&Paths) -> Place) {
    model(move || {
        let paths = one_path(CPU);
        let first = paths.place(0, 0, 0, 0);
        let early = {
            let (paths, mut first) = (paths.clone(), first);
            thread::spawn(move || {
                let token = paths.start(PathId(0), &first, read(), Nanos::ZERO, &mut ());
                paths.leave(&mut first);
                paths.end(token, &first, Nanos(10), Nanos(10), &mut ());
            })
        };
        let second = claim(&paths);
        let token = paths.start(PathId(0), &second, read(), Nanos::ZERO, &mut ());
        paths.end(token, &second, Nanos(10), Nanos(10), &mut ());
        early.join().unwrap();
        assert_eq!(paths.counted(), 0, "something is still counted");
    });
}

#[test]
fn a_row_changes_hands_with_requests_in_flight() {
    a_row_changes_hands(|paths| paths.place(0, 0, 0, 0));
}

#[test]
#[should_panic(expected = "something is still counted")]
fn an_owner_that_does_not_see_what_was_written_before_it_is_caught() {
    // A claim without the acquire: nobody has the row, and that is all that is known.
    a_row_changes_hands(|paths| {
        let mut place = paths.place(0, 0, 0, 0);
        place.settle_unseen(&paths.counts);
        place
    });
}
