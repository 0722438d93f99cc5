use proptest::prelude::*;

use super::*;

#[test]
fn mode_names_round_trip() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
        assert_eq!(Mode::try_from(u32::from(mode)), Ok(mode));
    }
    assert_eq!(Mode::try_from(99), Err(99));
}

#[test]
fn kernel_modes_need_kernel_devices() {
    for mode in Mode::KERNELS {
        let name = mode.to_string();
        let error = name.parse::<Mode>().unwrap_err().to_string();
        assert!(error.contains(&name) && error.contains("only `kernel:` devices"), "{error}");
        assert_eq!((Mode::parse_any(&name), Mode::try_from(u32::from(mode))), (Ok(mode), Ok(mode)));
        assert!(mode.is_the_kernels() && !mode.facts().masks && !Mode::ALL.contains(&mode));
        assert!(mode.with_submit_check().is_err() && Mode::parse_any(&format!("{name}+submit-check")).is_err());
    }
    assert_eq!(Mode::parse_any("poll"), Ok(Mode::POLL));
    assert!(!Mode::ALL.into_iter().any(Mode::is_the_kernels));
}

#[test]
fn mode_table_is_the_designs() {
    let with = |fact: fn(Mode) -> bool| Mode::ALL.into_iter().filter(|&m| fact(m)).map(|m| m.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(with(|m| m.facts().drain_thread), "threaded threaded+submit-check");
    assert_eq!(with(|m| m.facts().posted), "posted posted+submit-check");
    assert_eq!(with(|m| m.moderation().is_some()), "coalesce dim vic adaptive");
    assert_eq!(with(|m| m.facts().masks && !m.submit_check()), "irq-poll hybrid-mean hybrid-min suspend poll adaptive");
    assert_eq!(with(|m| m.takes_submit_check() && !m.submit_check()), "interrupt threaded irq-poll posted");
}

#[test]
fn misspelt_modes_get_a_hint() {
    let error = "intrrupt+submit-chek".parse::<Mode>().unwrap_err().to_string();
    assert!(error.contains("did you mean 'interrupt+submit-check'?"), "{error}");
    assert!(Mode::ALL.iter().all(|m| error.contains(&m.to_string())), "{error}");
    assert!(matches!("POLL".parse::<Mode>(), Err(ModeError::Unknown { nearest: Some(Mode::POLL), .. })));
    assert!(matches!("kernel-iopol".parse::<Mode>(), Err(ModeError::Unknown { nearest: Some(Mode::KERNEL_IOPOLL), .. })));
    assert!("".parse::<Mode>().is_err());
}

#[test]
fn useless_submit_check_is_refused() {
    for name in ["poll+submit-check", "hybrid-mean+submit-check", "adaptive+submit-check", "dim+submit-check"] {
        let error = name.parse::<Mode>().unwrap_err();
        assert!(matches!(error, ModeError::NoSubmitCheck { .. }), "{error}");
    }
    let twice = "interrupt+submit-check+submit-check".parse::<Mode>();
    assert!(twice.is_err() || twice == Ok(Mode::ALL[1]));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}") {
        let _ = text.parse::<Mode>();
    }
}

/// A policy that spins without yielding does not learn of CPU contention; `adaptive`, which weighs it, always does.
#[test]
fn spin_decides_what_is_told() {
    for (mode, spin, told, yields) in [
        (Mode::POLL, Spin::Naps, true, false),
        (Mode::POLL, Spin::Spins, false, false),
        (Mode::POLL, Spin::Yields, false, true),
        (Mode::HYBRID_MEAN, Spin::Spins, false, false),
        (Mode::ADAPTIVE, Spin::Spins, true, false),
        (Mode::ADAPTIVE, Spin::Yields, true, false),
    ] {
        assert_eq!((spin.tells_wanted(mode), spin.gives_way(mode)), (told, yields), "{mode} {spin}");
    }
}
