//! `reap id`: what a controller and its namespaces say of themselves, over any link; of what else the kernel drives, what it says.

mod controller;
mod fields;
mod namespace;
mod plain;
mod source;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use nvme::admin::{Identify, cns};
use nvme::prp::Dptr;
use nvme::{Nsid, Page, identify};
use reap::IdentifyError;
use serde::Serialize;

use crate::args::IdArgs;
use crate::output;
use fields::Fields;
use source::Source;

/// More namespaces than any controller has, as for the library: one that lies lists them for ever.
const MOST_NAMESPACES: usize = 16_384;

/// The answer to an Identify.
type Answer = Result<Box<[u8; Identify::LEN]>, IdentifyError>;

/// The results for scripts.
#[derive(Serialize)]
struct Document<'a> {
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<Fields>,
    namespaces: Vec<Numbered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<Fields>,
}

#[derive(Serialize)]
struct Numbered {
    nsid: u32,
    #[serde(flatten)]
    fields: Option<Fields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Shows it.
///
/// # Errors
/// It cannot be opened, or does not answer.
pub fn id(args: &IdArgs) -> Result<ExitCode> {
    let source = source::open(&args.uri)?;
    let mut document = Document { device: &args.uri, controller: None, namespaces: Vec::new(), block: None };
    let mut failed = false;
    match &source {
        Source::Plain(fields) => {
            ensure!(args.namespace.is_none(), "{}: it has no NVMe namespaces, so that --namespace-id names none", args.uri);
            document.block = Some(fields.clone());
        }
        _ => {
            let page = ask(&source, cns::CONTROLLER, Nsid(0)).with_context(|| format!("{}: Identify Controller", args.uri))?;
            let controller = identify::Controller::from_page(&*page)?;
            document.controller = Some(controller::fields(&controller));
            let nsids = match args.namespace.map(Nsid).or_else(|| source.nsid()) {
                Some(nsid) => vec![nsid],
                None => active(&controller, |cns, nsid| ask(&source, cns, nsid))
                    .with_context(|| format!("{}: its active namespaces", args.uri))?,
            };
            for nsid in nsids {
                let found = ask(&source, cns::NAMESPACE, nsid)
                    .map_err(anyhow::Error::new)
                    .and_then(|page| Ok(identify::Namespace::from_page(&*page)?));
                failed |= found.is_err();
                let (fields, error) = match found {
                    Ok(page) => (Some(namespace::fields(&page)), None),
                    Err(error) => (None, Some(format!("{error:#}"))),
                };
                document.namespaces.push(Numbered { nsid: nsid.0, fields, error });
            }
        }
    }
    output::print(&if args.layout.is_json() { serde_json::to_string_pretty(&document)? + "\n" } else { text(&document) })?;
    for namespace in &document.namespaces {
        if let Some(error) = &namespace.error {
            output::say(format_args!("error: {}: Identify Namespace {}: {error}", args.uri, namespace.nsid));
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn ask(source: &Source, cns: u8, nsid: Nsid) -> Answer {
    source.identify(&Identify::new(cns, nsid, Dptr::NONE))
}

/// The active namespaces by their list (CNS 02h), which came with NVMe 1.1. A controller that has none is asked about each identifier up to
/// NN, as the library does at bring-up.
fn active(controller: &identify::Controller, ask: impl Fn(u8, Nsid) -> Answer) -> Result<Vec<Nsid>> {
    let mut found: Vec<Nsid> = Vec::new();
    loop {
        // VER came with version 1.2; before, the list may be left unanswered.
        if controller.ver == 0 {
            break;
        }
        let after = found.last().copied().unwrap_or_default();
        let page = match ask(cns::ACTIVE_NAMESPACES, after) {
            Err(IdentifyError::Status(_)) if found.is_empty() => break,
            answer => answer?,
        };
        // In ascending order, whatever the controller says: the next list begins above the last.
        let more: Vec<Nsid> = identify::NamespaceList::from_page(&*page)?.iter().filter(|nsid| *nsid > after).collect();
        let is_full = more.len() == identify::NamespaceList::CAPACITY;
        found.extend(more);
        if !is_full || found.len() >= MOST_NAMESPACES {
            return Ok(found);
        }
    }
    ensure!(controller.nn as usize <= MOST_NAMESPACES, "it has no list of them, and their identifiers go up to {}", controller.nn);
    for nsid in (1..=controller.nn).map(Nsid) {
        match ask(cns::NAMESPACE, nsid) {
            Ok(page) if identify::Namespace::from_page(&*page)?.nsze > 0 => found.push(nsid),
            // Not active.
            Ok(_) | Err(IdentifyError::Status(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The results for people.
fn text(document: &Document<'_>) -> String {
    let controller = document.controller.iter().map(|fields| format!("NVME Identify Controller:\n{}", fields.lines(10)));
    let shown =
        |namespace: &Numbered| Some(format!("NVME Identify Namespace {}:\n{}", namespace.nsid, namespace.fields.as_ref()?.lines(8)));
    let block = document.block.iter().map(|fields| fields.lines(16));
    controller.chain(document.namespaces.iter().filter_map(shown)).chain(block).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
