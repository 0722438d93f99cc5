use proptest::prelude::*;

use super::*;
use crate::tests::counterexample;

#[test]
fn text_is_padded_cut_and_cleaned() {
    assert_eq!(Text::<8>::ascii("1.0").0, *b"1.0     ");
    assert_eq!(Text::<4>::ascii("reap mem").0, *b"reap");
    assert_eq!(Text::<4>::ascii("µs\n").0, *b"?s? ");
    assert_eq!(Text::<4>::nul_terminated("reap").0, *b"rea\0");
    assert_eq!(Text::<4>::nul_terminated("aaµ").0, *b"aa\0\0");
    assert_eq!(Text::<0>::nul_terminated("a").0, []);
}

#[test]
fn text_prints_without_padding() {
    assert_eq!(Text(*b" SN1  ").to_string(), "SN1");
    assert_eq!(Text(*b"nqn\0xx").to_string(), "nqn");
    assert_eq!(Text(*b"a\x1b[31m\xff").to_string(), "a?[31m?");
    assert_eq!(format!("{:>5}|{:?}", Text(*b"ab  "), Text(*b"ab  ")), "   ab|\"ab\"");
}

#[test]
fn any_field_prints_printable_text() {
    let law = |bytes: &[u8; 20]| Text(*bytes).to_string().chars().all(printable);
    assert_eq!(counterexample(1000, any::<[u8; 20]>(), law), None);
    let keeps = |text: &String| Text::<40>::ascii(text).to_string() == text.trim();
    assert_eq!(counterexample(1000, "[ -~]{0,40}", keeps), None);
}

#[test]
fn short_page_is_refused() {
    use crate::log::Smart;
    let short = Smart::from_page(&[0; 511]).expect_err("a byte is missing");
    assert_eq!(short, TooShort { need: 512, got: 511 });
    assert!(short.to_string().contains("the structure has 512 bytes, and the buffer 511"));
    assert_eq!(Smart::from_page(&[0; 4096]), Ok(Smart::default()));
}
