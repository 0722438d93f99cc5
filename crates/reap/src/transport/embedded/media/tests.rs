use super::*;

#[test]
fn files_are_created_and_extended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    let mut media = FileMedia::open(&path, Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.write_at(4096, &[7; 512], true).unwrap();
    drop(media);
    let mut again = FileMedia::open(&path, None, 512, FileAccess::Write).unwrap();
    let mut read = [0; 512];
    again.read_at(4096, &mut read).unwrap();
    assert_eq!((again.bytes(), read), (1 << 20, [7; 512]));
}

#[test]
fn unusable_media_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::write(&small, [0; 100]).unwrap();
    for (path, words) in [
        (dir.path().join("missing"), "`size=` creates it"),
        (small, "100 bytes hold no block of 512"),
        (dir.path().to_owned(), "cannot open"),
        ("/dev/null".into(), "not a regular file"),
    ] {
        let error = FileMedia::open(&path, None, 512, FileAccess::Write)
            .map(|_| ())
            .expect_err(words)
            .to_string();
        assert!(error.contains(words), "{error}");
    }
    // What was done already is no advice.
    let nowhere = dir.path().join("none/medium");
    let error = FileMedia::open(&nowhere, Some(4096), 512, FileAccess::Write)
        .map(|_| ())
        .expect_err("no such directory")
        .to_string();
    assert!(error.contains("No such file") && !error.contains("size="), "{error}");
}

#[test]
fn failed_fdatasync_fails_later_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let mut media =
        FileMedia::open(&dir.path().join("media"), Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.flush().unwrap();
    // A pipe cannot be synchronised: the real call fails.
    let (_reader, writer) = io::pipe().unwrap();
    media.bytes = 0;
    let file = std::mem::replace(&mut media.file, File::from(std::os::fd::OwnedFd::from(writer)));
    assert!(matches!(media.flush(), Err(MediaError::Io { what: MediaOperation::Flush, .. })));
    media.file = file;
    media.write_at(0, &[7; 512], false).unwrap();
    assert!(matches!(media.flush(), Err(MediaError::FlushLost)));
    assert!(matches!(media.write_at(512, &[7; 512], true), Err(MediaError::FlushLost)));
    let mut read = [0; 512];
    media.read_at(0, &mut read).unwrap();
    assert_eq!(read, [7; 512], "what can be read stays readable");
}

/// What the file holds, by its own bytes, after writes, zeroes and deallocations, each at odd
/// places.
fn exercise(media: &mut FileMedia) {
    const BYTES: usize = 1 << 20;
    let mut model = vec![0u8; BYTES];
    let mut rng = 7u64;
    let mut roll = |below: usize| {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (rng >> 33) as usize % below
    };
    for n in 0..200u8 {
        let (at, len) = (roll(BYTES / 512 - 400) * 512, (1 + roll(400)) * 512);
        if n % 3 == 0 {
            media.write_at(at as u64, &vec![n + 1; len], false).unwrap();
            model[at..at + len].fill(n + 1);
        } else {
            media.zero_at(at as u64, len as u64, n % 3 == 1, n % 16 == 0).unwrap();
            model[at..at + len].fill(0);
        }
    }
    let mut found = vec![1; BYTES];
    media.read_at(0, &mut found).unwrap();
    assert!(found == model && media.file.metadata().unwrap().len() == BYTES as u64);
}

#[test]
fn zeroing_and_deallocating_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut media =
        FileMedia::open(&dir.path().join("media"), Some(1 << 20), 512, FileAccess::Write).unwrap();
    exercise(&mut media);
    media.write_at(0, &vec![7; 1 << 20], true).unwrap();
    let full = media.allocated();
    media.zero_at(0, 1 << 20, true, true).unwrap();
    if media.refused.is_empty() {
        assert!(media.allocated() < full, "{} of {full} bytes", media.allocated());
    }
}

#[test]
fn missing_fallocate_writes_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    let mut media =
        FileMedia::open(&dir.path().join("media"), Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.refused = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
    exercise(&mut media);
    // A pipe refuses otherwise: that is an error.
    let (_reader, writer) = io::pipe().unwrap();
    media.bytes = 0;
    media.file = File::from(std::os::fd::OwnedFd::from(writer));
    media.refused = FallocateFlags::empty();
    assert!(matches!(
        media.zero_at(0, 512, true, false),
        Err(MediaError::Io { what: MediaOperation::Zero, .. })
    ));
}

#[test]
fn lost_flush_fails_fua_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    let mut media =
        FileMedia::open(&dir.path().join("media"), Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.shared.write_back.fail();
    media.zero_at(0, 512, true, false).unwrap();
    assert!(matches!(media.zero_at(0, 512, true, true), Err(MediaError::FlushLost)));
}

#[test]
fn lock_and_lost_flush_are_shared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    let open = || FileMedia::open(&path, Some(1 << 20), 512, FileAccess::Write);
    let (mut one, mut other) = (open().unwrap(), open().unwrap());
    one.shared.write_back.fail();
    assert!(
        matches!(other.flush(), Err(MediaError::FlushLost))
            && matches!(one.write_at(0, &[0; 512], true), Err(MediaError::FlushLost))
    );
    drop(one);
    assert!(matches!(open().unwrap().flush(), Err(MediaError::FlushLost)), "it is still open");
    drop(other);
    open().unwrap().flush().unwrap();
}

#[test]
fn files_in_use_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    drop(FileMedia::open(&path, Some(1 << 20), 512, FileAccess::Write).unwrap());
    for shared in [true, false] {
        let user = File::open(&path).unwrap();
        if shared {
            user.lock_shared().unwrap()
        } else {
            user.lock().unwrap()
        }
        // It would have been extended, had it been opened.
        let refused = FileMedia::open(&path, Some(2 << 20), 512, FileAccess::Write)
            .err()
            .expect("refused")
            .to_string();
        assert!(refused.contains("has locked it"), "{refused}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
    }
}

#[test]
fn truncated_files_refuse_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    let mut media = FileMedia::open(&path, Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.write_at(1 << 19, &[7; 512], false).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(matches!(
        media.write_at((1 << 20) - 512, &[7; 512], false),
        Err(MediaError::Truncated { bytes: 1048576 })
    ));
    assert!(matches!(media.zero_at(0, 512, false, false), Err(MediaError::Truncated { .. })));
    assert!(
        matches!(media.flush(), Err(MediaError::FlushLost)),
        "what was cut off was acknowledged"
    );
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
    // Its size alone does not bring back what it held.
    OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    assert!(matches!(media.write_at(0, &[7; 512], false), Err(MediaError::Truncated { .. })));
}

#[test]
fn writers_that_agree_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    let media = FileMedia::open(&path, Some(1 << 20), 512, FileAccess::Share).unwrap();
    // As another process that shares it has it, and one that does not.
    let other = File::open(&path).unwrap();
    other.try_lock_shared().unwrap();
    other.unlock().unwrap();
    assert!(other.try_lock().is_err());
    assert!(FileMedia::open(&path, None, 512, FileAccess::Share).is_ok());
    assert!(FileMedia::open(&path, None, 512, FileAccess::Write).is_err(), "it would not be alone");
    drop(media);
    other.try_lock().unwrap();
    assert!(FileMedia::open(&path, None, 512, FileAccess::Share).is_err());
}

#[test]
fn truncated_files_refuse_flush() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("media");
    let mut media = FileMedia::open(&path, Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.write_at((1 << 20) - 512, &[7; 512], false).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len((1 << 20) - 1).unwrap();
    assert!(media.flush().is_err(), "its last block was acknowledged");
    assert!(matches!(
        media.read_at((1 << 20) - 512, &mut [0; 512]),
        Err(MediaError::Io { what: MediaOperation::Read, .. })
    ));
}

/// /dev/full is written to as a full file system is.
#[test]
fn full_file_systems_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    let mut media =
        FileMedia::open(&dir.path().join("media"), Some(1 << 20), 512, FileAccess::Write).unwrap();
    media.bytes = 0;
    media.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = media.write_at(0, &[7; 512], false).unwrap_err();
    assert!(
        media.said_full
            && matches!(error, MediaError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    );
}
