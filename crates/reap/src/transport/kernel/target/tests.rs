mod blocks;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

use super::*;

/// A directory on a real file system, if the build has one, and the turn of one test.
///
/// A child that another test starts has every descriptor of this process until it runs its own
/// program. For so long a file that was closed stays locked, a device held and a mount busy. So
/// tests that close and open again run one after the other.
struct Dir {
    dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Dir {
    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn dir() -> Dir {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let built =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("target/tmp");
    let made = fs::create_dir_all(&built).and_then(|()| TempDir::new_in(&built));
    Dir { dir: made.or_else(|_| TempDir::new()).unwrap(), _turn: turn }
}

fn uri(path: &Path, query: &str) -> KernelUri {
    let plain = KernelUri {
        path: path.to_owned(),
        ..format!("kernel:x?{query}").trim_end_matches('?').parse().unwrap()
    };
    plain.to_string().parse().unwrap()
}

fn opened(path: &Path, query: &str) -> Target {
    Target::open(&uri(path, query), true).unwrap_or_else(|e| panic!("{e}"))
}

fn fault_of(error: OpenError) -> TargetFault {
    if let OpenError::Kernel { fault, .. } = error { fault } else { panic!("{error}") }
}

fn refusal(path: &Path, query: &str) -> TargetFault {
    let error = Target::open(&uri(path, query), true).expect_err("this is to be refused");
    assert!(error.to_string().starts_with(&format!("kernel:{}: ", path.display())), "{error}");
    assert!(!error.to_string().contains("  "), "{error}");
    fault_of(error)
}

fn of_size(dir: &Dir, name: &str, bytes: usize) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, vec![7; bytes]).unwrap();
    path
}

#[test]
fn files_report_their_limits() {
    let dir = dir();
    let path = of_size(&dir, "disk", 64 << 10);
    let target = opened(&path, "");
    let facts = target.facts();
    assert_eq!(facts.bytes, 64 << 10);
    assert!(
        matches!(&facts.kind, TargetKind::File { filesystem } if filesystem != "unknown file system"),
        "{:?}",
        facts.kind
    );
    assert!(facts.identity.model.as_ref().unwrap().contains(path.to_str().unwrap()));
    assert!(
        !facts.read_only
            && facts.lba_bytes >= 512
            && facts.lba_bytes.is_power_of_two()
            && facts.mem_align.is_power_of_two()
    );
    // Whatever the file system is: direct, or a sentence that says why not.
    assert_eq!(
        facts.direct,
        target.notes().iter().all(|note| !note.contains("page cache")),
        "{:?}",
        target.notes()
    );
    assert_eq!(target.current_bytes().unwrap(), 64 << 10);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(128 << 10).unwrap();
    assert_eq!(target.current_bytes().unwrap(), 128 << 10);
    assert_eq!(target.facts().bytes, 64 << 10);
}

#[test]
fn aligned_direct_reads_succeed() {
    use std::os::unix::fs::FileExt;
    let dir = dir();
    let target = opened(&of_size(&dir, "disk", 64 << 10), "");
    let (lba, align) = (target.facts().lba_bytes as usize, target.facts().mem_align as usize);
    let bytes = vec![0; lba + align];
    let at = bytes.as_ptr().align_offset(align);
    let mut bytes = bytes;
    assert_eq!(target.file().read_at(&mut bytes[at..at + lba], lba as u64).unwrap(), lba);
    assert!(bytes[at..at + lba].iter().all(|&b| b == 7));
}

#[test]
fn buffered_targets_use_the_page_cache() {
    let dir = dir();
    let path = of_size(&dir, "disk", 64 << 10);
    let target = opened(&path, "buffered=yes&lba=4096");
    assert_eq!(
        (target.facts().direct, target.facts().lba_bytes, target.facts().mem_align),
        (false, 4096, 1)
    );
    // Buffered I/O that was asked for is not noted; the file system may cause other notes.
    assert!(target.notes().iter().all(|note| !note.contains("page cache")), "{:?}", target.notes());
    let flags = rustix::fs::fcntl_getfl(target.file()).unwrap();
    assert!(!flags.intersects(OFlags::DIRECT | OFlags::NONBLOCK), "{flags:?}");
}

#[test]
fn open_flags_match_the_facts() {
    let dir = dir();
    let target = opened(&of_size(&dir, "disk", 64 << 10), "");
    let flags = rustix::fs::fcntl_getfl(target.file()).unwrap();
    assert_eq!(flags.contains(OFlags::DIRECT), target.facts().direct);
    assert!(!flags.contains(OFlags::NONBLOCK), "io_uring would fail requests that have to wait");
}

#[test]
fn missing_direct_io_is_reported() {
    // procfs files are regular and know no O_DIRECT; they also have no bytes, so tmpfs of old
    // kernels is not needed here.
    let file = File::open("/proc/self/mountinfo").unwrap();
    let io_path = direct::choose(&file, super::super::uri::Buffered::Auto, None).unwrap();
    assert!(
        matches!(&io_path, IoPath::Buffered(Some(why)) if why.contains("page cache")),
        "{io_path:?}"
    );
    let refused = direct::choose(&file, super::super::uri::Buffered::No, None).unwrap_err();
    assert!(
        matches!(&refused, TargetFault::Parameter(_))
            && refused.to_string().contains("`buffered=no`"),
        "{refused}"
    );
}

#[test]
fn new_files_have_no_holes() {
    let dir = dir();
    let path = dir.path().join("new");
    let target = opened(&path, "size=3M");
    assert_eq!(target.facts().bytes, 3 << 20);
    assert_eq!(target.notes().iter().find(|note| note.contains("holes")), None);
    drop(target);
    let written = fs::read(&path).unwrap();
    assert!(written.chunks(4096).all(|block| block.iter().any(|&b| b != 0)));
    // A second time it is there, and stays as it is.
    drop(opened(&path, "size=3M"));
    assert_eq!(fs::read(&path).unwrap(), written);
    assert!(
        matches!(refusal(&path, "size=4M"), TargetFault::Parameter(why) if why.contains("3145728") && why.contains("4194304"))
    );
    assert_eq!(fs::read(&path).unwrap(), written);
}

#[test]
fn files_in_memory_are_noted() {
    let Ok(memory) = TempDir::new_in("/dev/shm") else {
        return println!("skipped: no /dev/shm here");
    };
    let target = opened(&memory.path().join("new"), "size=64K");
    let in_memory =
        matches!(&target.facts().kind, TargetKind::File { filesystem } if filesystem == "tmpfs");
    assert_eq!(
        in_memory,
        target.notes().iter().any(|note| note.contains("in memory")),
        "{:?}",
        target.facts()
    );
}

#[test]
fn sparse_files_are_noted() {
    let dir = dir();
    let path = of_size(&dir, "empty", 0);
    assert!(
        matches!(refusal(&path, ""), TargetFault::NotFound(why) if why.contains("`size=` lays it out"))
    );
    assert_eq!(opened(&path, "size=64K").facts().bytes, 64 << 10);
    let sparse = of_size(&dir, "sparse", 4096);
    OpenOptions::new().write(true).open(&sparse).unwrap().set_len(1 << 20).unwrap();
    let notes = opened(&sparse, "").notes().join("\n");
    assert!(notes.contains("holes"), "{notes}");
}

#[test]
fn targets_without_blocks_are_refused() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    symlink("nowhere", at("link")).unwrap();
    assert!(
        matches!(refusal(dir.path(), ""), TargetFault::Unusable(why) if why.contains("directory"))
    );
    assert!(
        matches!(refusal(dir.path(), "size=1M"), TargetFault::Unusable(why) if why.contains("directory"))
    );
    assert!(
        matches!(refusal(&at("fifo"), ""), TargetFault::Unusable(why) if why.contains("a FIFO"))
    );
    assert!(
        matches!(refusal(&at("socket"), ""), TargetFault::Unusable(why) if why.contains("a socket"))
    );
    assert!(
        matches!(refusal(Path::new("/dev/null"), ""), TargetFault::Unusable(why) if why.contains("a character device"))
    );
    assert!(
        matches!(refusal(&at("link"), "size=1M"), TargetFault::NotFound(why) if why.contains("link to nowhere,"))
    );
}

#[test]
fn layout_needs_a_regular_directory() {
    let dir = dir();
    assert!(
        matches!(refusal(&dir.path().join("none"), ""), TargetFault::NotFound(why) if why.contains("`size=`"))
    );
    assert!(
        matches!(refusal(Path::new("~/disk"), "size=1M"), TargetFault::NotFound(why) if why.contains("`~`"))
    );
    assert!(
        matches!(refusal(Path::new("/dev/nvme77n1"), "size=1M"), TargetFault::NotFound(why) if why.contains("no such device"))
    );
    assert!(!Path::new("/dev/nvme77n1").exists());
    let deep = dir.path().join("none/disk");
    assert!(
        matches!(refusal(&deep, "size=1M"), TargetFault::NotFound(why) if why.contains(&format!("directory {};", dir.path().join("none").display())))
    );
    let only_read = Target::open(&uri(&dir.path().join("none"), "size=1M"), false).unwrap_err();
    assert!(
        matches!(fault_of(only_read), TargetFault::NotFound(why) if why.contains("only for reading"))
    );
    assert!(!dir.path().join("none").exists());
}

#[test]
fn partial_blocks_are_not_used() {
    let dir = dir();
    let odd = opened(&of_size(&dir, "odd", 10_000), "buffered=yes");
    assert_eq!(odd.facts().bytes, 9_728);
    assert!(
        odd.notes().iter().any(|note| note.contains("the last 272 of the file's 10000 bytes")),
        "{:?}",
        odd.notes()
    );
    let refused = refusal(&of_size(&dir, "tiny", 100), "").to_string();
    assert!(
        refused.contains("make it 512 bytes long") || !refused.contains("of 512 bytes"),
        "{refused}"
    );
    let halves = of_size(&dir, "halves", 512);
    let refused = refusal(&halves, "buffered=yes&lba=4096").to_string();
    assert!(
        refused.contains("512")
            && refused.contains("4096")
            && refused.contains("`lba=512` would fit"),
        "{refused}"
    );
}

#[test]
fn truncated_files_are_detected() {
    let dir = dir();
    let path = of_size(&dir, "cut", 1 << 20);
    let target = opened(&path, "");
    let resize =
        |bytes| fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    assert_eq!(target.truncated_to(), None);
    resize(4096);
    assert_eq!(target.truncated_to(), Some(4096));
    resize(2 << 20);
    assert_eq!(target.truncated_to(), None);
}

#[test]
fn one_writer_or_many_readers() {
    let dir = dir();
    let path = of_size(&dir, "disk", 64 << 10);
    let writer = opened(&path, "");
    let refused = refusal(&path, "");
    assert!(
        matches!(&refused, TargetFault::InUse(why) if why.contains("this process has locked it") && !why.contains("readers")),
        "{refused}"
    );
    assert!(
        matches!(refusal(&path, "readonly=yes"), TargetFault::InUse(why) if why.contains("only readers share"))
    );
    drop(writer);
    let readers = [opened(&path, "readonly=yes"), Target::open(&uri(&path, ""), false).unwrap()];
    assert!(readers.iter().all(|reader| reader.facts().read_only));
    assert!(std::os::unix::fs::FileExt::write_at(readers[0].file(), &[1], 0).is_err());
    assert!(matches!(refusal(&path, ""), TargetFault::InUse(_)));
    drop(readers);
    drop(opened(&path, ""));
}

#[test]
fn lock_holders_are_named() {
    let dir = dir();
    let path = of_size(&dir, "disk", 64 << 10);
    let script = r#"exec 3<>"$FILE"; flock --exclusive 3 && echo locked; read line"#;
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .env("FILE", &path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let refused = (line == "locked\n").then(|| refusal(&path, ""));
    drop(child.stdin.take());
    child.wait().unwrap();
    let Some(refused) = refused else {
        println!("skipped: no `flock` command here");
        return;
    };
    assert!(matches!(&refused, TargetFault::InUse(why) if why.contains("locked")), "{refused}");
    // Its end is the end of the lock.
    drop(opened(&path, ""));
}

#[test]
fn permission_errors_name_the_remedy() {
    let dir = dir();
    let path = of_size(&dir, "disk", 64 << 10);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
    let may_everything = OpenOptions::new().write(true).open(&path).is_ok();
    if !may_everything {
        assert!(
            matches!(refusal(&path, ""), TargetFault::Permission { what, .. } if what.contains("writing") && what.contains("file's mode"))
        );
        assert!(opened(&path, "readonly=yes").facts().read_only);
    }
    // Root is refused nothing, so these errnos are made up.
    let uri = uri(&path, "");
    let opening = OpenRequest { uri: &uri, writing: true };
    for (errno, words) in [
        (Errno::ACCESS, "no permission"),
        (Errno::PERM, "no permission"),
        (Errno::ROFS, "the file system is read-only"),
    ] {
        let told = opening.refused(errno.into(), false).to_string();
        assert!(told.contains(words) && told.contains("readonly=yes"), "{told}");
    }
    assert!(matches!(
        opening.refused(Errno::MFILE.into(), false),
        TargetFault::System { what: "open it", .. }
    ));
    // EPERM is not about modes: an immutable file, or a device that a container may not have.
    let told = [false, true].map(|device| opening.refused(Errno::PERM.into(), device).to_string());
    assert!(told[0].contains("lsattr") && told[1].contains("device rules"), "{told:?}");
}
