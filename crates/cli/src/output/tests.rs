use proptest::prelude::*;

use super::*;

#[test]
fn file_is_truncated_at_first_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.json");
    // Stopped before it was written to: as if nothing had been.
    drop(Output::open(Some(&path)).unwrap());
    assert!(!path.exists());
    std::fs::write(&path, "the results of an earlier run").unwrap();
    drop(Output::open(Some(&path)).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "the results of an earlier run");
    let mut output = Output::open(Some(&path)).unwrap();
    output.write("this ").unwrap();
    output.write("one's").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "this one's");
}

#[test]
fn device_files_are_not_truncated() {
    let mut output = Output::open(Some(Path::new("/dev/null"))).unwrap();
    output.write("nothing").unwrap();
}

#[test]
fn one_failed_file_spares_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last");
    let text = || Ok("last".to_owned());
    let full =
        |name: &str| Err(anyhow::anyhow!("no space").context(format!("cannot write {name}")));
    let failed = all([
        full("a"),
        OptionalOutput::open(None).unwrap().write(text),
        full("b"),
        OptionalOutput::open(Some(&path)).unwrap().write(text),
    ]);
    assert_eq!(
        failed.unwrap_err().to_string(),
        "cannot write a: no space\ncannot write b: no space"
    );
    assert_eq!(std::fs::read_to_string(path).unwrap(), "last");
    all([Ok(())]).unwrap();
}

#[test]
fn one_file_has_one_use() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("job"), "").unwrap();
    std::os::unix::fs::symlink(at("job"), at("link")).unwrap();
    let check = |read: &str, a: &str, b: &str| {
        apart([at(read).as_path()], &[("--a", Some(&at(a))), ("--b", Some(&at(b))), ("--c", None)])
    };
    check("job", "new", "other").unwrap();
    for (a, b, words) in [
        ("job", "x", "--a"),
        ("x", "link", "--b"),
        ("x", "./x", "--a and --b name the same file"),
        ("job", "job", "would overwrite an input file"),
    ] {
        let said = check("job", a, b).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    // Any number of writers.
    apart(
        [Path::new("/dev/null")],
        &[("--a", Some(Path::new("/dev/null"))), ("--b", Some(Path::new("/dev/null")))],
    )
    .unwrap();
}

#[test]
fn stderr_lines_fit_the_terminal() {
    assert_eq!(laid("error: one two\nthree", Some(10)), "error: one\ntwo\nthree\n");
    assert_eq!(laid("error: one two three", None), "error: one two three\n");
}

#[test]
fn control_characters_become_question_marks() {
    assert_eq!(escape("S\u{1b}[31mX\u{9b}2J\r\n\u{202e}é"), "S?[31mX?2J???é");
}

proptest! {
    #[test]
    fn nothing_of_it_is_left(text in any::<String>()) {
        let shown = escape(&text);
        prop_assert_eq!(shown.chars().count(), text.chars().count());
        prop_assert!(!shown.chars().any(char::is_control));
    }
}
