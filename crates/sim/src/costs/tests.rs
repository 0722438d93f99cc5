use super::*;

#[test]
fn cost_list_round_trips() {
    for costs in [Costs::BARE_METAL, Costs::VIRTUAL] {
        let text = toml::to_string(&costs).unwrap();
        assert!(
            text.contains("[interrupt]")
                && text.contains("message_delay = ")
                && text.contains("[wake_up]"),
            "{text}"
        );
        assert_eq!(toml::from_str::<Costs>(&text).unwrap(), costs);
    }
}

#[test]
fn misspelt_cost_is_named() {
    let text =
        toml::to_string(&Costs::BARE_METAL).unwrap().replace("softirq_raise", "softirq_rise");
    let error = toml::from_str::<Costs>(&text).unwrap_err().to_string();
    assert!(error.contains("softirq_rise"), "{error}");
}

/// On bare metal the cost of a wake-up is the sum of its steps in the list.
#[test]
fn wake_up_sums_its_parts() {
    let Costs { interrupt: i, thread: t, wake_up, .. } = Costs::BARE_METAL;
    let (around, back) = (i.entry + i.end + i.exit, t.wake + t.switch + t.from_idle);
    assert_eq!(wake_up.eventfd, around + i.handler + t.signal + back);
    assert_eq!(wake_up.timer, around + i.timer + back);
    assert_eq!(Costs::BARE_METAL.at_percent(200).wake_up.timer, wake_up.timer + wake_up.timer);
}

/// An interrupt in a guest costs several times one on bare metal.
#[test]
fn virtual_machine_pays_for_exits() {
    let interrupt = |costs: Costs| {
        let InterruptCosts { entry, end, exit, handler, .. } = costs.interrupt;
        entry + end + exit + handler
    };
    assert!(interrupt(Costs::VIRTUAL).0 > 5 * interrupt(Costs::BARE_METAL).0);
}
