use super::*;

#[test]
fn a_file_is_created_extended_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    let mut media = FileMedia::open(&path, Some(1 << 20), 512).unwrap();
    media.write_at(4096, &[7; 512], true).unwrap();
    drop(media);
    let mut again = FileMedia::open(&path, None, 512).unwrap();
    let mut read = [0; 512];
    again.read_at(4096, &mut read).unwrap();
    assert_eq!((again.bytes(), read), (1 << 20, [7; 512]));
}

#[test]
fn what_cannot_be_a_medium_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::write(&small, [0; 100]).unwrap();
    for (path, words) in [
        (dir.path().join("missing"), "`size=` creates it"),
        (small, "100 bytes hold no block of 512"),
        (dir.path().to_owned(), "cannot open"),
        ("/dev/null".into(), "not a regular file"),
    ] {
        let error = FileMedia::open(&path, None, 512).map(|_| ()).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    // What was done already is no advice.
    let nowhere = dir.path().join("none/medium");
    let error = FileMedia::open(&nowhere, Some(4096), 512).map(|_| ()).expect_err("no such directory").to_string();
    assert!(error.contains("No such file") && !error.contains("size="), "{error}");
}

#[test]
fn once_fdatasync_failed_no_later_flush_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let mut media = FileMedia::open(&dir.path().join("media"), Some(1 << 20), 512).unwrap();
    media.flush().unwrap();
    // A pipe cannot be synchronised: the real call fails.
    let (_reader, writer) = io::pipe().unwrap();
    let file = std::mem::replace(&mut media.file, File::from(std::os::fd::OwnedFd::from(writer)));
    assert!(matches!(media.flush(), Err(MediaError::Io { what: Access::Flush, .. })));
    media.file = file;
    media.write_at(0, &[7; 512], false).unwrap();
    assert!(matches!(media.flush(), Err(MediaError::FlushLost)));
    assert!(matches!(media.write_at(512, &[7; 512], true), Err(MediaError::FlushLost)));
    let mut read = [0; 512];
    media.read_at(0, &mut read).unwrap();
    assert_eq!(read, [7; 512], "what can be read stays readable");
}
