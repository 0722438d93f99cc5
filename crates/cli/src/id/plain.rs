//! What is known of a file, or of a block device that is no NVMe namespace.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use hw::block::{Disk, Users, mount_of, mounts};

use super::fields::{Fields, Shown};
use crate::harmless::harmless;

/// Names of what sysfs says of a disk's queue (Documentation/ABI/stable/sysfs-block), each with the name that it is shown by.
const QUEUE: [(&str, &str); 10] = [
    ("logical_block", "logical_block_size"),
    ("physical_block", "physical_block_size"),
    ("max_bytes", "max_sectors_kb"),
    ("discard_bytes", "discard_max_bytes"),
    ("zeroes_bytes", "write_zeroes_max_bytes"),
    ("rotational", "rotational"),
    ("fua", "fua"),
    ("polls", "io_poll"),
    ("requests", "nr_requests"),
    ("numa_node", "../device/numa_node"),
];

/// What the system says of a block device.
pub fn disk(disk: &Disk) -> Fields {
    let mut fields = Fields::default();
    let identity = disk.identity();
    fields.text("path", disk.node().display().to_string());
    for (key, text) in [("model", identity.model), ("serial", identity.serial), ("firmware", identity.firmware), ("driver", disk.driver())]
    {
        if let Some(text) = text {
            fields.text(key, harmless(&text));
        }
    }
    fields.dec("bytes", disk.bytes());
    fields.dec("read_only", u8::from(disk.read_only()));
    fields.dec("partition", u8::from(disk.is_partition()));
    for (key, name) in QUEUE {
        let unit = if name.ends_with("_kb") { 1024 } else { 1 };
        if let Some(value) = disk.queue(name) {
            fields.dec(key, u128::from(value) * unit);
        }
    }
    for (key, name) in [("write_cache", "write_cache"), ("scheduler", "scheduler"), ("zoned", "zoned")] {
        if let Some(text) = disk.queue_text(name) {
            fields.text(key, harmless(&text));
        }
    }
    users(&mut fields, Users::here().of(disk));
    fields
}

/// What the system says of a file.
///
/// # Errors
/// Its path cannot be resolved.
pub fn file(path: &Path, meta: &Metadata) -> Result<Fields> {
    let whole = path.canonicalize()?;
    let mut fields = Fields::default();
    fields.text("path", harmless(&whole.display().to_string()));
    fields.dec("bytes", meta.len());
    fields.dec("allocated", meta.blocks().saturating_mul(512));
    let mounts = mounts();
    if let Some(mount) = mount_of(&mounts, meta.dev(), &whole) {
        fields.text("filesystem", harmless(&mount.filesystem));
        fields.text("mounted_on", harmless(&mount.at.display().to_string()));
        if let Some(disk) = mount.device().and_then(Disk::of) {
            fields.text("disk", disk.node().display().to_string());
            if let Some(model) = disk.identity().model {
                fields.text("model", harmless(&model));
            }
        }
    }
    Ok(fields)
}

fn users(fields: &mut Fields, users: Vec<String>) {
    let users: Vec<String> = users.iter().map(|user| harmless(user)).collect();
    let lines = if users.is_empty() { "nobody that is seen from here".to_owned() } else { users.join("; ") };
    fields.push("users", Shown::List(users.into_iter().map(Into::into).collect()));
    fields.push("users", Shown::Lines(format!("{:16}: {lines}\n", "users")));
}
