use workload::fio::{self, Input};

use super::*;

fn jobs(text: &str) -> Vec<Job> {
    fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs
}

#[test]
fn what_would_be_lost_is_what_the_writers_reach() {
    let reach = |text: &str| {
        let jobs = jobs(text);
        range(&jobs.iter().collect::<Vec<_>>(), 1 << 30)
    };
    assert_eq!(reach("[a]\nrw=write\n"), (0, 1 << 30));
    assert_eq!(reach("[a]\nrw=write\nsize=1m\noffset=1m\n[r]\nrw=read\n"), (1 << 20, 2 << 20));
    assert_eq!(reach("[a]\nrw=randrw\nsize=1m\nnumjobs=3\noffset_increment=2m\n"), (0, 5 << 20));
    assert_eq!(reach("[a]\nrw=write\nsize=4g\n[b]\nrw=write\nsize=10%\noffset=50%\n"), (0, 1 << 30));
}

#[test]
fn what_is_there_is_known_by_its_first_bytes() {
    let place = tempfile::tempdir().unwrap();
    for (number, (at, magic, name)) in SIGNATURES.into_iter().enumerate() {
        let path = place.path().join(number.to_string());
        let file = File::create_new(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(signature(&File::open(&path).unwrap()), None);
        file.write_all_at(magic, at).unwrap();
        assert_eq!(signature(&File::open(&path).unwrap()), Some(name));
    }
    let short = place.path().join("short");
    fs::write(&short, "x").unwrap();
    assert_eq!(signature(&File::open(&short).unwrap()), None);
}

#[test]
fn ones_own_file_needs_no_leave_and_anothers_does() {
    let place = tempfile::tempdir().unwrap();
    let own = place.path().join("own");
    fs::write(&own, "x").unwrap();
    let jobs = jobs("[a]\nrw=write\n");
    let users: Vec<&Job> = jobs.iter().collect();
    assert!(check(&own, &own.metadata().unwrap(), &users, Allowed::Own).is_ok());
    // Only root can give a file away.
    if std::os::unix::fs::chown(&own, Some(12_345), None).is_err() {
        return;
    }
    let error = check(&own, &own.metadata().unwrap(), &users, Allowed::Own).unwrap_err().to_string();
    assert!(
        error.contains("bytes 0 to 1 of") && error.contains("a regular file of user 12345") && error.contains("--allow-writes"),
        "{error}"
    );
    assert!(check(&own, &own.metadata().unwrap(), &users, Allowed::All).is_ok());
}
