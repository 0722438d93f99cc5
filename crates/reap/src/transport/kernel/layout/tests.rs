use std::fs;

use tempfile::TempDir;

use super::*;

#[test]
fn every_byte_is_laid_out() {
    let dir = TempDir::new().unwrap();
    for bytes in [512, CHUNK - 512, CHUNK, 2 * CHUNK + 512] {
        let path = dir.path().join(bytes.to_string());
        let file = create(&path).unwrap();
        NewFile::new(&path, &file, true).lay_out(bytes).unwrap();
        let written = fs::read(&path).unwrap();
        assert_eq!(written.len() as u64, bytes);
        assert!(written.chunks(512).all(|sector| sector.iter().any(|&b| b != 0)));
        // No block is like another, so that nothing folds them into one.
        let blocks: std::collections::HashSet<_> = written.chunks(512).collect();
        assert_eq!(blocks.len() as u64, bytes / 512);
    }
}

#[test]
fn failed_layouts_leave_no_data() {
    let dir = TempDir::new().unwrap();
    let (made, found) = (dir.path().join("made"), dir.path().join("found"));
    let file = create(&made).unwrap();
    assert!(create(&made).is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists));
    drop(NewFile::new(&made, &file, true));
    assert!(!made.exists());
    let file = create(&found).unwrap();
    file.write_all_at(b"half", 0).unwrap();
    drop(NewFile::new(&found, &file, false));
    assert_eq!(fs::read(&found).unwrap(), b"");
}

#[test]
fn impossible_file_sizes_are_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("vast");
    let file = create(&path).unwrap();
    // 1024 TiB, the most that a URI can ask for.
    match NewFile::new(&path, &file, true).lay_out(1 << 50) {
        Err(TargetFault::NoSpace(_)) => assert!(!path.exists()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bare_names_use_the_working_directory() {
    assert_eq!(parent(Path::new("disk")), Path::new("."));
    assert_eq!(parent(Path::new("/a/disk")), Path::new("/a"));
}
