use super::*;

#[test]
fn cpu_lists_round_trip() {
    assert_eq!(cpus("8, 0-3,2"), Ok(vec![0, 1, 2, 3, 8]));
    for (text, shown) in [("0-3,8", "0-3,8"), ("1,2", "1-2"), ("5", "5"), ("0,2,4-4", "0,2,4")] {
        assert_eq!(cpu_ranges(&cpus(text).unwrap()), shown);
    }
    for (text, why) in [
        ("3-1", "ends before it starts"),
        ("-1", "before the dash"),
        ("4096", "too large"),
        ("x", "not the number"),
    ] {
        assert!(cpus(text).unwrap_err().contains(why), "{text}");
    }
    assert_eq!(cpu_ranges(&[]), "");
}
