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
    output.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "this one's");
}

#[test]
fn creation_errors_give_advice() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let told = |name: &str| {
        let path = dir.path().join(name);
        let error = format!("{:#}", Output::open(Some(&path)).err().unwrap());
        error.replace(&dir.path().display().to_string(), "DIR")
    };
    assert_eq!(told("none/rows.json"), "cannot write the results to DIR/none/rows.json: there is no directory DIR/none; make it first");
    assert_eq!(told(""), "cannot write the results to DIR/: this is a directory; name a file in it");
    assert_eq!(told("file/rows.json"), "cannot write the results to DIR/file/rows.json: DIR/file is no directory; name another");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/nowhere/rows.json", link).unwrap();
    assert!(told("link").ends_with("No such file or directory (os error 2)"), "a link that leads nowhere");
}

#[test]
fn device_files_are_not_truncated() {
    let mut output = Output::open(Some(Path::new("/dev/null"))).unwrap();
    output.write("nothing").unwrap();
    output.finish().unwrap();
}

#[test]
fn one_failed_file_spares_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last");
    let text = || Ok("last".to_owned());
    let full = |name: &str| Err(anyhow::anyhow!("no space").context(format!("cannot write {name}")));
    let failed = all([full("a"), Aside::open(None).unwrap().write(text), full("b"), Aside::open(Some(&path)).unwrap().write(text)]);
    assert_eq!(failed.unwrap_err().to_string(), "cannot write a: no space\ncannot write b: no space");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "last");
    all([Ok(())]).unwrap();
}

#[test]
fn one_file_has_one_use() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("job"), "").unwrap();
    std::os::unix::fs::symlink(at("job"), at("link")).unwrap();
    let check = |read: &str, a: &str, b: &str| apart([at(read).as_path()], &[("--a", Some(&at(a))), ("--b", Some(&at(b))), ("--c", None)]);
    check("job", "new", "other").unwrap();
    for (a, b, words) in [("job", "x", "--a"), ("x", "link", "--b"), ("x", "./x", "--a and --b name one file"), ("job", "job", "is read")] {
        let said = check("job", a, b).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    // Any number of writers.
    apart([Path::new("/dev/null")], &[("--a", Some(Path::new("/dev/null"))), ("--b", Some(Path::new("/dev/null")))]).unwrap();
}

#[test]
fn stderr_lines_fit_the_terminal() {
    assert_eq!(laid("error: one two\nthree", Some(10)), "error: one\ntwo\nthree\n");
    assert_eq!(laid("error: one two three", None), "error: one two three\n");
}
