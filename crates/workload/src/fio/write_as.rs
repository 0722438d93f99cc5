//! `write_mode` and `sg_write_mode`: what writes ask of the device.

use super::values::Bad;
use crate::job::WriteAs;

/// Reads `write_mode`: a name, or names with their per cent, as in `write/60:zeroes/`. Names without a figure share what is left.
pub(super) fn shares(text: &str) -> Result<Vec<(WriteAs, u32)>, Bad> {
    if !text.contains(':') {
        return Ok(alone(mode(text)?));
    }
    let mut shares: Vec<(WriteAs, Option<u32>)> = Vec::new();
    for part in text.split(':') {
        let (name, figure) = part.split_once('/').ok_or_else(|| format!("'{part}': the per cent are missing, as in zeroes/30"))?;
        let percent = match figure.parse::<u32>() {
            _ if figure.is_empty() => None,
            Ok(percent) if percent <= 100 => Some(percent),
            _ => return Err(format!("'{figure}' is no percentage")),
        };
        shares.push((mode(name)?, percent));
    }
    let given: u32 = shares.iter().filter_map(|(_, percent)| *percent).sum();
    let open = shares.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    if given > 100 || given < 100 && open == 0 {
        return Err(format!("'{text}': the percentages add up to {given}, not to 100"));
    }
    let each = (100 - given).checked_div(open).unwrap_or(0);
    Ok(shares.into_iter().map(|(mode, percent)| (mode, percent.unwrap_or(each))).collect())
}

/// A name of `write_mode`.
fn mode(name: &str) -> Result<WriteAs, Bad> {
    match name {
        "write" => Ok(WriteAs::Write),
        "zeroes" => Ok(WriteAs::Zeroes),
        "verify" => Ok(WriteAs::Verify),
        "uncor" => Ok(WriteAs::Uncorrectable),
        "zone_append" => Err("'zone_append': Reap does not drive zoned devices".into()),
        _ => Err(format!("'{name}' is none of write, zeroes, uncor, verify")),
    }
}

/// Reads `sg_write_mode`: the NVMe command that does what fio's SCSI command does.
pub(super) fn one(text: &str) -> Result<Vec<(WriteAs, u32)>, Bad> {
    Ok(alone(match text {
        "write" => WriteAs::Write,
        "write_same" | "same" => WriteAs::Same,
        "write_same_ndob" => WriteAs::Zeroes,
        "verify_bytchk_00" => WriteAs::Verify,
        "verify_bytchk_01" => WriteAs::Compare,
        "verify_bytchk_11" => WriteAs::CompareSame,
        "write_and_verify" | "verify" | "write_stream" => return Err(format!("'{text}': NVMe has no such command")),
        _ => {
            let names = "write, write_same, write_same_ndob, verify_bytchk_00, verify_bytchk_01, verify_bytchk_11";
            return Err(format!("'{text}' is none of {names}"));
        }
    }))
}

/// A job that only writes has no shares.
fn alone(mode: WriteAs) -> Vec<(WriteAs, u32)> {
    if mode == WriteAs::Write { Vec::new() } else { vec![(mode, 100)] }
}
