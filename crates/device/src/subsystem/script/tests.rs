use proptest::prelude::*;

use super::*;

fn fails(text: &str) -> String {
    text.parse::<Script>().expect_err(text).to_string()
}

#[test]
fn the_example_reads_as_it_says() {
    let text = "# Path 0 is pulled out.\nat 200ms path 1 ana inaccessible\n\n at 1.5s path 0 delay 30ms; at 2s path 1 ana change group 2 # now\nat 3s path 0 lost frozen";
    let second = Nanos::from_secs;
    let expected = Script::default()
        .with(Nanos::from_millis(200), 1, Change::Ana { group: None, state: AnaState::INACCESSIBLE })
        .with(Nanos::from_millis(1_500), 0, Change::Delay(Nanos::from_millis(30)))
        .with(second(2), 1, Change::Ana { group: Some(2), state: AnaState::CHANGE })
        .with(second(3), 0, Change::Lost(Loss::Frozen));
    assert_eq!(text.parse(), Ok(expected.clone()));
    assert_eq!(expected.end(), second(3));
}

/// Each mistake is named with its place and with what could stand there.
#[test]
fn mistakes_are_named_where_they_are() {
    let cases = [
        (
            "at 1s path 0 gone",
            "line 1, column 14: `gone` is no change: there are ana, lost, back, delay, hold, release, resize, power-lost, fail, reset-takes, wrong-status, wrong-cid and lose-message",
        ),
        ("\n  at 1 path 0 lost", "line 2, column 6: `1` is no time: write a number and its unit, ns, us, ms or s, as in 1.5ms"),
        ("at 1s path zero lost", "line 1, column 12: `zero` is no path: they are numbers, from 0"),
        ("at 1s path -1 lost", "line 1, column 12: `-1` is no path: they are numbers, from 0"),
        ("at 1s pfad 0 lost", "line 1, column 7: `pfad` should be `path`: a step reads `at TIME path NUMBER CHANGE`"),
        (
            "at 1s path 0",
            "line 1, column 13: a change (ana, lost, back, delay, hold, release, resize, power-lost, fail, reset-takes, wrong-status, wrong-cid and lose-message) is missing",
        ),
        (
            "at 1s path 0 lost; at 2s path 0 ana gut",
            "line 1, column 37: `gut` is no ANA state: there are optimized, non-optimized, inaccessible, persistent-loss, change",
        ),
        ("at 1s path 0 ana optimized group 0", "line 1, column 34: `0` is no ANA group: they are numbers, from 1"),
        ("at 1s path 0 lost forever", "line 1, column 19: `forever` is no way to be lost: write `lost`, or `lost frozen`"),
        ("at 1s path 0 resize big", "line 1, column 21: `big` is not a number of logical blocks: write a whole number, from 0"),
        ("at 1s path 0 resize 9 namespace 0", "line 1, column 33: `0` is not a namespace identifier: write a whole number, from 1"),
        (
            "at 1s path 0 reset-takes long",
            "line 1, column 26: `long` is no time: write a number and its unit, ns, us, ms or s, as in 1.5ms",
        ),
        (
            "at 1s path 0 wrong-status 0",
            "line 1, column 27: `0` is no status of a failure: write its type and code in hexadecimal, as 0x281, with 0x4000 for Do Not Retry",
        ),
        ("at 1s path 0 wrong-cid times 0", "line 1, column 30: `0` is not a number of times: write a whole number, from 1"),
        ("at 1s path 0 back now", "line 1, column 19: `now` is more than the step needs; steps end at the end of the line or at a `;`"),
        (
            "at 1s path 0 hold trims",
            "line 1, column 19: `trims` cannot be held: write reads, writes, flushes, zeroes, deallocates, compares, verifies or uncorrectables, or nothing for all",
        ),
        ("ät 1s path 0 lost", "line 1, column 1: `ät` should be `at`: a step reads `at TIME path NUMBER CHANGE`"),
        ("at 1s path 0 delay 0.5ns", "line 1, column 20: `0.5ns` is no time: write a number and its unit, ns, us, ms or s, as in 1.5ms"),
    ];
    for (text, message) in cases {
        assert_eq!(fails(text), message);
    }
}

#[test]
fn times_are_exact() {
    for (word, nanos) in [("0s", 0), ("7ns", 7), ("1.5us", 1_500), ("2µs", 2_000), ("0.25ms", 250_000), ("1.000000001s", 1_000_000_001)] {
        assert_eq!(parse_time(word), Some(Nanos(nanos)), "{word}");
    }
    for word in ["", "s", "1", "1.s", ".5s", "1e3s", "-1s", "1.0000000001s", "99999999999999s", "1,5s", "1h"] {
        assert_eq!(parse_time(word), None, "{word}");
    }
}

fn changes() -> impl Strategy<Value = Change> {
    let ops = prop::option::of(prop::sample::select(Op::ALL.to_vec()));
    prop_oneof![
        (prop::option::of(1u32..9), prop::sample::select(AnaState::ALL.to_vec())).prop_map(|(group, state)| Change::Ana { group, state }),
        prop::sample::select(vec![Change::Lost(Loss::Gone), Change::Lost(Loss::Frozen), Change::Back, Change::Release, Change::PowerLost]),
        (1u32..4, any::<u64>()).prop_map(|(nsid, blocks)| Change::Resize { nsid: Nsid(nsid), blocks }),
        any::<u64>().prop_map(|n| Change::Delay(Nanos(n))),
        ops.prop_map(Change::Hold),
        prop_oneof![Just(Change::Fail), Just(Change::ResetTakes(Nanos::MAX)), any::<u64>().prop_map(|n| Change::ResetTakes(Nanos(n)))],
        (0u16..16, 1u16..0x7ff, 1u32..9).prop_map(|(high, low, times)| Change::WrongStatus { status: Status(high << 11 | low), times }),
        (1u32..9).prop_map(Change::WrongCid),
        any::<u32>().prop_map(|n| Change::LoseMessage(n.max(1))),
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
    fn any_text_is_read_or_refused_at_a_place_that_it_has(text in "([a-z0-9.µ#; \n]|at 1s path 0 |lost|ana ){0,40}") {
        if let Err(error) = text.parse::<Script>() {
            let line = text.lines().nth(error.line - 1).expect("the line is there");
            prop_assert!(error.column <= line.chars().count() + 1, "{error}");
        }
    }
}
