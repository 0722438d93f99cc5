//! Every interleaving of two submitters with a switch of policy between them (`--cfg loom`, see `docs/testing.md`).

use handover::sync::{Arc, model, thread};
use units::{Class, Nanos, Op};

use super::*;

/// How a request that has ended is taken out of its count.
#[derive(Clone, Copy)]
enum TakeBack {
    Right,
    /// Load, then store: another request's may come in between.
    TwoSteps,
    /// By what the policy is at that moment.
    ByPolicy,
}

impl TakeBack {
    fn end(self, paths: &Paths, token: Token) {
        let class = Class::new(Op::Read, 4096);
        match self {
            TakeBack::Right => paths.end(token, Nanos(10), Nanos(10), &mut ()),
            TakeBack::TwoSteps => paths.counts.take_in_two_steps(token.path),
            TakeBack::ByPolicy => {
                let counted = match paths.policy() {
                    Policy::QueueDepth(counting) => Counted::In(counting.table()),
                    Policy::Latency => Counted::Load(class, 1),
                    Policy::Numa | Policy::RoundRobin => Counted::Nowhere,
                };
                paths.end(Token { counted, ..token }, Nanos(10), Nanos(10), &mut ());
            }
        }
    }
}

/// Two threads have a request each in flight on the same path; a third switches the policy meanwhile.
fn two_submitters(from: Policy, to: Policy, how: TakeBack) {
    model(move || {
        let shape = Shape { paths: 1, queues: 1, cpus: 1, namespaces: 1, distances: Distances::default() };
        let paths = Arc::new(Paths::new(shape, from).unwrap());
        let submitters = [0, 1].map(|_| {
            let paths = paths.clone();
            thread::spawn(move || {
                let place = paths.place(0, 0, 0, 0);
                let token = paths.start(PathId(0), &place, Class::new(Op::Read, 4096), Nanos::ZERO, &mut ());
                how.end(&paths, token);
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
fn counting_down_in_two_steps_is_caught() {
    two_submitters(CONTROLLER, CONTROLLER, TakeBack::TwoSteps);
}

#[test]
#[should_panic(expected = "something is still counted")]
fn taking_back_by_the_policy_of_the_moment_is_caught() {
    two_submitters(CONTROLLER, CPU, TakeBack::ByPolicy);
}
