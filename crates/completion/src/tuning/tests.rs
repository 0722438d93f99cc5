use proptest::prelude::*;

use super::*;

#[test]
fn prices_are_parsed() {
    for (text, thousandths) in [("0.3", 300), ("0.025", 25), ("0", 0), ("1", 1_000), ("50", 50_000), ("inf", u32::MAX)] {
        assert_eq!(text.parse(), Ok(LatencyPrice(thousandths)), "{text}");
    }
    for text in ["", "%", "30%", "ten", "-1", "1e3", "10 ", "NaN", "99999999999", "1.2.3", "+1"] {
        let error = text.parse::<LatencyPrice>().unwrap_err().to_string();
        assert!(error.contains("a number like 0.2"), "{error}");
    }
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(thousandths: u32) {
        let price = LatencyPrice(thousandths);
        prop_assert_eq!(price.to_string().parse(), Ok(price));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,20}") {
        let _ = text.parse::<LatencyPrice>();
    }
}
