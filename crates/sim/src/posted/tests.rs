use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::*;

/// Vectors post between any two steps of the handler. Each bit must be handled, and none may be
/// left when the handler is done.
fn holds(looks_again: bool) -> Result<(), String> {
    let mut runner = TestRunner::new_with_rng(
        Config { failure_persistence: None, ..Config::with_cases(2_000) },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let posts = prop::collection::vec((any::<bool>(), 0usize..256), 1..60);
    let property = |script: Vec<(bool, usize)>| {
        let (mut descriptor, mut running) = (PostedDescriptor::default(), None);
        let (mut notified, mut posted, mut handled) = (0, Bits::default(), Bits::default());
        let finish = std::iter::repeat_n((false, 0), 20);
        for (post, bit) in script.into_iter().chain(finish) {
            if post {
                posted.insert(bit);
                notified += u32::from(descriptor.post(bit));
                continue;
            }
            if running.is_none() && notified > 0 {
                (notified, running) = (notified - 1, Some(Handling::Round(0)));
            }
            let Some(step) = running else { continue };
            let (mut bits, next) = descriptor.handle(step, looks_again);
            while let Some(bit) = bits.take_first() {
                handled.insert(bit);
            }
            running = (next != Handling::Over).then_some(next);
        }
        if descriptor.is_forgotten() || handled != posted {
            return Err(TestCaseError::fail("lost wake-up"));
        }
        Ok(())
    };
    runner.run(&posts, property).map_err(|error| error.to_string())
}

#[test]
fn no_bit_is_forgotten() {
    holds(true).unwrap();
}

#[test]
fn missing_final_check_is_caught() {
    assert!(holds(false).unwrap_err().contains("lost wake-up"));
}

#[test]
fn posted_loop_is_bounded() {
    let mut descriptor = PostedDescriptor::default();
    assert!(descriptor.post(0));
    assert!((1..200).all(|bit| !descriptor.post(bit)));
    let (mut bits, mut step) = descriptor.handle(Handling::Round(0), true);
    assert_eq!(std::iter::from_fn(|| bits.take_first()).count(), 200);
    let mut steps = 1;
    while step != Handling::Over {
        // A vector that posts for ever.
        descriptor.post(7);
        step = descriptor.handle(step, true).1;
        steps += 1;
    }
    assert_eq!(steps, ROUNDS + 2);
}
