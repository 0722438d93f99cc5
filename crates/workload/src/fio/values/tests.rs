use super::*;
use proptest::prelude::*;

#[test]
fn pattern_bytes_match_fio() {
    // The examples of fio's own description.
    let cases: [(&str, &[u8], &[usize]); 11] = [
        ("\"abcd\"", b"abcd", &[]),
        ("-1024", &[0, 0xfc, 0xff, 0xff], &[]),
        ("66", &[0x42], &[]),
        ("0", &[0], &[]),
        ("0xFF0X1", &[0xff, 1], &[]),
        ("0xfff", &[0xf, 0xff], &[]),
        ("%o", &[0; 8], &[0]),
        ("\"123\"0xFFeeCC", b"123\xff\xee\xcc", &[]),
        ("-100xab\"1\"%o\"2\"", b"\xf6\xff\xff\xff\xab1\0\0\0\0\0\0\0\x002", &[6]),
        ("%o0xdeadbeef%o", b"\0\0\0\0\0\0\0\0\xde\xad\xbe\xef\0\0\0\0\0\0\0\0", &[0, 12]),
        ("0xdeadface", &[0xde, 0xad, 0xfa, 0xce], &[]),
    ];
    for (text, bytes, offsets) in cases {
        let read = fill_pattern(text).unwrap_or_else(|bad| panic!("{text}: {bad}"));
        assert_eq!((read.bytes.as_slice(), read.offsets.as_slice()), (bytes, offsets), "{text}");
    }
    let placed = fill_pattern("0xff%o").unwrap().at(0x1234);
    assert_eq!(placed, [0xff, 0x34, 0x12, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn invalid_pattern_is_reported() {
    for (text, why) in [
        ("", "the pattern is empty"),
        ("\"abc", "the second '\"' is missing"),
        ("\"\"", "the pattern is empty"),
        ("0x", "no hexadecimal digit"),
        ("%x", "the only format is %o"),
        ("'file'", "begins with no string"),
        ("99999999999", "of 32 bits"),
        ("abc", "begins with no string"),
        ("-", "begins with no string"),
        ("%o%o%o%o%o%o%o%o%o", "the pattern has %o more than 8 times"),
    ] {
        let bad = fill_pattern(text).expect_err(text);
        assert!(bad.contains(why), "{text}: {bad}");
    }
    assert!(
        fill_pattern(&format!("0x{}", "ab".repeat(MAX_PATTERN + 1)))
            .unwrap_err()
            .contains("1048576 bytes")
    );
}

proptest! {
    #[test]
    fn nothing_panics_or_hangs(text in "[0-9a-fxX%o\"' é-]{0,24}") {
        if let Ok(pattern) = fill_pattern(&text) {
            prop_assert!(!pattern.bytes.is_empty() && pattern.at(7).len() == pattern.bytes.len());
        }
    }

    #[test]
    fn hexadecimal_digits_are_bytes(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        prop_assert_eq!(fill_pattern(&format!("0x{text}")).unwrap().bytes, bytes);
    }
}
