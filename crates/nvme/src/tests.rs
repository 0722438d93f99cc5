//! Property tests: an invariant is a predicate over generated values that must hold, and that a
//! mutant must violate.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// The smallest value found for which `holds` is false, as text; `None` if it held for all `cases`.
/// The values are the same in every run.
pub(crate) fn counterexample<S>(
    cases: u32,
    values: S,
    holds: impl Fn(&S::Value) -> bool,
) -> Option<String>
where
    S: Strategy,
{
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&values, |value| {
        if holds(&value) {
            Ok(())
        } else {
            Err(proptest::test_runner::TestCaseError::fail("the invariant does not hold"))
        }
    });
    match result {
        Ok(()) => None,
        Err(TestError::Fail(why, value)) => Some(format!("{why}: {value:?}")),
        Err(TestError::Abort(why)) => panic!("no values were generated: {why}"),
    }
}

/// Checks that fields are at their byte offsets: `offsets!(Type: field 0, other 4)`.
macro_rules! offsets {
    ($type:ty: $($field:ident $offset:literal),*) => {
        $(assert_eq!(std::mem::offset_of!($type, $field), $offset, "{}", stringify!($type.$field));)*
    };
}
pub(crate) use offsets;
