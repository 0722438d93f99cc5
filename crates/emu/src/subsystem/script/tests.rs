use proptest::prelude::*;

use super::*;

#[test]
fn the_example_reads_as_it_says() {
    let text = "# Path 0 is pulled out.\nat 200ms path 1 ana inaccessible\n\n at 1.5s path 0 delay 30ms; at 2s path 1 ana change group 2 # now\nat 3s path 0 lost frozen";
    let second = Nanos::from_secs;
    let expected = Script::default()
        .with(
            Nanos::from_millis(200),
            1,
            Change::Ana { group: None, state: AnaState::INACCESSIBLE },
        )
        .with(Nanos::from_millis(1_500), 0, Change::Delay(Nanos::from_millis(30)))
        .with(second(2), 1, Change::Ana { group: Some(2), state: AnaState::CHANGE })
        .with(second(3), 0, Change::Lost(Loss::Frozen));
    assert_eq!(text.parse(), Ok(expected.clone()));
    assert_eq!(expected.end(), second(3));
}

/// Errors name the line and what is allowed there.
#[test]
fn mistakes_are_named_where_they_are() {
    let cases = [
        (
            "at 1s path 0 gone",
            "line 1: `gone` is not a change; the changes are ana STATE [group N], lost [frozen],",
        ),
        (
            "\n  at 1 path 0 lost",
            "line 2: `1` is not a duration: write a number and its unit, ns, us, ms or s, as in 1.5ms",
        ),
        ("at 1s path -1 lost", "line 1: `-1` is not a path; paths are numbers, from 0"),
        (
            "at 1s pfad 0 lost",
            "line 1: `at 1s pfad 0 lost` is not a step; a step is `at TIME path NUMBER CHANGE`",
        ),
        ("at 1s path 0", "line 1: `` is not a change"),
        (
            "at 1s path 0 lost; at 2s path 0 ana gut",
            "line 1: `gut` is not an ANA state; the states are optimized, non-optimized,",
        ),
        ("at 1s path 0 ana optimized group 0", "line 1: `0` is not a whole number from 1"),
        ("at 1s path 0 lost forever", "line 1: `lost forever` is not a change"),
        ("at 1s path 0 resize big", "line 1: `big` is not a whole number from 0"),
        ("at 1s path 0 resize 9 namespace 0", "line 1: `0` is not a whole number from 1"),
        ("at 1s path 0 reset-takes long", "line 1: `long` is not a duration"),
        (
            "at 1s path 0 wrong-status 0",
            "line 1: `0` is not an error status: write its type and code in hexadecimal, as 0x281",
        ),
        ("at 1s path 0 wrong-cid times 0", "line 1: `0` is not a whole number from 1"),
        ("at 1s path 0 back now", "line 1: `back now` is not a change"),
        (
            "at 1s path 0 hold trims",
            "line 1: `trims` cannot be held: write reads, writes, flushes,",
        ),
        ("at 1s path 0 delay 0.5ns", "line 1: `0.5ns` is not a duration"),
    ];
    for (text, message) in cases {
        let error = text.parse::<Script>().expect_err(text).to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn orders_read_as_they_say() {
    assert_eq!(
        " fault  hold reads ".parse(),
        Ok(ControlCommand::Fault(Change::Hold(Some(Op::Read))))
    );
    assert_eq!("status\n".parse(), Ok(ControlCommand::Status));
    for (text, words) in [
        ("", "`` is not a control command"),
        (
            "break it",
            "`break it` is not a control command; the commands are `status` and `fault CHANGE`",
        ),
        ("status please", "is not a control command"),
        ("fault", "`` is not a change"),
        ("fault hold trims", "cannot be held"),
    ] {
        let error = text.parse::<ControlCommand>().expect_err(text);
        assert!(error.what.contains(words), "{text}: {error}");
    }
}

fn faults() -> impl Strategy<Value = Fault> {
    let plain = [
        Fault::UnknownCid,
        Fault::StaleCid,
        Fault::DoubleEntry,
        Fault::WrongPhase,
        Fault::SwallowEntry,
        Fault::SwallowCommand,
        Fault::Fatal,
        Fault::LoseMessage,
        Fault::DoubleMessage,
    ];
    prop_oneof![
        prop::sample::select(plain.to_vec()),
        any::<u64>().prop_map(|n| Fault::DelayMessage(Nanos(n))),
        (0u16..16, 1u16..0x7ff).prop_map(|(high, low)| Fault::Status(Status(high << 11 | low))),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let ops = prop::option::of(prop::sample::select(Op::ALL.to_vec()));
    prop_oneof![
        (prop::option::of(1u32..9), prop::sample::select(AnaState::ALL.to_vec()))
            .prop_map(|(group, state)| Change::Ana { group, state }),
        prop::sample::select(vec![
            Change::Lost(Loss::Gone),
            Change::Lost(Loss::Frozen),
            Change::Back,
            Change::Release,
            Change::PowerLost
        ]),
        (1u32..4, any::<u64>())
            .prop_map(|(nsid, blocks)| Change::Resize { nsid: Nsid(nsid), blocks }),
        any::<u64>().prop_map(|n| Change::Delay(Nanos(n))),
        ops.prop_map(Change::Hold),
        prop_oneof![
            Just(Change::Fail),
            Just(Change::ResetTakes(Nanos::MAX)),
            any::<u64>().prop_map(|n| Change::ResetTakes(Nanos(n)))
        ],
        (faults(), 1u32..).prop_map(|(fault, times)| Change::Fault { fault, times }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_reads_back(steps in prop::collection::vec((any::<u64>(), 0usize..99, changes()), 0..9)) {
        let steps = steps.into_iter().map(|(at, path, change)| Timed { at: Nanos(at), path, change }).collect();
        let script = Script { steps };
        prop_assert_eq!(script.to_string().parse(), Ok(script));
    }

    #[test]
    fn script_errors_name_a_line(text in "([a-z0-9.µ#; \n]|at 1s path 0 |lost|ana ){0,40}") {
        if let Err(error) = text.parse::<Script>() {
            prop_assert!(text.lines().nth(error.line - 1).is_some(), "{error}");
        }
    }
}
