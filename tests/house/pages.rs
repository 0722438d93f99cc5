//! README and the pages of docs/: links lead somewhere, and snippets are parts of examples and
//! scenarios.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of README, at most.
const README_LINES: usize = 100;

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn headings(page: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    let lines = page.lines().filter(move |line| {
        fenced ^= line.starts_with("```");
        !fenced && line.starts_with('#')
    });
    lines.map(|line| anchor(line.trim_start_matches('#').trim())).collect::<Vec<_>>().into_iter()
}

/// Links within the repository that lead nowhere: no such file, or no such heading in it.
fn dead_links(name: &str, page: &str, read: &dyn Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut dead = Vec::new();
    let targets = page
        .split("](")
        .skip(1)
        .filter_map(|behind| behind.split_once(')'))
        .map(|(target, _)| target);
    for target in targets.filter(|target| !target.contains("://")) {
        let (file, heading) =
            target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
        let here = Path::new(name).parent().unwrap_or(Path::new("")).join(file);
        let there = if file.is_empty() { Some(page.to_owned()) } else { read(&here) };
        match (there, heading) {
            (None, _) => dead.push(format!("{name}: no such file: {target}")),
            (Some(there), Some(heading)) if !headings(&there).any(|known| known == heading) => {
                dead.push(format!("{name}: no such heading: {target}"))
            }
            _ => {}
        }
    }
    dead
}

/// Names that a snippet of Rust binds and does not use: the compiler sees the whole program, which
/// may use them, and such a name can be a `Result` that a reader's program drops.
fn unused(name: &str, page: &str) -> Vec<String> {
    let snippets = page
        .split("```rust\n")
        .skip(1)
        .filter_map(|behind| behind.split_once("```"))
        .map(|(snippet, _)| snippet);
    let mut found = Vec::new();
    for snippet in snippets {
        for (at, _) in snippet
            .match_indices("let ")
            .filter(|(at, _)| *at == 0 || snippet[..*at].ends_with('\n'))
        {
            let rest = snippet[at + 4..].trim_start_matches("mut ");
            let name_end = |text: &str| {
                text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
            };
            let bound = &rest[..name_end(rest)];
            // The statement ends with the first line that stands at the margin and has a semicolon.
            let ends = |line: &&str| !line.starts_with(' ') && line.contains(';');
            let statement =
                rest.split_inclusive('\n').position(|line| ends(&line)).unwrap_or(usize::MAX - 1);
            let behind: String = rest.split_inclusive('\n').skip(statement + 1).collect();
            // `queue.read(…)` is no use of a variable `read`.
            let used = behind.match_indices(bound).any(|(at, _)| {
                let inside = |c: char| c.is_alphanumeric() || c == '_';
                !behind[..at].ends_with(|c| inside(c) || c == '.')
                    && !behind[at + bound.len()..].starts_with(inside)
            });
            if !bound.is_empty() && !used {
                found.push(format!("{name}: the snippet does not use `{bound}`"));
            }
        }
    }
    found
}

/// Snippets of a language that stand in none of these programs. A line is compared without its
/// indentation and without its comment.
fn strangers(
    name: &str,
    page: &str,
    (language, comment): (&str, &str),
    programs: &[String],
) -> Vec<String> {
    let code = |text: &str| -> Vec<String> {
        let bare = |line: &str| line.split(comment).next().unwrap_or_default().trim().to_owned();
        text.lines().map(bare).filter(|line| !line.is_empty()).collect()
    };
    let known: Vec<Vec<String>> = programs.iter().map(|program| code(program)).collect();
    let fence = format!("```{language}\n");
    let snippets = page
        .split(&fence)
        .skip(1)
        .filter_map(|behind| behind.split_once("```"))
        .map(|(snippet, _)| snippet);
    let stranger = |snippet: &&str| {
        let lines = code(snippet);
        !known.iter().any(|program| program.windows(lines.len().max(1)).any(|part| part == lines))
    };
    snippets
        .filter(stranger)
        .map(|snippet| format!("{name}: no program and no scenario has this snippet:\n{snippet}"))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap().to_owned()
}

fn read(path: &Path) -> Option<String> {
    let path = root().join(path);
    if path.is_dir() { Some(String::new()) } else { fs::read_to_string(path).ok() }
}

/// The files of a directory with this ending, by name, with what is in them.
fn files(dir: &str, ending: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        entries.filter(|name| name.ends_with(ending)).map(|name| format!("{dir}/{name}")).collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(Path::new(&name)).unwrap())).collect()
}

/// README and the pages of docs/, by name.
fn pages() -> Vec<(String, String)> {
    let mut pages = files("docs", ".md");
    pages.insert(0, ("README.md".into(), read(Path::new("README.md")).unwrap()));
    pages
}

#[test]
fn readme_and_index_are_complete() {
    let pages = pages();
    let lines = pages[0].1.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
    let index = read(Path::new("docs/README.md")).unwrap();
    let named = |page: &str| page == "README.md" || index.contains(&format!("]({page})"));
    let missing: Vec<&str> = pages[1..]
        .iter()
        .map(|(name, _)| &name["docs/".len()..])
        .filter(|page| !named(page))
        .collect();
    assert!(missing.is_empty(), "docs/README.md leads to none of {missing:?}");
}

#[test]
fn links_lead_somewhere() {
    let found: Vec<String> =
        pages().iter().flat_map(|(name, page)| dead_links(name, page, &read)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn snippets_are_built_and_run() {
    for (language, dir, ending) in
        [(("rust", "//"), "examples", ".rs"), (("toml", "#"), "scenarios", ".toml")]
    {
        let programs: Vec<String> = files(dir, ending).into_iter().map(|(_, text)| text).collect();
        let found: Vec<String> = pages()
            .iter()
            .flat_map(|(name, page)| strangers(name, page, language, &programs))
            .collect();
        assert!(found.is_empty(), "{dir}/ has no such lines: {}", found.join("\n"));
    }
}

#[test]
fn snippets_use_what_they_bind() {
    let found: Vec<String> = pages().iter().flat_map(|(name, page)| unused(name, page)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let dropped = "```rust\nlet queue = open()?;\nlet read = queue.block_on(async {\n    queue.read()\n})?;\nqueue.read();\n```\n";
    assert_eq!(unused("x.md", dropped), ["x.md: the snippet does not use `read`"]);
}

#[test]
fn dead_links_are_reported() {
    let there = |path: &Path| {
        (path == Path::new("docs/there.md")).then(|| "# What *it* is, `here`\n".to_owned())
    };
    let page = "[a](there.md) [b](there.md#what-it-is-here) [c](gone.md) [d](there.md#gone) [e](https://gone) [f](#g)\n## G\n";
    assert_eq!(
        dead_links("docs/x.md", page, &there),
        ["docs/x.md: no such file: gone.md", "docs/x.md: no such heading: there.md#gone"]
    );

    let programs = ["fn main() {\n    one(); // first\n    two();\n}\n".to_owned()];
    let strange = |code: &str| {
        strangers("x.md", &format!("Text.\n\n```rust\n{code}```\n"), ("rust", "//"), &programs)
            .len()
    };
    assert_eq!((strange("one();\n// second\ntwo();\n"), strange("two();\none();\n")), (0, 1));
}
