use super::*;
use crate::{Generator, Next, TargetSize, fio, plan};

/// Runs a job on a device that takes 10 us for each I/O; its logs by name.
fn logs(options: &str) -> Vec<(String, String)> {
    let text = format!("[a]\nsize=16k\n{options}\n");
    let jobs =
        fio::parse(&[fio::Input { name: "t", text: text.as_bytes() }], &fio::Nothing).unwrap().jobs;
    let (job, thread) = (&jobs[0], &plan::plan(&jobs, &[0]).threads[0]);
    let mut generator = Generator::new(
        job,
        thread.id(1),
        &[TargetSize { bytes: 1 << 20, block: 512, size_at_setup: None }],
    )
    .unwrap();
    let (mut now, mut flying) = (Nanos(1_000_000), Vec::new());
    loop {
        match generator.next(now) {
            Next::Issue(io) => {
                flying.push(io);
            }
            Next::Commit => {
                now += Nanos(100);
                generator.committed(now);
            }
            Next::Reap { .. } | Next::Wait { .. } => {
                now += Nanos(10_000);
                flying.drain(..).for_each(|io| generator.completed(io.slot, now, Ok(()), &[]));
            }
            Next::Done => break,
        }
    }
    let text = |file: LogFile| {
        let mut out = Vec::new();
        write(file.kind, job, &["/dev/x".into()], generator.logs().unwrap(), &mut out).unwrap();
        (file.name, String::from_utf8(out).unwrap())
    };
    files(job, thread).into_iter().map(text).collect()
}

#[test]
fn logs_hold_each_io() {
    let found = logs("write_bw_log=l\nwrite_lat_log\nwrite_iops_log=l");
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["l_bw.1.log", "a_slat.1.log", "a_clat.1.log", "a_lat.1.log", "l_iops.1.log"]
    );
    let second = |at: usize| found[at].1.lines().nth(1).unwrap().to_owned();
    assert_eq!(second(0), "0, 409600, 0, 4096, 0");
    assert_eq!(
        [1, 2, 3, 4].map(second).map(|line| line.split(", ").nth(1).unwrap().to_owned()),
        ["100", "10000", "10100", "1"]
    );
    assert!(found.iter().all(|(_, text)| text.lines().count() == 4));
}

#[test]
fn stretches_of_time_have_means() {
    let found = logs("write_bw_log=l\nwrite_iops_log=l\nlog_avg_msec=1\nthinktime=500");
    assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("l_bw.1.log", "l_iops.1.log"));
    // Two I/Os in the first millisecond.
    assert_eq!(found[1].1.lines().next(), Some("1, 2000, 0, 0, 0"));
    assert_eq!(found[0].1.lines().next(), Some("1, 8000, 0, 0, 0"));
}

#[test]
fn lists_can_be_read_again() {
    let found = logs("rw=trimwrite\nwrite_iolog=list\nfilename=x\nend_fsync=1");
    assert_eq!(found[0].0, "list");
    let again = fio::parse(
        &[fio::Input { name: "t", text: b"[a]\nread_iolog=list\n" }],
        &Again(found[0].1.clone()),
    )
    .unwrap()
    .jobs;
    let list = again[0].iolog.as_ref().unwrap();
    assert_eq!(
        (list.files.as_slice(), list.steps.len()),
        (&["/dev/x".to_owned()][..], found[0].1.lines().count() - 4)
    );
    assert!(
        found[0].1.contains(" trim 4096 4096\n")
            && found[0].1.contains(" write 4096 4096\n")
            && found[0].1.contains(" sync 12288 0\n")
    );
}

struct Again(String);

impl fio::Environment for Again {
    fn include(&self, _: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        Ok((path.into(), self.0.clone().into_bytes()))
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}
