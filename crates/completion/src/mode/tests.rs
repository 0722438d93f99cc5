use proptest::prelude::*;

use super::*;

#[test]
fn mode_names_round_trip() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
        assert_eq!(Mode::try_from(u64::from(mode)), Ok(mode));
    }
    // A registered one that there is not, one without parameters that has some, and `irq-poll`
    // without a budget.
    for word in [0x1ffe, 1 << 5, 2 << 1 | 1 << 29] {
        assert_eq!(Mode::try_from(word), Err(word));
    }
}

#[test]
fn kernel_modes_need_kernel_devices() {
    for mode in Mode::KERNELS {
        let name = mode.to_string();
        let error = name.parse::<Mode>().unwrap_err().to_string();
        assert!(error.contains(&name) && error.contains("only `kernel:` devices"), "{error}");
        assert_eq!((Mode::parse_any(&name), Mode::try_from(u64::from(mode))), (Ok(mode), Ok(mode)));
        assert!(mode.is_the_kernels() && !mode.facts().masks && !Mode::ALL.contains(&mode));
        assert!(
            mode.with_submit_check().is_err()
                && Mode::parse_any(&format!("{name}+submit-check")).is_err()
        );
    }
    assert_eq!(Mode::parse_any("poll"), Ok(Mode::POLL));
    assert!(!Mode::ALL.into_iter().any(Mode::is_the_kernels));
}

#[test]
fn mode_table_is_the_designs() {
    let with = |fact: fn(Mode) -> bool| {
        Mode::ALL
            .into_iter()
            .filter(|&m| fact(m))
            .map(|m| m.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(with(|m| m.facts().drain_thread), "threaded threaded+submit-check");
    assert_eq!(with(|m| m.facts().posted), "posted posted+submit-check");
    assert_eq!(with(|m| m.moderation().is_some()), "coalesce dim vic");
    assert_eq!(
        with(|m| m.facts().masks && !m.submit_check()),
        "irq-poll hybrid-mean hybrid-min suspend poll adaptive"
    );
    assert_eq!(
        with(|m| m.takes_submit_check() && !m.submit_check()),
        "interrupt threaded irq-poll posted"
    );
}

#[test]
fn misspelt_modes_get_a_hint() {
    let error = "intrrupt+submit-chek".parse::<Mode>().unwrap_err().to_string();
    assert!(error.contains("did you mean 'interrupt+submit-check'?"), "{error}");
    assert!(Mode::ALL.iter().all(|m| error.contains(&m.to_string())), "{error}");
    assert!(matches!(
        "POLL".parse::<Mode>(),
        Err(ModeError::Unknown { nearest: Some(Mode::POLL), .. })
    ));
    assert!(matches!(
        "kernel-iopol".parse::<Mode>(),
        Err(ModeError::Unknown { nearest: Some(Mode::KERNEL_IOPOLL), .. })
    ));
    assert!("".parse::<Mode>().is_err());
}

#[test]
fn useless_submit_check_is_refused() {
    for name in [
        "poll+submit-check",
        "hybrid-mean+submit-check",
        "adaptive+submit-check",
        "dim+submit-check",
    ] {
        let error = name.parse::<Mode>().unwrap_err();
        assert!(matches!(error, ModeError::NoSubmitCheck { .. }), "{error}");
    }
    let twice = "interrupt+submit-check+submit-check".parse::<Mode>();
    assert!(twice.is_err() || twice == Ok(Mode::ALL[1]));
}

#[test]
fn parameters_are_set_and_printed() {
    let limits = PollLimits { weight: 16, time: Nanos::from_millis(1), ..PollLimits::DEFAULT };
    for (text, mode, printed) in [
        ("irq-poll?weight=16&time=1ms", Mode::irq_poll(limits), "irq-poll?weight=16&time=1000us"),
        ("irq-poll?time=2ms&budget=256&weight=64", Mode::IRQ_POLL, "irq-poll"),
        (
            "adaptive?delay-exponent=0.50",
            Mode::adaptive(DelayExponent::per_mille(500)),
            "adaptive?delay-exponent=0.5",
        ),
        ("adaptive?delay-exponent=3", Mode::ADAPTIVE, "adaptive"),
        (
            "adaptive?delay-exponent=inf",
            Mode::adaptive(DelayExponent::LATENCY_ALONE),
            "adaptive?delay-exponent=inf",
        ),
    ] {
        assert_eq!((text.parse(), mode.to_string()), (Ok(mode), printed.to_owned()));
    }
    assert_eq!(
        "irq-poll+submit-check?weight=16&time=1000us".parse(),
        Mode::irq_poll(limits).with_submit_check()
    );
    let beyond = PollLimits { weight: 0, budget: u32::MAX, time: Nanos::MAX };
    assert_eq!(Mode::irq_poll(beyond).to_string(), "irq-poll?weight=1&budget=65535&time=1000000us");
}

#[test]
fn bad_parameters_name_the_good_ones() {
    for (text, column, what) in [
        (
            "irq-poll?wieght=16",
            10,
            "'irq-poll' has no parameter 'wieght': it has weight, budget, time",
        ),
        ("irq-poll?weight=0", 17, "'0': weight is a whole number from 1 to 256"),
        (
            "irq-poll?weight=16&budget=70000",
            27,
            "'70000': budget is a whole number from 1 to 65535",
        ),
        ("irq-poll+submit-check?time=1ns", 28, "'1ns': time is whole microseconds from 1us to 1s"),
        ("irq-poll?weight=16&weight=16", 20, "'weight' is set twice"),
        ("irq-poll?weight", 10, "a parameter is KEY=VALUE: 'irq-poll' has weight, budget, time"),
        ("irq-poll?", 10, "a parameter is KEY=VALUE"),
        ("adaptive?delay-exponent=10%", 25, "'10%' is not a delay exponent"),
        ("adaptive?latency-price=0.2", 10, "'latency-price' is no more: delay-exponent=N"),
        ("poll?weight=16", 5, "'poll' has no parameters"),
        ("kernel-iopoll?weight=16", 14, "'kernel-iopoll' has no parameters"),
        ("adaptive@0.5", 9, "parameters follow '?': write adaptive?delay-exponent=2"),
    ] {
        let error = Mode::parse_any(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("'{text}', column {column}: {what}")), "{error}");
    }
    assert!(matches!(
        "irq-pol?weight=16".parse::<Mode>(),
        Err(ModeError::Unknown { nearest: Some(Mode::IRQ_POLL), .. })
    ));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}", query in "[a-z=&0-9.?µ-]{0,40}") {
        let _ = text.parse::<Mode>();
        let _ = format!("irq-poll?{query}").parse::<Mode>();
    }

    #[test]
    fn printed_modes_are_read_back(weight: u32, budget: u32, time: u64, price: u32, submit_check: bool) {
        let polls = Mode::irq_poll(PollLimits { weight, budget, time: Nanos(time % 3_000_000_000) });
        let polls = if submit_check { polls.with_submit_check().unwrap() } else { polls };
        for mode in [polls, Mode::adaptive(DelayExponent::per_mille(price))] {
            prop_assert_eq!(mode.to_string().parse(), Ok(mode));
            prop_assert_eq!(Mode::try_from(u64::from(mode)), Ok(mode));
        }
    }
}

/// A policy that spins without yielding does not learn of CPU contention; `adaptive`, which weighs
/// it, always does.
#[test]
fn spin_decides_what_is_reported() {
    for (mode, spin, told, yields) in [
        (Mode::POLL, Spin::Naps, true, false),
        (Mode::POLL, Spin::Spins, false, false),
        (Mode::POLL, Spin::Yields, false, true),
        (Mode::HYBRID_MEAN, Spin::Spins, false, false),
        (Mode::ADAPTIVE, Spin::Spins, true, false),
        (Mode::ADAPTIVE, Spin::Yields, true, false),
    ] {
        assert_eq!(
            (spin.reports_cpu_wanted_in(mode), spin.yields_cpu(mode)),
            (told, yields),
            "{mode} {spin}"
        );
    }
}
