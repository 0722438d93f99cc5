//! The house as drawn in docs/architecture.md: who may depend on whom, and where unsafe code may stand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may depend on, of this workspace. A crate that is not listed has no place in the house yet.
const MAY: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("nvme", &[]),
    ("completion", &["units"]),
    ("handover", &[]),
    ("blkmq", &["handover", "units"]),
    ("workload", &["units"]),
    ("device", &["nvme", "units"]),
    ("driver", &["blkmq", "handover", "nvme", "units"]),
    ("sim", &["blkmq", "completion", "device", "driver", "handover", "nvme", "units", "workload"]),
    ("hw", &["handover", "nvme", "units"]),
    ("trace", &["units"]),
    ("reap", &["blkmq", "completion", "device", "driver", "handover", "hw", "nvme", "units"]),
    ("cli", &["completion", "hw", "reap", "sim", "trace", "units", "workload"]),
];

fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = MetadataCommand::new().no_deps().other_options(vec!["--offline".into()]).exec().unwrap();
    let members: BTreeSet<String> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    let normal = |p: &cargo_metadata::Package| {
        let own = p.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal && members.contains(&d.name));
        own.map(|d| d.name.clone()).collect()
    };
    metadata.packages.iter().map(|p| (p.name.to_string(), normal(p))).collect()
}

/// The edges that the table does not allow.
fn strangers(edges: &BTreeMap<String, BTreeSet<String>>, may: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let forbidden = |from: &str, to: &str| !may.get(from).is_some_and(|allowed| allowed.contains(to));
    let all = edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())));
    all.filter(|(from, to)| forbidden(from, to)).map(|(from, to)| format!("{from} → {to}")).collect()
}

fn allowed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    MAY.iter().map(|(from, to)| (*from, to.iter().copied().collect())).collect()
}

#[test]
fn dependencies_point_one_way() {
    let found = strangers(&edges(), &allowed());
    assert!(found.is_empty(), "not in the house's plan: {}", found.join(", "));
    // The order of the table is a topological one, so the plan itself has no circles.
    for (at, (name, to)) in MAY.iter().enumerate() {
        let earlier: BTreeSet<_> = MAY[..at].iter().map(|(name, _)| *name).collect();
        assert!(to.iter().all(|to| earlier.contains(to)), "{name} depends on something below it");
    }
}

#[test]
fn the_plan_would_catch_a_wrong_edge() {
    let mut edges = edges();
    edges.entry("completion".into()).or_default().insert("nvme".into());
    edges.entry("sim".into()).or_default().insert("hw".into());
    assert_eq!(strangers(&edges, &allowed()), ["completion → nvme", "sim → hw"]);
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => rust_files(&path, out),
            false if path.extension().is_some_and(|e| e == "rs") => out.push(path),
            false => {}
        }
    }
}

#[test]
fn unsafe_code_lives_in_hw_alone() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (name, _) in MAY.iter().filter(|(name, _)| !matches!(*name, "hw")) {
        let roots = ["lib.rs", "main.rs"].map(|f| crates.join(name).join("src").join(f));
        for root in roots.into_iter().filter(|p| p.exists()) {
            let text = std::fs::read_to_string(&root).unwrap();
            let forbids = text.contains("#![forbid(unsafe_code)]") || *name == "trace" && text.contains("#![deny(unsafe_code)]");
            assert!(forbids, "{} does not forbid unsafe code", root.display());
        }
    }
}

#[test]
fn files_stay_readable() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    rust_files(crates, &mut files);
    let long: Vec<_> = files
        .iter()
        .map(|path| (std::fs::read_to_string(path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > 650)
        .map(|(lines, path)| format!("{} ({lines} lines)", path.display()))
        .collect();
    assert!(long.is_empty(), "longer than a reader's patience: {}", long.join(", "));
}
