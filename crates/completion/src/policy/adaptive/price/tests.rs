use super::*;

/// Of so many sleeps in a row, each met by an entry 1 µs after the decision.
fn met(sleeps: u32) -> Price {
    let mut price = Price::new(&Tuning::default());
    (0..sleeps).for_each(|_| price.armed(Some(Nanos(1_000))));
    price
}

#[test]
fn a_sleep_that_never_is_finds_one_for_the_price_of_arming() {
    let (cost, found) = (3_000.0, 20.0);
    assert_eq!(met(0).if_met(cost, found), cost / found);
    let always = met(1_000).if_met(cost, found);
    assert!((always - 1_000.0).abs() < 10.0, "{always}");
    let mut price = met(1_000);
    price.armed(None);
    assert!(price.if_met(cost, found) < always, "one that was is worth something");
    (0..1_000).for_each(|_| price.forgets());
    assert!((price.if_met(cost, found) - cost / found).abs() < 1.0, "and what is long ago is tried again");
}
