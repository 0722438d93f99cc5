//! `reap id`: Identify data of a controller and its namespaces, and the completion modes that it
//! supports, over any transport. Fields have the names and layout of nvme-cli.

use std::process::ExitCode;

use anyhow::{Context, Result};
use completion::Mode;
use nvme::admin::{Identify, cns};
use nvme::prp::Dptr;
use nvme::{Nsid, Page, identify};
use reap::{AdminError, Device, KernelUri, OpenOptions};
use serde_json::{Map, Value, json};

use crate::args::IdArgs;
use crate::rows::table::{self, wrap};
use crate::{args, output};

/// Runs `reap id`.
pub fn id(args: &IdArgs) -> Result<ExitCode> {
    // No I/O is done, so the smallest queue is enough. `kernel:` devices may be in use: read-only.
    let options =
        OpenOptions::new().software_queues(1).hardware_queues(1).depth(2).pool_bytes(8 << 20);
    let path = args.uri.starts_with("/dev/").then(|| format!("kernel:{}", args.uri));
    let kernel = path.as_deref().unwrap_or(&args.uri).parse::<KernelUri>().ok();
    let device = match &kernel {
        Some(uri) => Device::open_with(
            &KernelUri { read_only: uri.bytes.is_none(), ..uri.clone() }.to_string(),
            &options,
        )?,
        None => Device::open_with(&args.uri, &options)?,
    };
    let ask = |cns, nsid| device.identify(&Identify::new(cns, nsid, Dptr::NONE));
    let controller = match ask(cns::CONTROLLER, Nsid(0)) {
        Ok(page) => Some(controller_fields(&identify::Controller::from_page(&*page)?)),
        // A file or another block device than NVMe: show what is known of it.
        Err(AdminError::NoController(_)) if args.namespace.is_none() => None,
        Err(error) => {
            return Err(error).with_context(|| format!("{}: Identify Controller", args.uri));
        }
    };
    let usable: Vec<Nsid> = device.namespaces().iter().map(reap::Namespace::nsid).collect();
    let nsids = args.namespace.map_or(usable, |nsid| vec![Nsid(nsid)]);
    let mut namespaces: Vec<Map<String, Value>> = Vec::new();
    let mut errors = Vec::new();
    for nsid in nsids {
        let numbered = Map::from_iter([("nsid".to_owned(), json!(nsid.0))]);
        // Identify also works for namespaces that cannot be used for I/O, such as unformatted ones.
        let found = match &controller {
            Some(_) => ask(cns::NAMESPACE, nsid).map_err(anyhow::Error::new).and_then(|page| {
                Ok(namespace_fields(&identify::IdentifyNamespace::from_page(&*page)?))
            }),
            None => Ok(device.namespaces().iter().flat_map(block_fields).collect()),
        };
        let fields = found.unwrap_or_else(|error| {
            errors.push(format!("error: {}: Identify Namespace {nsid}: {error:#}", args.uri));
            Map::from_iter([("error".to_owned(), json!(format!("{error:#}")))])
        });
        namespaces.push(numbered.into_iter().chain(fields).collect());
    }
    let (usable, others): (Vec<Mode>, Vec<Mode>) =
        args::modes(kernel.is_some()).partition(|mode| device.unsupported_reason(*mode).is_none());
    let modes: Vec<String> = usable.iter().map(Mode::to_string).collect();
    let unusable: Vec<String> = others
        .iter()
        .filter_map(|mode| Some(device.unsupported_reason(*mode)?.to_string()))
        .collect();
    output::print(&if args.layout.is_json() {
        let mut document = json!({ "device": args.uri, "namespaces": namespaces, "modes": modes, "unusable_modes": unusable });
        // Files and block devices do not support Identify.
        if let Some(controller) = controller {
            document["controller"] = controller.into();
        }
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        let mut out = controller.as_ref().map_or_else(String::new, |fields| {
            format!("NVME Identify Controller:\n{}\n", lines(fields, 10))
        });
        for namespace in namespaces.iter().filter(|namespace| !namespace.contains_key("error")) {
            let title = if controller.is_some() {
                format!("NVME Identify Namespace {}", namespace["nsid"])
            } else {
                args.uri.clone()
            };
            out += &format!("{title}:\n{}\n", lines(namespace, 8));
        }
        out += &wrap(&format!("Completion modes: {}.", modes.join(", ")), table::width().into());
        unusable
            .iter()
            .fold(out, |out, why| out + &wrap(&format!("Not usable: {why}"), table::width().into()))
    })?;
    // The notes say, for instance, that TCP is neither encrypted nor authenticated.
    for refused in device.description().refused.iter().chain(&device.notes()) {
        output::say(format_args!("note: {refused}"));
    }
    // One bad namespace does not hide the others; the exit status reports it.
    errors.iter().for_each(output::say);
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fields that identify a controller, and those that limit its I/O.
fn controller_fields(c: &identify::Controller) -> Map<String, Value> {
    fields([
        ("vid", json!(c.vid)),
        ("ssvid", json!(c.ssvid)),
        ("sn", json!(c.sn.to_string())),
        ("mn", json!(c.mn.to_string())),
        ("fr", json!(c.fr.to_string())),
        ("cmic", json!(c.cmic.into_bits())),
        ("mdts", json!(c.mdts)),
        ("cntlid", json!(c.cntlid)),
        ("ver", json!(c.ver)),
        ("cntrltype", json!(c.cntrltype)),
        ("oacs", json!(c.oacs)),
        ("nn", json!(c.nn)),
        ("oncs", json!(c.oncs)),
        ("vwc", json!(c.vwc.into_bits())),
        ("awun", json!(c.awun)),
        ("awupf", json!(c.awupf)),
        ("sgls", json!(c.sgls)),
        ("subnqn", json!(c.subnqn.to_string())),
    ])
}

fn namespace_fields(ns: &identify::IdentifyNamespace) -> Map<String, Value> {
    // A controller may report too large counts; `lbaf` has 64 entries.
    let formats =
        ns.lbaf.iter().enumerate().take(usize::from(ns.nlbaf) + 1 + usize::from(ns.nulbaf));
    let format = |(n, format): (usize, &identify::LbaFormat)| {
        let in_use = u8::from(n == ns.format_index());
        json!({ "lbaf": n, "ms": format.ms(), "ds": format.lbads(), "rp": format.rp(), "in_use": in_use })
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    fields([
        ("nsze", json!(ns.nsze)),
        ("ncap", json!(ns.ncap)),
        ("nuse", json!(ns.nuse)),
        ("nsfeat", json!(ns.nsfeat)),
        ("nlbaf", json!(ns.nlbaf)),
        ("flbas", json!(ns.flbas)),
        ("mc", json!(ns.mc)),
        ("dps", json!(ns.dps)),
        ("nmic", json!(ns.nmic)),
        ("dlfeat", json!(ns.dlfeat)),
        ("noiob", json!(ns.noiob)),
        ("anagrpid", json!(ns.anagrpid)),
        ("nguid", json!(hex(&ns.nguid))),
        ("eui64", json!(hex(&ns.eui64))),
        ("lbafs", formats.map(format).collect()),
    ])
}

/// Fields of files and block devices.
fn block_fields(ns: &reap::Namespace) -> Map<String, Value> {
    fields([("bytes", json!(ns.bytes())), ("block", json!(ns.block_bytes()))])
}

fn fields<const N: usize>(list: [(&str, Value); N]) -> Map<String, Value> {
    list.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Fields that nvme-cli prints in hexadecimal.
const HEX: [&str; 17] = [
    "vid", "ssvid", "cmic", "cntlid", "ver", "oacs", "oncs", "vwc", "sgls", "nsze", "ncap", "nuse",
    "nsfeat", "flbas", "mc", "dps", "nmic",
];

/// One line per field, with names padded to `pad` columns.
fn lines(fields: &Map<String, Value>, pad: usize) -> String {
    let hex = |n: u64| if n == 0 { "0".to_owned() } else { format!("{n:#x}") };
    let mut out = String::new();
    for (key, value) in fields.iter().filter(|(key, _)| *key != "nsid") {
        match value {
            Value::String(text) => out += &format!("{key:pad$}: {text}\n"),
            Value::Array(formats) => {
                for format in formats {
                    let number = |key: &str| format[key].as_u64().unwrap_or(0);
                    let mark = if number("in_use") == 1 { "(in use)" } else { "" };
                    let (n, ms, ds, rp) =
                        (number("lbaf"), number("ms"), number("ds"), hex(number("rp")));
                    out += &format!("lbaf {n:2} : ms:{ms:<3} lbads:{ds:<2} rp:{rp} {mark}\n");
                }
            }
            value if HEX.contains(&key.as_str()) => {
                out += &format!("{key:pad$}: {}\n", hex(value.as_u64().unwrap_or(0)))
            }
            value => out += &format!("{key:pad$}: {value}\n"),
        }
    }
    out
}

#[cfg(test)]
mod tests;
