use super::*;

#[test]
fn a_set_is_read_as_it_was_written() {
    for costs in [Costs::BARE_METAL, Costs::VIRTUAL] {
        let text = toml::to_string(&costs).unwrap();
        assert!(text.contains("[interrupt]") && text.contains("message_delay = "), "{text}");
        assert_eq!(toml::from_str::<Costs>(&text).unwrap(), costs);
    }
}

#[test]
fn a_misspelt_cost_is_an_error_that_names_it() {
    let text = toml::to_string(&Costs::BARE_METAL).unwrap().replace("softirq_raise", "softirq_rise");
    let error = toml::from_str::<Costs>(&text).unwrap_err().to_string();
    assert!(error.contains("softirq_rise"), "{error}");
}

/// What the two sets are for: an interrupt in a guest costs several times one on bare metal.
#[test]
fn exits_are_what_makes_a_virtual_machine_dear() {
    let interrupt = |costs: Costs| {
        let InterruptCosts { entry, end, exit, handler, .. } = costs.interrupt;
        entry + end + exit + handler
    };
    assert!(interrupt(Costs::VIRTUAL).0 > 5 * interrupt(Costs::BARE_METAL).0);
}
