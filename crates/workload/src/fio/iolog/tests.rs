use super::*;
use proptest::prelude::*;

fn steps(text: &str, no_stall: bool) -> Result<Vec<IologStep>, ValueError> {
    read_iolog("list", text.as_bytes(), no_stall).map(|list| list.steps)
}

fn io(op: Op, offset: u64, len: u64, at: Option<u64>) -> IologStep {
    IologStep::Io { op, file: 0, offset, len, at: at.map(Nanos::from_micros) }
}

#[test]
fn version_2_says_when_to_wait() {
    let text = "fio version 2 iolog\n/d add\n/d open\n/d read 0 4096\n/d wait 99 0\n/d wait 500 0\n/d write 8192 512\n/d sync\n/d close\n";
    let found = steps(text, false).unwrap();
    let wait = IologStep::Wait(Nanos::from_micros(500));
    assert_eq!(
        found,
        [
            io(Op::Read, 0, 4096, None),
            wait,
            io(Op::Write, 8192, 512, None),
            io(Op::Flush, 0, 0, None)
        ]
    );
}

#[test]
fn version_3_has_time_stamps() {
    let text = "fio version 3 iolog\n1 /d add\n2 /d open\n100 /d trim 0 2147483648\n300 /d write 12288 4096\n";
    let found = steps(text, false).unwrap();
    assert_eq!(
        found,
        [io(Op::Deallocate, 0, 1 << 31, Some(100)), io(Op::Write, 12288, 4096, Some(300))]
    );
    let fast = steps(text, true).unwrap();
    assert_eq!(fast[1], io(Op::Write, 12288, 4096, None));
}

#[test]
fn malformed_list_names_its_line() {
    let cases = [
        ("", "first line"),
        ("fio version 1 iolog\n", "version 1"),
        ("fio version 2 iolog\n/d add\n", "no I/O"),
        (
            "fio version 2 iolog\n/d read 0 1\n",
            "list:2: no line before this one adds the file '/d'",
        ),
        ("fio version 2 iolog\n/d add\n/d eat 0 1\n", "list:3: 'eat' is not one of"),
        ("fio version 2 iolog\n/d add\n/d read x 1\n", "'x' is not a number"),
        ("fio version 3 iolog\n/d add\n", "'/d' is not a number"),
    ];
    for (text, expected) in cases {
        let error = steps(text, false).unwrap_err();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_handled(text in "(fio version [23] iolog\n)?([0-9 /a-z-]{0,20}\n){0,10}") {
        let _ = steps(&text, false);
    }
}
