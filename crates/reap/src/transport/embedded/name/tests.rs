use super::*;

fn uri(text: &str) -> DeviceUri {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// A file is the same medium by whatever name, and whatever it holds; another one in its place is
/// not.
#[test]
fn file_names_are_stable() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("a"), dir.path().join("b"));
    let named = |path: &Path| nqn(&uri(&format!("file:{}", path.display()))).unwrap();
    std::fs::write(&path, [0; 4096]).unwrap();
    let first = named(&path);
    std::fs::write(&path, [1; 8192]).unwrap();
    std::os::unix::fs::symlink(&path, &other).unwrap();
    assert_eq!((named(&path), named(&other)), (first.clone(), first.clone()));
    std::fs::write(dir.path().join("c"), [0; 4096]).unwrap();
    std::fs::rename(dir.path().join("c"), &path).unwrap();
    assert_ne!(named(&path), first);
    std::fs::remove_file(&path).unwrap();
    let gone = nqn(&uri(&format!("file:{}", path.display()))).unwrap_err().to_string();
    assert!(gone.contains("cannot examine it"), "{gone}");
}

#[test]
fn memory_media_have_unique_names() {
    let [one, other] = [(); 2].map(|()| nqn(&uri("mem:1M")).unwrap());
    assert_ne!(one, other);
    assert!(serial(&one) != serial(&other) && serial(&one).len() == 20, "{}", serial(&one));
}
