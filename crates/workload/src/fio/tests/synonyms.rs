//! Options that say when and where I/Os go, and what is logged.

use super::*;

#[test]
fn pauses_and_ends() {
    let a = job("thinktime=500\nthinktime_spin=2ms\nthinktime_blocks=8\nsync=dsync");
    let half = Nanos::from_micros(500);
    assert_eq!(a.think, Some(Think { time: half, spin: half, blocks: 8 }));
    assert!(a.sync_writes && !job("sync=none").sync_writes && job("thinktime=0").think.is_none());
    assert_eq!(
        job("continue_on_error=write").continue_on_error,
        PerOp { read: false, write: true, trim: true }
    );
}

#[test]
fn places_of_ios() {
    assert_eq!(job("bs=4k,8k,16k").block.trim, BlockSizes::fixed(16384));
    assert_eq!(job("bs=8k,16k").block.trim, BlockSizes::fixed(16384));
    assert_eq!(job("bs=8k,").block.write, BlockSizes::fixed(4096));
    let a = job("blockalign=4k\nnrfiles=4");
    assert_eq!((a.align.read, a.files), (4096, 4));
}

#[test]
fn what_is_noted_down() {
    let files = World {
        files: HashMap::from([("l", "fio version 2 iolog\n/d add\n/d write 0 512\n".to_owned())]),
        ..World::default()
    };
    let listed = read_in(&files, "[a]\nrw=randread\nread_iolog=l\n").unwrap().jobs.remove(0);
    assert_eq!(
        (listed.pattern.direction, listed.iolog.unwrap().steps.len()),
        (Direction::Write, 1)
    );
    assert_eq!(listed.filenames, ["/d"], "the files of a list are the job's");
    let placed = |options: &str| {
        read_in(&files, &format!("[a]\nread_iolog=l\n{options}\n"))
            .unwrap()
            .jobs
            .remove(0)
            .filenames
    };
    assert_eq!(
        (placed("directory=/x"), placed("filename=own")),
        (vec!["/x//d".to_owned()], vec!["own".to_owned()])
    );
    let logs = job("write_bw_log\nwrite_lat_log=l\nlog_avg_msec=100").logs;
    assert_eq!(
        (logs.bandwidth.as_deref(), logs.latency.as_deref(), logs.iops),
        (Some("a"), Some("l"), None)
    );
    assert_eq!(logs.average, Nanos::from_millis(100));
    let verify =
        job("rw=write\nverify=md5\nverify_backlog=32\nverify_backlog_batch=8").verify.unwrap();
    assert_eq!((verify.backlog, verify.backlog_batch), (32, 8));
}

#[test]
fn directory_and_filesize_are_read() {
    let job = |text: &str| read(&format!("[a]\n{text}\n")).unwrap().jobs.remove(0);
    let placed = job("directory=/data/\nfilename=x:/dev/y");
    assert_eq!(placed.filenames, ["/data/x", "/data//dev/y"]);
    // Without a name, each thread has files of its own.
    let own = read("[a]\ndirectory=/data\nnumjobs=2\nnrfiles=2\n[b]\nfilename_format=x.$filenum\n")
        .unwrap();
    let names = crate::plan::plan(&own.jobs, &[0]).targets;
    let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    assert_eq!(names, ["/data/a.0.0", "/data/a.0.1", "/data/a.1.0", "/data/a.1.1", "x.0"]);
    let each = job("size=64k\nfilesize=16k\nnrfiles=4");
    assert_eq!(
        (each.size, each.file_size, each.files),
        (Some(Amount::Bytes(65_536)), Some(16_384), 4)
    );
    let (alone, shared) = (
        job("filesize=16k"),
        read("[a]\nnumjobs=2\nfilename_format=x.$filenum\n").unwrap_err().to_string(),
    );
    assert_eq!((alone.size, alone.file_size), (None, Some(16_384)));
    assert!(
        shared.contains("does not support `numjobs=2 with filename_format=x.$filenum"),
        "{shared}"
    );
}
