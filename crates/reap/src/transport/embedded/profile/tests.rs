use units::Nanos;

use super::*;

fn from_file(text: &str) -> Result<Profile, OpenError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slow.toml");
    std::fs::write(&path, text).unwrap();
    load(path.to_str().unwrap())
}

#[test]
fn built_in_names_load() {
    for name in Profile::NAMES {
        assert_eq!(load(name).unwrap().name, name);
    }
}

#[test]
fn profile_files_name_the_profile() {
    let profile = from_file("channels = 4\n[read]\nbase_ns = 2000000\n[write]\nbase_ns = 30000\ntail_ppm = 10\ntail_ns = 5\n").unwrap();
    assert_eq!(
        (profile.name.as_str(), profile.channels, profile.read.base),
        ("slow", 4, Nanos::from_millis(2))
    );
    assert!(profile.moves_data);
}

#[test]
fn profile_errors_name_their_line() {
    for (text, words) in [
        ("[read]\nbase = 1\n[write]\n", ["line 2", "unknown field `base`"]),
        ("[read]\n", ["line 1", "missing field `write`"]),
        ("chanels = 1", ["line 1", "unknown field `chanels`"]),
        (
            "channels = 4294967295\n[read]\n[write]\n",
            ["line 1", "4294967295 channels: there are at most 65536"],
        ),
        ("[read]\ntail_ppm = 1000001\n[write]\n", ["line 2", "1000001 slow commands per million"]),
    ] {
        let error = from_file(text).expect_err(text).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    assert!(load("ramdisk").unwrap_err().to_string().contains("optane"));
    assert!(load("/nowhere.toml").unwrap_err().to_string().contains("cannot read it"));
}
