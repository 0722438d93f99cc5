//! For people: the table that `nvme list` prints, and what it does not tell.

use super::found::{Block, Controller, Found, Namespace, Use};

/// Columns of `nvme list`, by name and width.
const NAMESPACES: [(&str, usize); 8] =
    [("Node", 21), ("Generic", 21), ("SN", 20), ("Model", 40), ("Namespace", 9), ("Usage", 26), ("Format", 16), ("FW Rev", 8)];
/// Likewise of `nvme list -v`, with who drives it.
const CONTROLLERS: [(&str, usize); 9] =
    [("Device", 8), ("SN", 20), ("MN", 40), ("FR", 8), ("TxPort", 6), ("Address", 14), ("Driver", 8), ("Group", 5), ("Namespaces", 16)];
/// Each as wide as it has to be, so that a terminal of 80 columns has room: nvme-cli has no such table.
const BLOCKS: [&str; 6] = ["Node", "Size", "Block", "Polls", "Model", "Users"];

/// All of it.
pub fn text(found: &Found) -> String {
    let mut parts = Vec::new();
    if !found.devices.is_empty() {
        parts.push(table(&NAMESPACES, found.devices.iter().map(namespace)));
    }
    match found.controllers.is_empty() {
        true => parts.push("There is no NVMe controller here, on PCI or at a driver of the kernel's.\n".to_owned()),
        false => parts.push(table(&CONTROLLERS, found.controllers.iter().map(controller))),
    }
    let namespaces = found.devices.iter().map(|ns| (&ns.device_path, ns.physical_size, ns.sector_size, &ns.model_number, &ns.use_));
    let blocks = found.block_devices.iter().map(|Block { device_path, physical_size, sector_size, model_number, use_, .. }| {
        (device_path, *physical_size, *sector_size, model_number, use_)
    });
    let rows: Vec<_> = namespaces.chain(blocks).flat_map(|row| block(row.0, row.1, row.2, row.3, row.4)).collect();
    match rows.is_empty() {
        true => parts.push("There is no block device here that `kernel:` could take.\n".to_owned()),
        false => parts.push(format!("Block devices, each to be used as kernel:NODE:\n{}", table(&fitted(BLOCKS, &rows), rows))),
    }
    parts.join("\n")
}

/// Columns as nvme-cli has them: padded, a blank between, dashes below the names. The last is as long as it has to be.
fn table<const N: usize>(columns: &[(&str, usize); N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: [String; N]| {
        let padded = cells.iter().zip(columns).map(|(cell, (_, width))| format!("{cell:width$} "));
        padded.collect::<String>().trim_end().to_owned() + "\n"
    };
    let names = line(columns.map(|(name, _)| name.to_owned()));
    let dashes = line(columns.map(|(_, width)| "-".repeat(width)));
    [names, dashes].into_iter().chain(rows.into_iter().map(line)).collect()
}

/// Columns that are as wide as the widest of their cells.
fn fitted<'a, const N: usize>(names: [&'a str; N], rows: &[[String; N]]) -> [(&'a str, usize); N] {
    let widths = |at: usize| rows.iter().map(move |row| row[at].chars().count());
    std::array::from_fn(|at| (names[at], widths(at).chain([names[at].len()]).max().unwrap_or(0)))
}

fn namespace(ns: &Namespace) -> [String; 8] {
    let used = ns.used_bytes.map_or_else(|| "     ?   B".to_owned(), si);
    let (size, unit) = binary(ns.sector_size);
    [
        ns.device_path.clone(),
        ns.generic_path.clone().unwrap_or_default(),
        ns.serial_number.clone(),
        ns.model_number.clone(),
        ns.nsid.to_string(),
        format!("{used} / {}", si(ns.physical_size)),
        format!("{size:3} {unit:>2}B + {:2} B", ns.metadata),
        ns.firmware.clone(),
    ]
}

fn controller(c: &Controller) -> [String; 9] {
    let told = |text: &Option<String>| text.clone().unwrap_or_default();
    let used = if c.namespaces.is_empty() { c.users.join("; ") } else { c.namespaces.join(", ") };
    [
        c.controller.clone().unwrap_or_else(|| "-".to_owned()),
        told(&c.serial_number),
        c.model_number.clone().or_else(|| Some(format!("PCI {}", c.pci_id.as_ref()?))).unwrap_or_default(),
        told(&c.firmware),
        c.transport.clone(),
        c.address.clone(),
        c.driver.clone().unwrap_or_else(|| "none".to_owned()),
        c.iommu_group.map_or_else(|| "none".to_owned(), |group| group.to_string()),
        used,
    ]
}

/// The device, and a line for each partition.
fn block(path: &str, bytes: u64, sector: u64, model: &str, use_: &Use) -> Vec<[String; 6]> {
    let (block, unit) = binary(sector);
    let own = use_.users.iter().filter(|user| !use_.partitions.iter().any(|part| is_of(user, &part.device_path)));
    let own: Vec<&str> = own.map(String::as_str).collect();
    let model = if use_.read_only { format!("{model} (read-only)") } else { model.to_owned() };
    let polls = if use_.polls { "yes" } else { "no" };
    let whole = [path.to_owned(), si(bytes), format!("{block} {unit}B"), polls.to_owned(), model, own.join("; ")];
    let parts = use_.partitions.iter().map(|part| {
        let blank = String::new;
        [format!("  {}", part.device_path), si(part.physical_size), blank(), blank(), blank(), part.users.join("; ")]
    });
    std::iter::once(whole).chain(parts).collect()
}

/// Whether a user of a disk is one of this partition's.
fn is_of(user: &str, partition: &str) -> bool {
    let name = partition.strip_prefix("/dev/").unwrap_or(partition);
    user.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "))
}

/// `268.44  MB`, as nvme-cli writes sizes: powers of 1000.
fn si(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let power = UNITS.iter().enumerate().rev().find(|(n, _)| bytes >= 1000u64.pow(*n as u32)).map_or(0, |(n, _)| n);
    format!("{:6.2} {:>2}B", bytes as f64 / 1000f64.powi(power as i32), UNITS[power])
}

/// As nvme-cli writes the size of a block: the largest unit that it reaches, rounded to the nearest.
fn binary(bytes: u64) -> (u64, &'static str) {
    const UNITS: [(u32, &str); 5] = [(50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    UNITS.iter().find(|(shift, _)| bytes >= 1 << shift).map_or((bytes, ""), |&(shift, unit)| ((bytes + (1 << (shift - 1))) >> shift, unit))
}

#[cfg(test)]
mod tests;
