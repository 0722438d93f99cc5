use std::path::PathBuf;

use ::sim::sweep::{Halves, Point};

use super::*;
use crate::rows::{Estimate, Row};
use ::sim::sweep::judge::Fare;

/// Results in a directory of their own, and the journal's place beside them.
fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (json, journal) = (dir.path().join("s.json"), dir.path().join("s.json.journal"));
    (dir, json, journal)
}

fn sweep(seed: u64) -> Map<String, Value> {
    [("seed".to_owned(), seed.into()), ("program".to_owned(), "this one".into())].into_iter().collect()
}

/// Figures that need all of their digits.
fn ran(n: u32) -> Ran {
    let third = f64::from(n) / 3.0 + 1e-13;
    let estimate = Some(Estimate { value: third, interval: Some([third / 7.0, 0.1 + 0.2]) });
    let mut row = Row { mode: format!("adaptive@{n}%"), cpu: estimate, ..Row::default() };
    row.latency.curve = vec![(0.1, third), (99.9, 5e-324)];
    row.extra.insert("capacity_iops".into(), (1e6 / 7.0).into());
    let point = Point { p99: f64::MAX / 3.0, cpu: third };
    Ran {
        row,
        halves: Halves { choosing: point, quarters: [point; 2], judging: Point { cpu: third * 3.0, ..point } },
        fare: Fare { cpu: third, mean: third * 2.0, p99: 1.0, iops: third },
    }
}

fn refused(json: &Path, sweep: &Map<String, Value>, resume: bool) -> String {
    format!("{:#}", Journal::open(json, sweep, resume).err().expect("it is not refused"))
}

#[test]
fn what_was_done_is_there_again_to_the_last_digit() {
    let (_dir, json, path) = place();
    let mut journal = Journal::open(&json, &sweep(1), false).unwrap();
    (0..100).for_each(|n| journal.add(&format!("run {n}"), &ran(n)).unwrap());
    assert_eq!(journal.path(), path);
    drop(journal);
    let mut journal = Journal::open(&json, &sweep(1), true).unwrap();
    (0..100).for_each(|n| assert_eq!(journal.take(&format!("run {n}")), Some(ran(n))));
    assert_eq!(journal.take("run 100"), None);
    // What is done after it was resumed stands beside the rest.
    journal.add("run 100", &ran(100)).unwrap();
    drop(journal);
    let mut journal = Journal::open(&json, &sweep(1), true).unwrap();
    assert_eq!([journal.take("run 0"), journal.take("run 100")], [Some(ran(0)), Some(ran(100))]);
    journal.remove().unwrap();
    assert!(!path.exists());
}

/// Wherever the program was ended, whole lines count and the rest is as if it had never been written.
#[test]
fn a_line_without_an_end_is_run_again() {
    let (_dir, json, path) = place();
    let mut journal = Journal::open(&json, &sweep(1), false).unwrap();
    (0..2).for_each(|n| journal.add(&format!("run {n}"), &ran(n)).unwrap());
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut journal = Journal::open(&json, &sweep(1), true).unwrap();
        let known = [journal.take("run 0"), journal.take("run 1")];
        let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(known, [(lines > 1).then(|| ran(0)), None], "cut at {cut}");
        (0..2).filter(|&n| known[n as usize].is_none()).for_each(|n| journal.add(&format!("run {n}"), &ran(n)).unwrap());
        drop(journal);
        assert!(fs::read(&path).unwrap() == whole, "cut at {cut}");
    }
}

#[test]
fn another_sweeps_runs_are_refused() {
    let (_dir, json, path) = place();
    assert!(refused(&json, &sweep(1), true).contains("s.json.journal: nothing to resume"));
    let mut journal = Journal::open(&json, &sweep(1), false).unwrap();
    assert!(refused(&json, &sweep(1), true).contains("another running sweep's"));
    journal.add("run 0", &ran(0)).unwrap();
    drop(journal);
    let kept = fs::read_to_string(&path).unwrap();
    assert!(refused(&json, &sweep(1), false).contains("--resume goes on with them"));
    assert!(refused(&json, &sweep(2), true).contains("is another sweep's: seed is 1 there, and 2 here"));
    let rebuilt = [("program".to_owned(), Value::from("another one"))].into_iter().collect();
    assert!(refused(&json, &rebuilt, true).contains("program is \"this one\" there, and \"another one\" here"));
    let more = [("qd".to_owned(), Value::from(1))].into_iter().collect();
    assert!(refused(&json, &more, true).contains("it does not tell qd"));
    assert_eq!(fs::read_to_string(&path).unwrap(), kept, "what is refused stays as it was");
    fs::write(&path, kept.replace("\"row\"", "\"raw\"")).unwrap();
    assert!(refused(&json, &sweep(1), true).contains("s.json.journal:2: this is no run"));
    fs::write(&path, "an old friend's diary\n").unwrap();
    assert!(refused(&json, &sweep(1), true).contains("s.json.journal:1: this is no sweep's journal"));
}

#[test]
fn a_program_is_the_same_as_itself() {
    assert_eq!(program().unwrap(), program().unwrap());
}
