use proptest::prelude::*;

use super::*;

#[test]
fn a_slack_is_read_as_a_percentage_a_fraction_or_no_limit() {
    for (text, thousandths) in
        [("10%", 100), ("2.5%", 25), ("0.1", 100), ("0", 0), ("0%", 0), ("1", 1_000), ("500%", 5_000), ("inf", u32::MAX)]
    {
        assert_eq!(text.parse(), Ok(LatencySlack(thousandths)), "{text}");
    }
    for text in ["", "%", "ten", "-1", "1e3", "10 %", "NaN", "99999999999", "1.2.3", "+1"] {
        let error = text.parse::<LatencySlack>().unwrap_err().to_string();
        assert!(error.contains("like 10%"), "{error}");
    }
    // Whoever writes 10 means 10 %, and would have had 1000.
    let error = "10".parse::<LatencySlack>().unwrap_err().to_string();
    assert_eq!(error, "'10' as a latency slack is 1000%: write 1000%, or 10% if that is meant");
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(thousandths: u32) {
        let slack = LatencySlack(thousandths);
        prop_assert_eq!(slack.to_string().parse(), Ok(slack));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,20}") {
        let _ = text.parse::<LatencySlack>();
    }
}
