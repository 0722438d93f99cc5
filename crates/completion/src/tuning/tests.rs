use proptest::prelude::*;

use super::*;

#[test]
fn exponents_are_parsed() {
    for (text, thousandths) in
        [("3", 3_000), ("0.025", 25), ("0", 0), ("50", 50_000), ("inf", u32::MAX)]
    {
        assert_eq!(text.parse(), Ok(DelayExponent(thousandths)), "{text}");
    }
    for text in ["", "%", "30%", "ten", "-1", "1e3", "10 ", "NaN", "99999999999", "1.2.3", "+1"] {
        let error = text.parse::<DelayExponent>().unwrap_err().to_string();
        assert!(error.contains("a number like 3 or 0.5"), "{error}");
    }
}

/// 0 weighs CPU time alone, infinity latency alone, and other n weigh latency n times as much.
#[test]
fn cost_weighs_by_exponent() {
    let (slow, fast) = ((1_000.0, 20_000.0), (3_000.0, 10_000.0));
    let cheaper = |n: DelayExponent| n.cost(slow.0, slow.1) < n.cost(fast.0, fast.1);
    assert!(cheaper(DelayExponent::CPU_ALONE) && cheaper(DelayExponent::per_mille(1_500)));
    assert!(!cheaper(DelayExponent::per_mille(1_700)) && !cheaper(DelayExponent::LATENCY_ALONE));
    assert!(
        DelayExponent::LATENCY_ALONE.cost(1_000.0, 10_000.0)
            < DelayExponent::LATENCY_ALONE.cost(2_000.0, 10_000.0)
    );
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(thousandths: u32) {
        let exponent = DelayExponent(thousandths);
        prop_assert_eq!(exponent.to_string().parse(), Ok(exponent));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,20}") {
        let _ = text.parse::<DelayExponent>();
    }
}
