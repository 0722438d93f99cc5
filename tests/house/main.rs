//! The house as drawn in docs/architecture.md: who may depend on whom, among crates and within
//! them, and where unsafe code may stand.

mod circles;
mod modules;
mod pages;
mod tests;
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The table of the house: each crate, and which others of this workspace it knows of, in the
/// document's order.
fn plan() -> Vec<(String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    table
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            let names = |cell: &str| {
                cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
            };
            (names(cells[0]).remove(0), names(cells[cells.len() - 1]).into_iter().collect())
        })
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap()
}

fn edges() -> Edges {
    let metadata =
        MetadataCommand::new().no_deps().other_options(vec!["--offline".into()]).exec().unwrap();
    // The house calls a crate as its folder is called; published it has a longer name.
    let folder = |p: &cargo_metadata::Package| {
        p.manifest_path.parent().unwrap().file_name().unwrap().to_owned()
    };
    let members: BTreeMap<String, String> =
        metadata.packages.iter().map(|p| (p.name.to_string(), folder(p))).collect();
    let normal = |p: &cargo_metadata::Package| {
        let own = p.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal);
        own.filter_map(|d| members.get(&d.name).cloned()).collect()
    };
    metadata.packages.iter().map(|p| (folder(p), normal(p))).collect()
}

/// The circles in a crate, those of its library and of its command.
fn circles_in(name: &str) -> Vec<String> {
    let src = root().join("crates").join(name).join("src");
    let read = |path: &str| std::fs::read_to_string(src.join(path)).ok();
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| src.join(root).exists());
    roots.flat_map(|root| circles::circles(root, &read)).collect()
}

#[test]
fn files_import_without_circles() {
    let found = plan().into_iter().flat_map(|(name, _)| {
        let circles = circles_in(&name).into_iter();
        circles.map(move |circle| format!("{name}: {circle}")).collect::<Vec<_>>()
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "files that import one another in circles:\n{}", found.join("\n"));
}

/// Each crate's neighbours, by its name.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Where the plan and the crates differ: an edge that is not drawn, one that is drawn in vain, a
/// crate without a place.
fn differences(edges: &Edges, plan: &Edges) -> Vec<String> {
    let all: BTreeSet<&String> = edges.keys().chain(plan.keys()).collect();
    let differs = all.into_iter().filter(|name| edges.get(*name) != plan.get(*name));
    differs
        .map(|name| {
            format!("{name}: knows of {:?}, drawn is {:?}", edges.get(name), plan.get(name))
        })
        .collect()
}

#[test]
fn dependencies_match_the_drawing() {
    let plan = plan();
    let found = differences(&edges(), &plan.iter().cloned().collect());
    assert!(found.is_empty(), "docs/architecture.md draws another house: {}", found.join("; "));
    for (at, (name, to)) in plan.iter().enumerate() {
        let above: BTreeSet<_> = plan[..at].iter().map(|(name, _)| name.clone()).collect();
        assert!(to.is_subset(&above), "{name} depends on something below it");
    }
}

#[test]
fn wrong_and_missing_edges_are_reported() {
    let (mut edges, plan) = (edges(), plan().into_iter().collect());
    edges.entry("completion".into()).or_default().insert("nvme".into());
    edges.entry("sim".into()).or_default().remove("emu");
    edges.insert("shed".into(), BTreeSet::new());
    let told = differences(&edges, &plan);
    let of: Vec<&str> = told.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(of, ["completion", "shed", "sim"], "{told:?}");
}

#[test]
fn unsafe_code_lives_in_hw_alone() {
    for (name, _) in plan().iter().filter(|(name, _)| name != "hw") {
        let roots =
            ["lib.rs", "main.rs"].map(|f| root().join("crates").join(name).join("src").join(f));
        for root in roots.into_iter().filter(|p| p.exists()) {
            let text = std::fs::read_to_string(&root).unwrap();
            let forbids = text.contains("#![forbid(unsafe_code)]")
                || name == "trace" && text.contains("#![deny(unsafe_code)]");
            assert!(forbids, "{} does not forbid unsafe code", root.display());
        }
    }
}
