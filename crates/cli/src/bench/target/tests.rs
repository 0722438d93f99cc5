use workload::fio::{self, Input};
use workload::plan;

use super::*;

fn jobs(text: &str) -> (Vec<Job>, Plan) {
    let parsed =
        fio::parse(&[Input { name: "test.fio", text: text.as_bytes() }], &fio::Nothing).unwrap();
    let plan = plan::plan(&parsed.jobs, &[0]);
    (parsed.jobs, plan)
}

/// The devices of these jobs with `--device given`, or why there are none.
fn devices(given: Option<&str>, text: &str, allowed: Allowed) -> Result<Vec<TargetDevice>, String> {
    let (jobs, plan) = jobs(text);
    let all =
        Filenames::of(given, &jobs).and_then(|filenames| filenames.devices(&jobs, &plan, allowed));
    all.map_err(|error| format!("{error:#}"))
}

fn uris(given: Option<&str>, text: &str) -> Vec<String> {
    devices(given, text, Allowed::Own).unwrap().into_iter().map(|named| named.uri).collect()
}

#[test]
fn a_filename_is_a_path() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("here");
    std::fs::write(&file, [0; 8192]).unwrap();
    let here = file.display();
    let path = format!("[a]\nfilename={here}\nsize=4k\n");
    // The command line names no device.
    assert_eq!(uris(None, &path), [format!("kernel:{here}?readonly=yes")]);
    assert_eq!(uris(None, "[a]\nfilename=new\nsize=4k\n"), ["kernel:new?size=4K"]);
    assert_eq!(uris(None, "[a]\nfilename=/dev/nvme9n9\n"), ["kernel:/dev/nvme9n9"]);
    assert_eq!(uris(None, "[a]\n"), [DEFAULT_DEVICE]);
    // It names one.
    assert_eq!(uris(Some("kernel:"), &path), [format!("kernel:{here}?readonly=yes")]);
    assert_eq!(
        uris(Some("kernel:?buffered=yes&lba=4096"), &path),
        [format!("kernel:{here}?readonly=yes&buffered=yes&lba=4096")]
    );
    assert_eq!(uris(Some("mem:1G"), &path), ["mem:1G"]);
}

/// Each thread has files of its own, as in fio.
#[test]
fn a_directory_is_a_path() {
    let own = uris(
        None,
        "[a]\ndirectory=/mnt\nsize=1m\nnumjobs=2\n[b]\nfilename_format=f.$filenum\nsize=1m\nnrfiles=2\n",
    );
    assert_eq!(
        own,
        [
            "kernel:/mnt/a.0.0?size=1M",
            "kernel:/mnt/a.1.0?size=1M",
            "kernel:f.0?size=512K",
            "kernel:f.1?size=512K"
        ]
    );
}

/// fio's engine `null` opens nothing, and would write to nothing.
#[test]
fn null_engine_has_no_path() {
    let job = "[a]\nioengine=null\nrw=write\nfilename=/nowhere\nsize=4k\n";
    assert_eq!(uris(None, job), [DEFAULT_DEVICE]);
    assert_eq!(uris(Some("kernel:"), job), ["kernel:/nowhere?size=4K"]);
}

/// To fio, the name of a job that is a device's is its filename.
#[test]
fn device_path_job_name_fails() {
    let refused = devices(None, "[/dev/nvme0n1]\n", Allowed::Own).unwrap_err();
    assert!(refused.contains("give filename=/dev/nvme0n1"), "{refused}");
    assert_eq!(uris(Some("mem:1G"), "[/dev/nvme0n1]\n"), ["mem:1G"]);
    assert_eq!(uris(None, "[/dev/nvme0n1]\nfilename=/nowhere\n"), ["kernel:/nowhere"]);
}

#[test]
fn words_distinguish_paths_and_names() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("here");
    std::fs::write(&file, [0; 8192]).unwrap();
    let words = |given, rw| {
        let text = format!("[a]\nrw={rw}\nfilename={}\n", file.display());
        devices(given, &text, Allowed::Own).unwrap().remove(0).words
    };
    assert_eq!(words(None, "read"), format!("kernel:{} (a file, read-only)", file.display()));
    assert_eq!(words(None, "randrw"), format!("kernel:{} (a file, read-write)", file.display()));
    assert_eq!(
        words(Some("mem:1G"), "read"),
        format!("mem:1G (embedded; filename={} is a name, not a path)", file.display())
    );
}

/// One of them would silently be an embedded device.
#[test]
fn mixed_jobs_are_refused() {
    let refusal = |given, text: &str| devices(given, text, Allowed::Own).unwrap_err();
    for others in ["filename=/nowhere", "directory=/mnt"] {
        let nameless = refusal(None, &format!("[a]\n{others}\n[b]\n"));
        assert!(
            nameless
                .contains("job 'b' has no filename=, but other jobs have one; give it filename=")
                && nameless.contains("mem:SIZE"),
            "{nameless}"
        );
    }
    let bare = refusal(Some("kernel:"), "[b]\n");
    assert!(bare.contains("job 'b' has no filename=;") && bare.contains("kernel:PATH"), "{bare}");
    let several = refusal(Some("kernel:/x"), "[a]\nfilename=a\n[b]\nfilename=b\n");
    assert!(
        several.contains("is one file")
            && several.contains("give --device kernel: if the names are paths"),
        "{several}"
    );
}

#[test]
fn new_file_spans_its_jobs() {
    let new = |job: &str| {
        uris(Some("kernel:"), &format!("[a]\nfilename=/nowhere/new\n{job}\n")).remove(0)
    };
    assert_eq!(new("size=1m"), "kernel:/nowhere/new?size=1M");
    assert_eq!(
        new("size=1m\noffset=64k\nnumjobs=3\noffset_increment=1m"),
        format!("kernel:/nowhere/new?size={}K", 64 + 3 * 1024)
    );
    assert_eq!(new("size=10000\nbs=512"), "kernel:/nowhere/new?size=10000");
    // The library says what is missing.
    assert_eq!(new("rw=write"), "kernel:/nowhere/new");
    let two = uris(Some("kernel:"), "[a]\nfilename=/nowhere/x:/nowhere/y\nsize=8m\n");
    assert_eq!(two, ["kernel:/nowhere/x?size=4M", "kernel:/nowhere/y?size=4M"]);
    assert_eq!(
        uris(Some("kernel:/nowhere/{filename}?size=1G"), "[a]\nfilename=/a/b\n"),
        ["kernel:/nowhere/a_b?size=1G"]
    );
}

/// `readonly=` does not go with `size=`, which says nothing new of a file of that size.
#[test]
fn reading_jobs_open_read_only() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("here");
    std::fs::write(&file, [0; 8192]).unwrap();
    let here = file.display();
    let opened = |query: &str, rw: &str| {
        let uri = format!("kernel:{here}{query}");
        devices(Some(&uri), &format!("[a]\nrw={rw}\n"), Allowed::Own)
            .map(|mut all| all.remove(0).uri)
    };
    assert_eq!(opened("", "randread").unwrap(), format!("kernel:{here}?readonly=yes"));
    assert_eq!(opened("?size=8K", "randread").unwrap(), format!("kernel:{here}?readonly=yes"));
    assert_eq!(opened("?size=16K", "randread").unwrap(), format!("kernel:{here}?size=16K"));
    assert_eq!(opened("", "randrw").unwrap(), format!("kernel:{here}"));
    let error = opened("?readonly=yes", "write").unwrap_err();
    assert!(error.contains("job 'a' writes") && error.contains("remove one of them"), "{error}");
}

#[test]
fn only_own_files_are_written() {
    // Every machine has it, and root owns it.
    let Some(disk) =
        std::fs::read_dir("/dev").unwrap().flatten().map(|entry| entry.path()).find(|path| {
            std::os::unix::fs::FileTypeExt::is_block_device(
                &std::fs::metadata(path)
                    .map(|meta| meta.file_type())
                    .unwrap_or_else(|_| std::fs::metadata("/").unwrap().file_type()),
            )
        })
    else {
        return;
    };
    let disk = disk.display();
    let error = devices(
        Some("kernel:"),
        &format!("[a]\nrw=randwrite\nfilename={disk}\nsize=0x1000\n"),
        Allowed::Own,
    )
    .unwrap_err();
    for words in ["job 'a'", "a block device", "--allow-writes", &format!("to {disk}")] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let jobs = format!("[a]\nrw=randwrite\nfilename={disk}\n");
    assert_eq!(devices(None, &jobs, Allowed::All).unwrap()[0].uri, format!("kernel:{disk}"));
    let read = format!("[a]\nrw=randread\nfilename={disk}\n");
    assert_eq!(
        devices(None, &read, Allowed::Own).unwrap()[0].uri,
        format!("kernel:{disk}?readonly=yes")
    );
}

#[test]
fn media_of_other_users_take_leave() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk.img");
    std::fs::write(&path, [0; 8192]).unwrap();
    let path = path.display();
    for uri in [format!("file:{path}"), format!("multipath:?path=file:{path}&path=file:{path}")] {
        let opened = |rw: &str, allowed| devices(Some(&uri), &format!("[a]\nrw={rw}\n"), allowed);
        assert!(opened("write", Allowed::Own).is_ok());
        // Only root can make it another user's.
        if std::os::unix::fs::chown(path.to_string(), Some(12_345), None).is_err() {
            return;
        }
        assert!(opened("read", Allowed::Own).is_ok() && opened("write", Allowed::All).is_ok());
        let error = opened("write", Allowed::Own).unwrap_err();
        assert!(
            error.contains("job 'a'")
                && error.contains("user 12345")
                && error.contains("--allow-writes"),
            "{error}"
        );
        std::os::unix::fs::chown(path.to_string(), Some(rustix::process::geteuid().as_raw()), None)
            .unwrap();
    }
}

#[test]
fn bad_uris_have_a_place() {
    let what = |uri: &str| check(uri).unwrap_err();
    assert_eq!((what("kernel:?siz=1").column, what("kernel:/x?siz=1").column), (9, 11));
    assert!(what("kernel:?siz=1").what.contains("did you mean `size`?"));
    assert_eq!(what("kernel:?siz=1").uri, "kernel:?siz=1");
    assert_eq!(check("kernel:"), Ok(()));
    assert!(what("mem:1X").what.contains("K, M, G, T or P"));
}

#[test]
fn several_devices_need_several_files() {
    let names = [Some("/dev/nvme0n1".to_owned()), Some("b&c".to_owned()), None];
    let error = super::uris(&names, "file:/tmp/x").unwrap_err().to_string();
    assert!(
        error.contains("3 devices (/dev/nvme0n1, b&c)") && error.contains("{filename}"),
        "{error}"
    );
    assert_eq!(
        super::uris(&names, "file:/tmp/{filename}?size=1M").unwrap(),
        ["file:/tmp/dev_nvme0n1?size=1M", "file:/tmp/b_c?size=1M", "file:/tmp/default?size=1M"]
    );
    assert_eq!(super::uris(&names[..1], "file:/tmp/x").unwrap(), ["file:/tmp/x"]);
    assert_eq!(super::uris(&names, "mem:1G").unwrap().len(), 3);
}

/// Each would write over the other's data.
#[test]
fn colliding_names_are_refused() {
    for (a, b) in [(Some("a_b"), Some("/a/b")), (Some("x%y"), Some("x&y")), (None, Some("default"))]
    {
        let names = [Some("other"), a, b].map(|name| name.map(str::to_owned));
        for uri in ["file:/tmp/{filename}?size=1M", "multipath:?path=file:/tmp/{filename}"] {
            let error = super::uris(&names, uri).unwrap_err().to_string();
            let both = format!(
                "'{}' and '{}' would both be",
                a.unwrap_or("default"),
                b.unwrap_or("default")
            );
            assert!(error.contains(&both) && error.contains("rename one of them"), "{error}");
        }
        assert_eq!(super::uris(&names, "mem:1G").unwrap().len(), 3, "memory is each one's own");
    }
}

#[test]
fn drive_writes_need_allow_writes() {
    for uri in [
        "pcie:01:00.0",
        "vfio-user:/run/nvme.sock",
        "multipath:?path=vfio-user:/run/a.sock&path=vfio-user:/run/b.sock",
    ] {
        let drive = |rw, allowed| {
            devices(Some(uri), &format!("[a]\nrw={rw}\n"), allowed)
                .map(|mut named| named.remove(0).words)
        };
        assert_eq!(drive("randread", Allowed::Own), Ok(format!("{uri} (drive, read-only)")));
        assert_eq!(drive("randwrite", Allowed::All), Ok(format!("{uri} (drive, read-write)")));
        let refused = drive("randwrite", Allowed::Own).unwrap_err();
        assert!(
            refused.starts_with(&format!("job 'a': this would overwrite the drive {uri}")),
            "{refused}"
        );
    }
}

#[test]
fn a_drive_is_one_device() {
    let refused = devices(Some("pcie:01:00.0"), "[a]\nfilename=x:y\n", Allowed::All).unwrap_err();
    assert!(
        refused
            .starts_with("--device pcie:01:00.0 is one drive, but the jobs use 2 devices (x, y)"),
        "{refused}"
    );
    let filenames = Filenames::of(Some("pcie:01:00.0"), &jobs("[a]\n").0).unwrap();
    assert_eq!(
        (filenames.profile().unwrap().as_str(), filenames.is_embedded(), filenames.is_kernel()),
        ("pcie", false, false)
    );
    let filenames =
        Filenames::of(Some("vfio-user:/run/nvme.sock?vectors=2"), &jobs("[a]\n").0).unwrap();
    assert_eq!(
        (filenames.profile().unwrap().as_str(), filenames.is_embedded(), filenames.is_kernel()),
        ("vfio-user", false, false)
    );
    let served = "multipath:?path=vfio-user:/run/nvme.sock";
    let filenames = Filenames::of(Some(served), &jobs("[a]\n").0).unwrap();
    assert_eq!(
        (filenames.profile().unwrap().as_str(), filenames.is_embedded()),
        ("multipath", false)
    );
    assert!(
        super::check(served).is_ok()
            && super::check("multipath:?path=vfio-user:/a?vector=1").is_err()
    );
    assert!(
        super::check("vfio-user:/run/nvme.sock").is_ok()
            && super::check("vfio-user:/run/nvme.sock?vector=1").is_err()
    );
}

#[test]
fn foreign_file_needs_allow_writes() {
    let place = tempfile::tempdir().unwrap();
    let own = place.path().join("own");
    fs::write(&own, "x").unwrap();
    let job = &jobs("[a]\nrw=write\n").0[0];
    assert!(may_write(&own, &own.metadata().unwrap(), job, Allowed::Own).is_ok());
    // Only root can give a file away.
    if std::os::unix::fs::chown(&own, Some(12_345), None).is_err() {
        return;
    }
    let error =
        may_write(&own, &own.metadata().unwrap(), job, Allowed::Own).unwrap_err().to_string();
    assert!(
        error.contains("job 'a': this would write to")
            && error.contains("a regular file of user 12345")
            && error.contains("--allow-writes"),
        "{error}"
    );
    assert!(may_write(&own, &own.metadata().unwrap(), job, Allowed::All).is_ok());
}
