//! `reap discover`: prints the discovery log of a target, which lists its subsystems and their
//! addresses. Words, layout and keys are those of `nvme discover`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use nvme::fabrics::{DISCOVERY_NQN, DiscoveryEntry};
use reap::TcpUri;
use serde_json::{Map, Value, json};

use crate::args::DiscoverArgs;
use crate::output;

/// Runs `reap discover`.
pub fn discover(args: &DiscoverArgs) -> Result<ExitCode> {
    let mut uri = TcpUri::new(args.address.clone(), args.service, DISCOVERY_NQN);
    (uri.host_nqn, uri.host_id, uri.host_traddr) =
        (args.host_nqn.clone(), args.host_id.clone(), args.host_address);
    (uri.hdr_digest, uri.data_digest) = (args.hdr_digest, args.data_digest);
    let log = reap::discover(&uri)
        .with_context(|| format!("{}: cannot read the discovery log", args.address))?;
    let records: Vec<Map<String, Value>> = log.entries.iter().map(fields).collect();
    output::print(&if args.layout.is_json() {
        serde_json::to_string_pretty(&json!({ "genctr": log.generation, "records": records }))?
            + "\n"
    } else {
        let head = format!(
            "\nDiscovery Log Number of Records {}, Generation counter {}\n",
            records.len(),
            log.generation
        );
        records.iter().enumerate().fold(head, |text, (n, record)| {
            let line = |(key, value): (&String, &Value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{:<9}{value}\n", format!("{key}:"))
            };
            text + &format!("=====Discovery Log Entry {n}======\n")
                + &record.iter().map(line).collect::<String>()
        })
    })?;
    output::say("note: the connection is neither encrypted nor authenticated");
    Ok(ExitCode::SUCCESS)
}

fn fields(entry: &DiscoveryEntry) -> Map<String, Value> {
    let of = |names: &[&str], value: u8| {
        names
            .get(usize::from(value))
            .filter(|name| !name.is_empty())
            .map_or("unrecognized", |name| *name)
            .to_owned()
    };
    let treq = of(&["not specified", "required", "not required"], entry.requirements & 3);
    let treq = if entry.requirements & 4 != 0 {
        treq + ", sq flow control disable supported"
    } else {
        treq
    };
    let flags = match entry.flags.get() & 3 {
        0 => "none",
        1 => "duplicate discovery information",
        2 => "explicit discovery connections",
        _ => "explicit discovery connections, duplicate discovery information",
    };
    let mut fields = Map::new();
    let mut add = |key: &str, value: Value| _ = fields.insert(key.to_owned(), value);
    add("trtype", of(&["", "rdma", "fc", "tcp"], entry.transport).into());
    add("adrfam", of(&["", "ipv4", "ipv6", "ib", "fibre-channel"], entry.family).into());
    add(
        "subtype",
        of(
            &["", "discovery subsystem referral", "nvme subsystem", "current discovery subsystem"],
            entry.kind,
        )
        .into(),
    );
    add("treq", treq.into());
    add("portid", entry.port.get().into());
    add("trsvcid", entry.service.to_string().into());
    add("subnqn", entry.subnqn.to_string().into());
    add("traddr", entry.address.to_string().into());
    add("eflags", flags.into());
    if entry.transport == DiscoveryEntry::TCP {
        add("sectype", of(&["none", "tls", "tls13"], entry.specific[0]).into());
    }
    fields
}
