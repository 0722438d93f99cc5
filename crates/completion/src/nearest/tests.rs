use super::*;

const NAMES: [&str; 4] = ["dim", "interrupt", "poll", "irq-poll"];

#[test]
fn a_slip_is_forgiven() {
    for (given, meant) in [
        ("polll", "poll"),
        ("opll", "poll"),
        ("INTERUPT", "interrupt"),
        ("irqpoll", "irq-poll"),
        ("di", "dim"),
    ] {
        assert_eq!(nearest_name(given, NAMES), Some(meant), "{given}");
    }
}

#[test]
fn unlike_names_get_no_hint() {
    let long = "poll".repeat(17);
    for given in ["", "x", "frobnicate", long.as_str()] {
        assert_eq!(nearest_name(given, NAMES), None, "{given}");
    }
    assert_eq!(nearest_name("poll", []), None);
}
