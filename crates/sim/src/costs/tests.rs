use super::*;

#[test]
fn cost_list_round_trips() {
    for costs in [Costs::BARE_METAL, Costs::VIRTUAL] {
        let text = toml::to_string(&costs).unwrap();
        assert!(text.contains("[interrupt]") && text.contains("message_delay = "), "{text}");
        assert_eq!(toml::from_str::<Costs>(&text).unwrap(), costs);
    }
}

#[test]
fn misspelt_cost_is_named() {
    let text = toml::to_string(&Costs::BARE_METAL).unwrap().replace("softirq_raise", "softirq_rise");
    let error = toml::from_str::<Costs>(&text).unwrap_err().to_string();
    assert!(error.contains("softirq_rise"), "{error}");
}

/// What the two sets are for: an interrupt in a guest costs several times one on bare metal.
#[test]
fn virtual_machine_pays_for_exits() {
    let interrupt = |costs: Costs| {
        let InterruptCosts { entry, end, exit, handler, .. } = costs.interrupt;
        entry + end + exit + handler
    };
    assert!(interrupt(Costs::VIRTUAL).0 > 5 * interrupt(Costs::BARE_METAL).0);
}
