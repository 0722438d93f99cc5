use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use units::Op;

use super::*;

mod judged;
mod world;

fn selector(paths: usize, policy: Policy, number: usize) -> Selector {
    Selector::new(Arc::new(Paths::new(paths, Distances::default(), policy).unwrap()), number)
}

fn read(bytes: u32) -> Class {
    Class::new(Op::Read, bytes)
}

/// A batch of `n` requests among all paths, committed; none of them ends.
fn send(selector: &mut Selector, n: usize, now: Nanos) -> Vec<Token> {
    selector.begin(now);
    let all = selector.shared.all();
    let tokens = (0..n).map(|_| selector.send_next(all, read(4096), now).unwrap()).collect();
    selector.commit(now);
    tokens
}

fn choose(selector: &mut Selector, usable: PathSet) -> Option<PathId> {
    selector.begin(Nanos::ZERO);
    let token = selector.send_next(usable, read(512), Nanos::ZERO);
    selector.commit(Nanos::ZERO);
    token.map(|token| token.path())
}

fn counted(selector: &Selector) -> u32 {
    selector.counts.iter().sum()
}

fn spread(tokens: &[Token], paths: u8) -> Vec<usize> {
    (0..paths)
        .map(|path| tokens.iter().filter(|token| token.path() == PathId(path)).count())
        .collect()
}

#[test]
fn policies_parse_their_names() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
        assert_eq!(Policy::from_bits(policy as u8), policy);
    }
    assert!(
        "latensy".parse::<Policy>().unwrap_err().to_string().contains("did you mean `latency`?")
    );
    assert!(
        "best".parse::<Policy>().unwrap_err().to_string().contains("known are numa, round-robin")
    );
}

#[test]
fn path_counts_have_limits() {
    for (count, fits) in [(0, false), (1, true), (64, true), (65, false)] {
        assert_eq!(Paths::new(count, Distances::default(), Policy::Numa).is_ok(), fits, "{count}");
    }
}

#[test]
fn numa_takes_nearest_usable_path() {
    let distances = Distances(vec![vec![10, 21, 21], vec![21, 10, 10]]);
    let mut selector = Selector::new(Arc::new(Paths::new(3, distances, Policy::Numa).unwrap()), 0);
    let all = PathSet::below(3);
    let mut on = |node, usable| {
        selector.set_node(node);
        choose(&mut selector, usable)
    };
    assert_eq!(on(0, all), Some(PathId(0)));
    assert_eq!(on(1, all), Some(PathId(1)));
    assert_eq!(on(1, all.without(PathSet::of(PathId(1)))), Some(PathId(2)));
    assert_eq!(on(7, all), Some(PathId(0)), "an unknown node has no favourite");
    assert_eq!(on(0, PathSet::NONE), None);
}

#[test]
fn round_robin_skips_unusable_paths() {
    let mut first = selector(4, Policy::RoundRobin, 0);
    let usable = PathSet::below(4).without(PathSet::of(PathId(2)));
    let order = (0..6).map(|_| choose(&mut first, usable).unwrap().0).collect::<Vec<_>>();
    assert_eq!(order, [0, 1, 3, 0, 1, 3]);
    assert_eq!(
        send(&mut selector(4, Policy::RoundRobin, 1), 1, Nanos::ZERO)[0].path(),
        PathId(1),
        "each thread begins elsewhere"
    );
}

#[test]
fn queue_depth_fills_the_emptiest() {
    let mut selector = selector(3, Policy::QueueDepth, 1);
    let tokens = send(&mut selector, 9, Nanos::ZERO);
    assert_eq!(spread(&tokens, 3), [3, 3, 3]);
    // Path 1 gets room; the next three go there.
    tokens
        .iter()
        .filter(|token| token.path() == PathId(1))
        .for_each(|&token| selector.abandon(token));
    assert_eq!(spread(&send(&mut selector, 3, Nanos::ZERO), 3), [0, 3, 0]);
}

proptest! {
    /// For any load and set of paths: no usable path has less load than the chosen one, and ties go
    /// in turn.
    #[test]
    fn emptiest_path_is_taken(in_flight in proptest::collection::vec(0usize..4, 1..=PathSet::MAX), usable: u64, number in 0usize..64) {
        let mut selector = selector(in_flight.len(), Policy::QueueDepth, number);
        for (n, &requests) in in_flight.iter().enumerate() {
            (0..requests).for_each(|_| _ = selector.start(PathId(n as u8), read(512), Nanos::ZERO));
        }
        let usable = PathSet(usable).and(PathSet::below(in_flight.len()));
        let expected = usable.iter_from((number % in_flight.len()) as u8).min_by_key(|path| in_flight[path.index()]);
        prop_assert_eq!(choose(&mut selector, usable), expected);
    }
}

/// A batch is spread as single requests would be, and is counted.
#[test]
fn batches_spread_like_single_requests() {
    for policy in Policy::ALL {
        let [mut one, mut all] = [0, 1].map(|_| selector(3, policy, 1));
        // For `latency`, one path is three times slower.
        for selector in [&mut one, &mut all] {
            for token in send(selector, 3, Nanos::ZERO) {
                let latency =
                    if token.path() == PathId(2) { Nanos(240_000) } else { Nanos(80_000) };
                selector.end(token, latency, Nanos(1_000_000));
            }
        }
        let singles: Vec<_> = (0..12).flat_map(|_| send(&mut one, 1, Nanos::ZERO)).collect();
        all.begin(Nanos::ZERO);
        let tokens: Vec<_> = (0..12)
            .map(|_| all.send_next(PathSet::below(3), read(4096), Nanos::ZERO).unwrap())
            .collect();
        assert_eq!(counted(&all), 0, "counted before it is committed");
        all.commit(Nanos::ZERO);
        assert_eq!(
            (spread(&tokens, 3), counted(&all)),
            (spread(&singles, 3), counted(&one)),
            "{policy}"
        );
    }
}

#[test]
fn round_robin_continues_across_batches() {
    let mut selector = selector(3, Policy::RoundRobin, 0);
    let order = |tokens: Vec<Token>| tokens.iter().map(|token| token.path().0).collect::<Vec<_>>();
    assert_eq!(order(send(&mut selector, 4, Nanos::ZERO)), [0, 1, 2, 0]);
    assert_eq!(order(send(&mut selector, 4, Nanos::ZERO)), [1, 2, 0, 1]);
    assert_eq!(choose(&mut selector, PathSet::below(2)), Some(PathId(0)), "2 is not usable");
}

/// An uncommitted batch is counted when the policy changes, and the next one uses the new policy.
#[test]
fn policies_switch_between_batches() {
    let mut selector = selector(2, Policy::QueueDepth, 0);
    selector.begin(Nanos::ZERO);
    let tokens: Vec<_> = (0..3)
        .map(|_| selector.send_next(PathSet::below(2), read(512), Nanos::ZERO).unwrap())
        .collect();
    selector.shared.set_policy(Policy::Numa);
    let by_numa = send(&mut selector, 3, Nanos::ZERO);
    assert_eq!((counted(&selector), spread(&by_numa, 2)), (3, vec![3, 0]));
    selector.shared.set_policy(Policy::RoundRobin);
    assert_eq!(spread(&send(&mut selector, 2, Nanos::ZERO), 2), [1, 1]);
    tokens.into_iter().for_each(|token| selector.end(token, Nanos(10), Nanos(10)));
    assert_eq!(counted(&selector), 0);
}

/// `latency` with these latencies of paths 0 and 1.
fn with_latencies(latencies: [u64; 2], count: usize) -> Selector {
    let mut selector = selector(count, Policy::Latency, 0);
    for (path, latency) in latencies.into_iter().enumerate() {
        let token = selector.start(PathId(path as u8), read(4096), Nanos::ZERO);
        selector.end(token, Nanos(latency), Nanos(latency));
    }
    selector
}

#[test]
fn batch_probes_unknown_path_once() {
    let mut selector = with_latencies([80_000, 90_000], 3);
    let first = send(&mut selector, 11, Nanos(100_000));
    assert_eq!((first[0].path(), spread(&first, 3)), (PathId(2), vec![5, 5, 1]));
    assert_eq!(
        spread(&send(&mut selector, 10, Nanos(100_000)), 3),
        [5, 5, 0],
        "until it has answered"
    );
}

#[test]
fn batches_explore_now_and_then() {
    let mut selector = with_latencies([80_000, 8_000_000], 2);
    let mut now = Nanos::from_secs(2);
    let mut there = 0;
    for _ in 0..16 {
        let tokens = send(&mut selector, 32, now);
        there += spread(&tokens, 2)[1];
        tokens
            .into_iter()
            .filter(|token| token.path() == PathId(0))
            .for_each(|token| selector.end(token, Nanos(80_000), now));
        now += Nanos(80_000);
    }
    assert_eq!(there, 1, "of 512 requests; the next explorer waits for the first");
}

#[test]
fn threads_start_on_different_paths() {
    for policy in [Policy::QueueDepth, Policy::Latency, Policy::RoundRobin] {
        let firsts: BTreeSet<_> = (0..8)
            .map(|number| choose(&mut selector(4, policy, number), PathSet::below(4)).unwrap())
            .collect();
        assert_eq!(firsts.len(), 4, "{policy}");
    }
}

#[test]
fn returned_path_is_unknown() {
    let mut selector = selector(2, Policy::Latency, 0);
    for token in send(&mut selector, 2, Nanos::ZERO) {
        selector.end(token, Nanos(100_000), Nanos(100_000));
    }
    assert_eq!(selector.estimates.mean(PathId(0), read(4096)), Some(100_000.0));
    assert_eq!(selector.estimates.mean(PathId(0), read(1 << 20)), None);
    selector.forget(PathId(0));
    assert_eq!(selector.estimates.mean(PathId(0), read(4096)), None);
    assert_eq!(selector.estimates.mean(PathId(1), read(4096)), Some(100_000.0));
}

/// A step of a sequence that switches policies under load, and takes paths down and up.
#[derive(Clone, Debug)]
enum Step {
    Start { path: u8, bytes: u32 },
    Batch { bytes: Vec<u32> },
    End { which: usize, latency: u64, answered: bool },
    Switch(usize),
    Forget(u8),
    Move(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(512), Just(4096), Just(1 << 20)];
    prop_oneof![
        8 => (0..4u8, bytes.clone()).prop_map(|(path, bytes)| Step::Start { path, bytes }),
        4 => prop::collection::vec(bytes, 0..9).prop_map(|bytes| Step::Batch { bytes }),
        8 => (any::<usize>(), 0..10_000_000_000u64, prop::bool::weighted(0.9))
            .prop_map(|(which, latency, answered)| Step::End { which, latency, answered }),
        1 => (0..Policy::ALL.len()).prop_map(Step::Switch),
        1 => (0..4u8).prop_map(Step::Forget),
        1 => (0..3u16).prop_map(Step::Move),
    ]
}

/// How a completed request is removed from the counts.
type TakeBack = fn(&mut Selector, Token, Nanos);

fn by_token(selector: &mut Selector, token: Token, latency: Nanos) {
    selector.end(token, latency, Nanos(1_000));
}

/// Mutant: by the policy at completion, as a known kernel patch did.
fn by_policy(selector: &mut Selector, token: Token, latency: Nanos) {
    selector.end(
        Token::new(selector.shared.policy(), token.class(), token.path()),
        latency,
        Nanos(1_000),
    );
}

/// For any sequence each count matches the requests in flight, and returns to zero.
fn counts_are_exact(take_back: TakeBack) -> Result<(), TestError<(Vec<Step>, u8)>> {
    let config = Config { failure_persistence: None, ..Config::with_cases(256) };
    TestRunner::new(config).run(
        &(prop::collection::vec(step(), 0..200), 1..5u8),
        |(steps, count)| {
            let mut selector = selector(count.into(), Policy::QueueDepth, 0);
            let mut out: Vec<Token> = Vec::new();
            let mut clock = 0;
            for step in steps {
                clock += 10_000;
                let now = Nanos(clock);
                match step {
                    Step::Start { path, bytes } => {
                        out.push(selector.start(PathId(path % count), read(bytes), now))
                    }
                    Step::Batch { bytes } => {
                        selector.begin(now);
                        for (n, class) in bytes.into_iter().map(read).enumerate() {
                            // A path may be lost in the middle, and the policy switched.
                            let among = PathSet::below(count.into()).without(if n == 3 {
                                PathSet::of(PathId(0))
                            } else {
                                PathSet::NONE
                            });
                            let Some(token) = selector.send_next(among, class, now) else {
                                continue;
                            };
                            prop_assert!(among.contains(token.path()));
                            out.push(token);
                            if n == 5 {
                                selector.shared.set_policy(
                                    Policy::ALL[clock as usize / 10_000 % Policy::ALL.len()],
                                );
                            }
                        }
                        selector.commit(now);
                    }
                    Step::End { which, latency, answered } if !out.is_empty() => {
                        let token = out.swap_remove(which % out.len());
                        match answered {
                            true => take_back(&mut selector, token, Nanos(latency)),
                            false => selector.abandon(token),
                        }
                    }
                    Step::End { .. } => {}
                    Step::Switch(to) => selector.shared.set_policy(Policy::ALL[to]),
                    Step::Forget(path) => selector.forget(PathId(path)),
                    Step::Move(node) => selector.set_node(node),
                }
                for path in (0..count).map(PathId) {
                    let counted: u32 =
                        out.iter().filter(|token| token.path() == path).map(Token::weight).sum();
                    prop_assert_eq!(selector.in_flight(path), counted);
                }
            }
            out.into_iter().for_each(|token| take_back(&mut selector, token, Nanos(1_000)));
            prop_assert_eq!(counted(&selector), 0, "something is still counted");
            Ok(())
        },
    )
}

#[test]
fn counts_return_to_zero_across_switches() {
    counts_are_exact(by_token).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn uncounting_by_current_policy_is_caught() {
    assert!(counts_are_exact(by_policy).is_err(), "the mutant passed: the test proves nothing");
}

proptest! {
    #[test]
    fn only_usable_paths_are_chosen(bits in 1u64.., policy in 0..Policy::ALL.len(), number in 0..9usize, n in 1..40usize) {
        let mut selector = selector(64, Policy::ALL[policy], number);
        let usable = PathSet(bits);
        for now in 0..n as u64 {
            selector.begin(Nanos(now));
            let token = selector.send_next(usable, read(4096), Nanos(now)).unwrap();
            selector.commit(Nanos(now));
            prop_assert!(usable.contains(token.path()));
        }
    }

    #[test]
    fn sets_are_sets(bits: u64, first in 0..64u8) {
        let set = PathSet(bits);
        prop_assert_eq!(set.iter().collect::<PathSet>(), set);
        prop_assert_eq!(set.iter().count(), set.len());
        let order: Vec<_> = set.iter_from(first).map(|path| path.0.wrapping_sub(first) % 64).collect();
        prop_assert!(order.is_sorted());
        prop_assert_eq!(set.iter_from(first).collect::<PathSet>(), set);
    }
}
