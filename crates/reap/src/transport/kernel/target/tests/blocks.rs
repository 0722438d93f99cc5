//! Loop devices of the tests' own, where root may make them.

use std::os::unix::fs::FileExt;
use std::process::Command;

use super::*;

/// A loop device over a file, detached when it goes.
struct Loop {
    node: PathBuf,
    mounted: Option<PathBuf>,
    dir: Dir,
    file: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Loop {
    /// Of 16 MiB with one partition in its second half, or the reason why there is none.
    fn new(options: &[&str]) -> Result<Loop, String> {
        let dir = dir();
        let file = dir.path().join("image");
        let mut image = vec![0; 16 << 20];
        image[510..512].copy_from_slice(&[0x55, 0xaa]);
        // MBR: one Linux partition of 16384 sectors from sector 16384.
        image[450] = 0x83;
        image[454..458].copy_from_slice(&16384u32.to_le_bytes());
        image[458..462].copy_from_slice(&16384u32.to_le_bytes());
        fs::write(&file, image).unwrap();
        let arguments =
            [&["--find", "--show", "--partscan"], options, &[file.to_str().unwrap()]].concat();
        let node = PathBuf::from(run("losetup", &arguments)?);
        Ok(Loop { node, mounted: None, dir, file })
    }

    fn made(options: &[&str]) -> Option<Loop> {
        Loop::new(options).map_err(|why| println!("skipped: no loop device here ({why})")).ok()
    }

    fn name(&self) -> &str {
        self.node.file_name().unwrap().to_str().unwrap()
    }

    fn partition(&self) -> Option<PathBuf> {
        let node = PathBuf::from(format!("{}p1", self.node.display()));
        let there = node.exists();
        if !there {
            println!("skipped: {} has not appeared", node.display());
        }
        there.then_some(node)
    }

    /// Makes a file system on a node of this device, and mounts it.
    fn mount(&mut self, node: &Path) -> Result<PathBuf, String> {
        let at = self.dir.path().join("a mount");
        fs::create_dir_all(&at).unwrap();
        run("mkfs.ext4", &["-q", "-F", node.to_str().unwrap()])?;
        run("mount", &[node.to_str().unwrap(), at.to_str().unwrap()])?;
        self.mounted = Some(at.clone());
        Ok(at)
    }

    fn unmount(&mut self) {
        let Some(at) = self.mounted.take() else { return };
        let at = at.to_str().unwrap();
        // Whatever else looks around on this machine (`df`, an indexer) makes it busy for a moment;
        // nothing is left behind.
        let _ = run("umount", &[at])
            .or_else(|_| run("umount", &["--lazy", at]))
            .inspect_err(|e| println!("{e}"));
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.unmount();
        let _ = run("losetup", &["--detach", self.node.to_str().unwrap()])
            .inspect_err(|e| println!("{e}"));
    }
}

fn held(path: &Path) -> String {
    let refused = refusal(path, "");
    assert!(matches!(&refused, TargetFault::InUse(why) if why.contains("in use")), "{refused}");
    refused.to_string()
}

#[test]
fn block_devices_report_their_limits() {
    let Some(looped) = Loop::made(&[]) else { return };
    let target = opened(&looped.node, "");
    let facts = target.facts();
    assert_eq!(facts.kind, TargetKind::Block { partition: false, disk: looped.name().to_owned() });
    assert_eq!((facts.bytes, target.current_bytes().unwrap()), (16 << 20, 16 << 20));
    assert!(
        facts.direct && facts.lba_bytes == 512 && !facts.read_only,
        "{facts:?} {:?}",
        target.notes()
    );
    let disk = facts.disk.as_ref().unwrap();
    assert!(!disk.poll_queues && disk.max_transfer.is_some_and(|bytes| bytes >= 4096), "{disk:?}");
    assert!(facts.identity.model.as_ref().unwrap().contains("image"), "{:?}", facts.identity);
    drop(target);
    let refused = refusal(&looped.node, "size=16M");
    assert!(
        matches!(&refused, TargetFault::Parameter(why) if why.contains("a block device has the size")),
        "{refused}"
    );
}

#[test]
fn native_4096_byte_blocks() {
    let Some(looped) = Loop::made(&["--sector-size", "4096"]) else { return };
    assert_eq!(opened(&looped.node, "").facts().lba_bytes, 4096);
    assert!(
        matches!(refusal(&looped.node, "lba=512"), TargetFault::Parameter(why) if why.contains("`lba=512` is no multiple of 4096 bytes"))
    );
    assert_eq!(opened(&looped.node, "lba=512&buffered=yes").facts().lba_bytes, 512);
}

#[test]
fn writer_holds_disk_and_partitions() {
    let Some(looped) = Loop::made(&[]) else { return };
    let whole = opened(&looped.node, "");
    assert!(held(&looped.node).contains("is open in this process"));
    // Readers are allowed.
    assert!(opened(&looped.node, "readonly=yes").facts().read_only);
    let Some(partition) = looped.partition() else { return };
    let told = held(&partition);
    assert!(told.contains(&format!("{} is open in this process", looped.name())), "{told}");
    drop(whole);
    let part = opened(&partition, "");
    assert_eq!(
        part.facts().kind,
        TargetKind::Block { partition: true, disk: looped.name().to_owned() }
    );
    assert_eq!(part.facts().bytes, 8 << 20);
    let told = held(&looped.node);
    assert!(told.contains(&format!("{}p1 is open in this process", looped.name())), "{told}");
}

#[test]
fn mounted_devices_are_read_only() {
    let Some(mut looped) = Loop::made(&[]) else { return };
    let node = looped.node.clone();
    let at = match looped.mount(&node) {
        Ok(at) => at,
        Err(why) => return println!("skipped: nothing can be mounted here ({why})"),
    };
    let told = held(&node);
    assert!(
        told.contains(&format!("mounted on {} (ext4)", at.display()))
            && told.contains("readonly=yes"),
        "{told}"
    );
    let reader = opened(&node, "readonly=yes");
    assert!(reader.file().write_at(&[0; 512], 0).is_err());
    looped.unmount();
    drop(opened(&node, ""));
}

#[test]
fn mounted_partitions_block_disk_writers() {
    let Some(mut looped) = Loop::made(&[]) else { return };
    let Some(partition) = looped.partition() else { return };
    let at = match looped.mount(&partition) {
        Ok(at) => at,
        Err(why) => return println!("skipped: nothing can be mounted here ({why})"),
    };
    let told = held(&looped.node);
    assert!(told.contains(&format!("{}p1: mounted on {}", looped.name(), at.display())), "{told}");
}

#[test]
fn read_only_devices_refuse_writers() {
    let Some(looped) = Loop::made(&["--read-only"]) else { return };
    let refused = refusal(&looped.node, "");
    assert!(matches!(refused, TargetFault::ReadOnly("the device")), "{refused}");
    assert_eq!(opened(&looped.node, "readonly=yes").facts().bytes, 16 << 20);
}

#[test]
fn loop_backing_files_are_read_only() {
    let Some(looped) = Loop::made(&[]) else { return };
    let told = held(&looped.file);
    assert!(told.contains(&format!("attached to {}", looped.node.display())), "{told}");
    drop(opened(&looped.file, "readonly=yes"));
}

#[test]
fn detached_devices_have_no_bytes() {
    let Some(looped) = Loop::made(&[]) else { return };
    let node = looped.node.clone();
    drop(looped);
    // Another test may have taken the number meanwhile: then it has bytes, or a holder.
    match Target::open(&uri(&node, "readonly=yes"), false) {
        Err(OpenError::Kernel { fault: TargetFault::NotFound(_), .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(target) => assert!(target.facts().bytes > 0),
    }
}

#[test]
fn full_file_systems_are_unchanged() {
    let Some(mut looped) = Loop::made(&[]) else { return };
    let node = looped.node.clone();
    let at = match looped.mount(&node) {
        Ok(at) => at,
        Err(why) => return println!("skipped: nothing can be mounted here ({why})"),
    };
    let refused = refusal(&at.join("disk"), "size=64M");
    let TargetFault::NoSpace(why) = refused else { panic!("{refused}") };
    let free = why.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
    assert!(matches!(free[..], [67108864, free] if free < 16 << 20), "{why}");
    assert!(!at.join("disk").exists());
    // One that was there, empty, is there and empty again.
    fs::write(at.join("empty"), []).unwrap();
    assert!(matches!(refusal(&at.join("empty"), "size=64M"), TargetFault::NoSpace(_)));
    assert_eq!(fs::metadata(at.join("empty")).unwrap().len(), 0);
    drop(opened(&at.join("disk"), "size=1M"));
}

#[test]
fn read_only_mounts_refuse_writers() {
    let Some(mut looped) = Loop::made(&[]) else { return };
    let node = looped.node.clone();
    let at = match looped.mount(&node) {
        Ok(at) => at,
        Err(why) => return println!("skipped: nothing can be mounted here ({why})"),
    };
    fs::write(at.join("disk"), [7; 4096]).unwrap();
    run("mount", &["-o", "remount,ro", at.to_str().unwrap()]).unwrap();
    assert!(matches!(refusal(&at.join("disk"), ""), TargetFault::ReadOnly("the file system")));
    assert!(
        matches!(refusal(&at.join("new"), "size=64K"), TargetFault::Permission { what, .. } if what.contains(&format!("made in {} ", at.display())))
    );
    assert_eq!(opened(&at.join("disk"), "readonly=yes").facts().bytes, 4096);
}
