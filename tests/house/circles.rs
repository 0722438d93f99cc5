//! The circles among the files of a crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::modules::{FileId, Modules, Sources};
use crate::uses::{self, Edges};

/// The circles of the crate with this root file, shortest first: for each edge that closes any, the
/// shortest that it closes. Each reads `a → b → a (B of b; A of a)`, with the items that make its
/// edges. Only imports between the top-level modules of a crate count: the files of one directory
/// are one part, split as they read best.
pub fn circles(root: &str, sources: Sources) -> Vec<String> {
    let modules = Modules::read(root, sources);
    let mut edges = uses::edges(&modules);
    let part = |file: FileId| modules.files[file].name.split("::").next();
    edges.retain(|&(from, to), _| part(from) != part(to));
    let mut next: BTreeMap<FileId, Vec<FileId>> = BTreeMap::new();
    edges.keys().for_each(|&(from, to)| next.entry(from).or_default().push(to));
    let closed = edges.keys().filter_map(|&(from, to)| way(&next, to, from)).map(from_the_first);
    let mut found: Vec<Vec<FileId>> = closed.collect::<BTreeSet<_>>().into_iter().collect();
    found.sort_by_key(Vec::len);
    found.iter().map(|circle| told(&modules, &edges, circle)).collect()
}

/// The shortest way between two files, both ends included.
fn way(next: &BTreeMap<FileId, Vec<FileId>>, from: FileId, to: FileId) -> Option<Vec<FileId>> {
    let mut came: BTreeMap<FileId, FileId> = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(at) = waiting.pop_front() {
        if at == to {
            let mut way: Vec<FileId> =
                std::iter::successors(Some(to), |&at| (at != from).then(|| came[&at])).collect();
            way.reverse();
            return Some(way);
        }
        for &file in next.get(&at).into_iter().flatten() {
            if file != from && !came.contains_key(&file) {
                came.insert(file, at);
                waiting.push_back(file);
            }
        }
    }
    None
}

/// One circle is found from each of its edges: turned until its first file stands first.
fn from_the_first(mut circle: Vec<FileId>) -> Vec<FileId> {
    let first = (0..circle.len()).min_by_key(|&at| circle[at]).unwrap_or(0);
    circle.rotate_left(first);
    circle
}

fn told(modules: &Modules, edges: &Edges, circle: &[FileId]) -> String {
    let name = |file: FileId| modules.files[file].name.as_str();
    let round: Vec<FileId> = circle.iter().chain(circle.first()).copied().collect();
    let names: Vec<&str> = round.iter().map(|&file| name(file)).collect();
    let items = round.windows(2).map(|pair| {
        let items: Vec<&str> = edges[&(pair[0], pair[1])].iter().map(String::as_str).collect();
        format!("{} of {}", items.join(", "), name(pair[1]))
    });
    format!("{} ({})", names.join(" → "), items.collect::<Vec<_>>().join("; "))
}
