use super::*;

#[test]
fn what_was_there_stays_until_there_is_something_to_write() {
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
fn a_device_is_written_to_as_it_is() {
    let mut output = Output::open(Some(Path::new("/dev/null"))).unwrap();
    output.write("nothing").unwrap();
    output.finish().unwrap();
}
