//! Options that say when and where I/Os go, and what is noted down of them.

use super::*;

#[test]
fn pauses_and_ends() {
    let a = job("thinktime=500\nthinktime_spin=2ms\nthinktime_blocks=8\nsync=dsync");
    let half = Nanos::from_micros(500);
    assert_eq!(a.think, Some(Think { time: half, spin: half, blocks: 8, every: None }));
    assert!(a.sync_writes && !job("sync=none").sync_writes && job("thinktime=0").think.is_none());
    let every = job("thinktime=1s\nthinktime_iotime=9").think.unwrap();
    assert_eq!((every.blocks, every.every), (u64::MAX, Some(Nanos::from_secs(9))));
    let goes_on = job("continue_on_error=write\nignore_error=EAGAIN,ENOSPC:122").goes_on;
    assert_eq!((goes_on.read, goes_on.write), (vec![11], vec![5, 84, 28, 122]));
    let waits = read("[a]\n[b]\nwait_for=a\n[c]\nwait_for=b\nexitall\nexit_what=all\n").unwrap().jobs;
    let plan = crate::plan::plan(&waits, &[0]);
    assert_eq!(plan.threads.iter().map(|thread| thread.after).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
    assert!(plan.ends(ExitWhat::All, &plan.threads[2], 9) && !plan.ends(ExitWhat::Group, &plan.threads[2], 9));
}

#[test]
fn places_of_ios() {
    let zoned = |text: &str| match job(&format!("random_distribution={text}")).distribution {
        Distribution::Zoned(zones) => zones,
        other => panic!("{other:?}"),
    };
    let zone = |access, percent| AccessZone { access, room: ZoneRoom::Percent(percent) };
    let both = zoned("zoned:50/5:30/15:20/");
    assert_eq!(both, PerOp::both(vec![zone(50.0, 5.0), zone(30.0, 15.0), zone(20.0, 80.0)]));
    assert_eq!(zoned("zoned:60/10:40/90,100/100").write, [zone(100.0, 100.0)]);
    assert_eq!(zoned("zoned_abs:100/1g").read, [AccessZone { access: 100.0, room: ZoneRoom::Bytes(1 << 30) }]);
    assert_eq!(job("random_distribution=sequence:2,0,1").distribution, Distribution::Sequence { blocks: vec![2, 0, 1], moves: false });
    let strided = job("zonemode=strided\nzonesize=256m\nzoneskip=2g").strided.unwrap();
    assert_eq!(strided, Strided { size: 256 << 20, range: 256 << 20, skip: 2 << 30, whole: true });
    assert_eq!(job("bs=4k,8k,16k").block.trim, BlockSizes::fixed(16384));
    assert_eq!(job("bs=8k,16k").block.trim, BlockSizes::fixed(16384));
    assert_eq!(job("bs=8k,").block.write, BlockSizes::fixed(4096));
    let a = job("blockalign=4k\npercentage_random=50,0\nrw_sequencer=identical\nfile_service_type=random:8\nnrfiles=4");
    assert_eq!((a.align.read, a.random_percent.read, a.random_percent.write), (4096, 50, 0));
    assert_eq!((a.identical, a.service, a.service_run, a.files), (true, FileService::Random, 8, 4));
}

#[test]
fn what_is_written_and_noted_down() {
    let pattern = |bytes: &[u8]| FillPattern { bytes: bytes.to_vec(), offsets: Vec::new() };
    assert_eq!(job("buffer_pattern=0xdead").contents, Contents::Pattern(pattern(&[0xde, 0xad])));
    assert_eq!(job("zero_buffers").contents, Contents::Zeroes);
    let half = Contents::Compressible { percent: 50, chunk: 512, pattern: None };
    assert_eq!(job("buffer_compress_percentage=50").contents, half);
    let files = World {
        files: HashMap::from([("p", "\u{1}\u{2}".to_owned()), ("l", "fio version 2 iolog\n/d add\n/d write 0 512\n".to_owned())]),
        ..World::default()
    };
    let filled = read_in(&files, "[a]\nbuffer_pattern='p'0x03\n").unwrap().jobs.remove(0);
    assert_eq!(filled.contents, Contents::Pattern(pattern(&[1, 2, 3])));
    let listed = read_in(&files, "[a]\nrw=randread\nread_iolog=l\n").unwrap().jobs.remove(0);
    assert_eq!((listed.pattern.direction, listed.iolog.unwrap().steps.len()), (Direction::Write, 1));
    let logs = job("write_bw_log\nwrite_lat_log=l\nlog_avg_msec=100\nlog_window_value=both\nlog_offset=1\nper_job_logs=0").logs;
    assert_eq!((logs.bandwidth.as_deref(), logs.latency.as_deref(), logs.iops), (Some("a"), Some("l"), None));
    assert_eq!((logs.average, logs.value, logs.offset, logs.shared), (Nanos::from_millis(100), LogValue::Both, true, true));
    let backlog = job("rw=write\nverify=md5\nverify_backlog=32").verify.unwrap().backlog;
    assert_eq!(backlog, Some(Backlog { writes: 32, batch: 32 }));
}

#[test]
fn files_have_a_directory_and_a_size() {
    let job = |text: &str| read(&format!("[a]\n{text}\n")).unwrap().jobs.remove(0);
    let placed = job("directory=/data/\nfilename=x:/dev/y");
    assert_eq!(placed.filenames, ["/data/x", "/dev/y"]);
    // Without a name, each thread has files of its own.
    let own = read("[a]\ndirectory=/data\nnumjobs=2\nnrfiles=2\n[b]\nfilename_format=x.$filenum\n").unwrap();
    let names = crate::plan::plan(&own.jobs, &[0]).targets;
    let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    assert_eq!(names, ["/data/a.0.0", "/data/a.0.1", "/data/a.1.0", "/data/a.1.1", "x.0"]);
    let each = job("size=64k\nfilesize=16k\nnrfiles=4");
    assert_eq!((each.size, each.io_size, each.files), (Some(Amount::Bytes(65_536)), Some(Amount::Bytes(65_536)), 4));
    // Extent and amount: alone each is both.
    let both = job("size=64k\nfilesize=16k");
    assert_eq!((both.size, both.io_size), (Some(Amount::Bytes(16_384)), Some(Amount::Bytes(65_536))));
    let alone = job("filesize=16k");
    assert_eq!((alone.size, alone.io_size), (Some(Amount::Bytes(16_384)), None));
}

#[test]
fn writes_ask_for_other_commands() {
    let job = |text: &str| read(&format!("[a]\nrw=write\n{text}\n")).unwrap().jobs.remove(0);
    let mixed = job("write_mode=write/40:zeroes/:verify/:uncor/10");
    assert_eq!(mixed.writes_as, [(WriteAs::Write, 40), (WriteAs::Zeroes, 25), (WriteAs::Verify, 25), (WriteAs::Uncorrectable, 10)]);
    assert_eq!(job("write_mode=zeroes").writes_as, [(WriteAs::Zeroes, 100)]);
    assert_eq!((job("write_mode=write").writes_as, job("sg_write_mode=write").writes_as), (Vec::new(), Vec::new()));
    assert_eq!(job("sg_write_mode=verify_bytchk_11").writes_as, [(WriteAs::CompareSame, 100)]);
    assert!(job("readfua=1").durable_reads && !job("readfua=0").durable_reads);
    for (text, why) in [
        ("rw=write\nwrite_mode=write/40:zeroes/30", "add up to 70"),
        ("rw=write\nwrite_mode=write/90:zeroes/30", "add up to 120"),
        ("rw=write\nwrite_mode=write:zeroes", "per cent are missing"),
        ("rw=write\nwrite_mode=zone_append", "zoned"),
        ("rw=trimwrite\nnum_range=2", "num_range is for rw=trim"),
        ("rw=trim\nnum_range=257", "num_range"),
        ("rw=write\nsg_write_mode=write_and_verify", "no such command"),
        ("rw=read\nwrite_mode=zeroes", "needs a job that writes"),
        ("rw=write\nwrite_mode=zeroes\nverify=md5", "exclude each other"),
    ] {
        let error = read(&format!("[a]\n{text}\n")).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
