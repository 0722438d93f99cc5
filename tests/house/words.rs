//! How README and the pages of docs/ are written: short sentences, an actor with a name, links that lead somewhere, and snippets
//! that are parts of examples and scenarios.
//!
//! It stands on std alone, so that it can be tried while one writes:
//! `CARGO_MANIFEST_DIR=$PWD/crates/reap rustc --edition 2024 --test tests/house/words.rs -o target/words && target/words`.

use std::fs;
use std::path::{Path, PathBuf};

/// Words of the middle sentence of a page, at most.
const MEDIAN: usize = 16;
/// Words of the sentence that nine tenths of a page's sentences are no longer than, at most.
const LONG: usize = 25;
/// Lines of README; as many make it too long.
const README_LINES: usize = 120;
/// What stands in place of an actor's name.
const NOBODY: [&str; 8] = ["he", "him", "his", "himself", "she", "whoever", "whomever", "what comes"];

struct Sentence {
    /// Line on which it begins, from 1.
    line: usize,
    text: String,
}

impl Sentence {
    /// Its words, lower case and without what surrounds them. A piece of code is one word, whatever is in it.
    fn words(&self) -> Vec<String> {
        let inside = |c: char| c.is_alphanumeric() || c == CODE;
        let bare = |word: &str| word.trim_matches(|c| !inside(c)).to_lowercase();
        self.text.split_whitespace().filter(|word| word.contains(inside)).map(bare).collect()
    }
}

/// Stands for a piece of code within a sentence.
const CODE: char = '\u{fffc}';

/// One line without markup: code is a [`CODE`], a link is its text.
fn plain(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(['`', '[', ']', '*']) {
        out.push_str(&rest[..at]);
        let (mark, behind) = rest[at..].split_at(1);
        rest = match mark {
            "`" => {
                out.push(CODE);
                behind.split_once('`').map_or("", |(_, behind)| behind)
            }
            "]" if behind.starts_with('(') => behind.split_once(')').map_or("", |(_, behind)| behind),
            _ => behind,
        };
    }
    out + rest
}

/// The sentences of a page. Code blocks, tables, headings and comments have none; the end of a paragraph or an item ends one.
fn sentences(page: &str) -> Vec<Sentence> {
    let (mut out, mut open): (Vec<Sentence>, Option<Sentence>) = (Vec::new(), None);
    let (mut fenced, mut comment) = (false, false);
    for (number, line) in (1..).zip(page.lines()) {
        let text = line.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        comment |= text.starts_with("<!--");
        let aside = fence || fenced || comment || text.is_empty() || text.starts_with(['|', '#']);
        comment &= !text.contains("-->");
        let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let item =
            ["- ", "* ", "> "].iter().find_map(|mark| text.strip_prefix(mark)).or(digits.strip_prefix(". ").filter(|_| digits != text));
        if aside || item.is_some() {
            out.extend(open.take());
        }
        if aside {
            continue;
        }
        for word in plain(item.unwrap_or(text)).split_whitespace() {
            let sentence = open.get_or_insert_with(|| Sentence { line: number, text: String::new() });
            sentence.text.push_str(word);
            sentence.text.push(' ');
            if word.trim_end_matches(['"', ')', '”', '_']).ends_with(['.', '!', '?']) {
                out.extend(open.take());
            }
        }
    }
    out.extend(open);
    out.retain(|sentence| !sentence.words().is_empty());
    out
}

/// Words of the middle sentence, and of the one that nine tenths are no longer than.
fn lengths(sentences: &[Sentence]) -> (usize, usize) {
    let mut words: Vec<usize> = sentences.iter().map(|sentence| sentence.words().len()).collect();
    words.sort_unstable();
    let at = |tenths: usize| words.get((words.len() * tenths).div_ceil(10).saturating_sub(1)).copied().unwrap_or(0);
    (at(5), at(9))
}

/// What is wrong with the length of a page's sentences, its longest ones included.
fn too_long(name: &str, page: &str) -> Option<String> {
    let mut sentences = sentences(page);
    let (median, long) = lengths(&sentences);
    sentences.sort_by_key(|sentence| std::cmp::Reverse(sentence.words().len()));
    let worst = sentences.iter().take(8).filter(|sentence| sentence.words().len() > LONG);
    let worst: String =
        worst.map(|s| format!("\n  {name}:{}: {} words: {}", s.line, s.words().len(), s.text.replace(CODE, "`…`"))).collect();
    (median > MEDIAN || long > LONG)
        .then(|| format!("{name}: half of the sentences have {median} words or more, a tenth {long} or more{worst}"))
}

/// Where a page names nobody.
fn nobodies(name: &str, page: &str) -> Vec<String> {
    let found = |sentence: &Sentence| {
        let words = format!(" {} ", sentence.words().join(" "));
        NOBODY.into_iter().filter(|nobody| words.contains(&format!(" {nobody} "))).collect::<Vec<_>>()
    };
    let told = |sentence: Sentence| {
        found(&sentence).into_iter().map(|word| format!("{name}:{}: \"{word}\": who is that?", sentence.line)).collect::<Vec<_>>()
    };
    sentences(page).into_iter().flat_map(told).collect()
}

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
    let targets = page.split("](").skip(1).filter_map(|behind| behind.split_once(')')).map(|(target, _)| target);
    for target in targets.filter(|target| !target.contains("://")) {
        let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
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

/// Names that a snippet of Rust binds and does not use: the compiler sees the whole program, which may use them, and such a name can
/// be a `Result` that a reader's program drops.
fn unused(name: &str, page: &str) -> Vec<String> {
    let snippets = page.split("```rust\n").skip(1).filter_map(|behind| behind.split_once("```")).map(|(snippet, _)| snippet);
    let mut found = Vec::new();
    for snippet in snippets {
        for (at, _) in snippet.match_indices("let ").filter(|(at, _)| *at == 0 || snippet[..*at].ends_with('\n')) {
            let rest = snippet[at + 4..].trim_start_matches("mut ");
            let name_end = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
            let bound = &rest[..name_end(rest)];
            // The statement ends with the first line that stands at the margin and has a semicolon.
            let ends = |line: &&str| !line.starts_with(' ') && line.contains(';');
            let statement = rest.split_inclusive('\n').position(|line| ends(&line)).unwrap_or(usize::MAX - 1);
            let behind: String = rest.split_inclusive('\n').skip(statement + 1).collect();
            // `queue.read(…)` is no use of a variable `read`.
            let used = behind.match_indices(bound).any(|(at, _)| {
                let inside = |c: char| c.is_alphanumeric() || c == '_';
                !behind[..at].ends_with(|c| inside(c) || c == '.') && !behind[at + bound.len()..].starts_with(inside)
            });
            if !bound.is_empty() && !used {
                found.push(format!("{name}: the snippet does not use `{bound}`"));
            }
        }
    }
    found
}

/// Snippets of a language that stand in none of these programs. A line is compared without its indentation and without its comment.
fn strangers(name: &str, page: &str, (language, comment): (&str, &str), programs: &[String]) -> Vec<String> {
    let code = |text: &str| -> Vec<String> {
        let bare = |line: &str| line.split(comment).next().unwrap_or_default().trim().to_owned();
        text.lines().map(bare).filter(|line| !line.is_empty()).collect()
    };
    let known: Vec<Vec<String>> = programs.iter().map(|program| code(program)).collect();
    let fence = format!("```{language}\n");
    let snippets = page.split(&fence).skip(1).filter_map(|behind| behind.split_once("```")).map(|(snippet, _)| snippet);
    let stranger = |snippet: &&str| {
        let lines = code(snippet);
        !known.iter().any(|program| program.windows(lines.len().max(1)).any(|part| part == lines))
    };
    snippets.filter(stranger).map(|snippet| format!("{name}: no program and no scenario has this snippet:\n{snippet}")).collect()
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
    let entries = fs::read_dir(root().join(dir)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name.ends_with(ending)).map(|name| format!("{dir}/{name}")).collect();
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
fn sentences_of_every_page_are_short() {
    let found: Vec<String> = pages().iter().filter_map(|(name, page)| too_long(name, page)).collect();
    assert!(found.is_empty(), "at most {MEDIAN} words in the middle sentence, {LONG} in nine tenths:\n{}", found.join("\n"));
}

#[test]
fn every_actor_has_a_name() {
    let found: Vec<String> = pages().iter().flat_map(|(name, page)| nobodies(name, page)).collect();
    assert!(found.is_empty(), "name the application, the thread, the policy:\n{}", found.join("\n"));
}

#[test]
fn readme_is_short_and_the_index_has_every_page() {
    let pages = pages();
    let lines = pages[0].1.lines().count();
    assert!(lines < README_LINES, "README.md has {lines} lines");
    let index = read(Path::new("docs/README.md")).unwrap();
    let named = |page: &str| page == "README.md" || index.contains(&format!("]({page})"));
    let missing: Vec<&str> = pages[1..].iter().map(|(name, _)| &name["docs/".len()..]).filter(|page| !named(page)).collect();
    assert!(missing.is_empty(), "docs/README.md leads to none of {missing:?}");
}

#[test]
fn links_lead_somewhere() {
    let found: Vec<String> = pages().iter().flat_map(|(name, page)| dead_links(name, page, &read)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn snippets_are_parts_of_what_is_built_and_run() {
    for (language, dir, ending) in [(("rust", "//"), "examples", ".rs"), (("toml", "#"), "scenarios", ".toml")] {
        let programs: Vec<String> = files(dir, ending).into_iter().map(|(_, text)| text).collect();
        let found: Vec<String> = pages().iter().flat_map(|(name, page)| strangers(name, page, language, &programs)).collect();
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
fn sentences_are_told_apart_from_what_is_none() {
    let page = "# A heading. With two.\n\nOne `a. b` two. Is 0.3\nthree? (Yes.)\n\n| a table. | it |\n\n```\ncode. code.\n```\n\
                <!-- a comment.\nstill. -->\n- an item\n- [a link.md](to.md) and more\n1. first\n";
    let found: Vec<(usize, usize)> = sentences(page).iter().map(|s| (s.line, s.words().len())).collect();
    assert_eq!(found, [(3, 3), (3, 3), (4, 1), (13, 2), (14, 4), (15, 1)]);
}

#[test]
fn long_sentences_and_nobodies_are_told() {
    let long = "word ".repeat(LONG + 1) + "end.\n";
    let page = long.repeat(2) + &"A short one. ".repeat(8);
    let told = too_long("x.md", &page).unwrap();
    assert!(told.contains("x.md:1: 27 words") && told.contains("x.md:2"), "{told}");
    assert_eq!(too_long("x.md", &(long + &"A short one. ".repeat(9))), None);
    assert!(too_long("x.md", &("word ".repeat(MEDIAN) + "end.")).is_some());

    let told = nobodies("x.md", "Then he sleeps. The others sleep.\nWhoever wakes takes\nwhat comes. `he` is the head's name.");
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn dead_links_and_strange_snippets_are_told() {
    let there = |path: &Path| (path == Path::new("docs/there.md")).then(|| "# What *it* is, `here`\n".to_owned());
    let page = "[a](there.md) [b](there.md#what-it-is-here) [c](gone.md) [d](there.md#gone) [e](https://gone) [f](#g)\n## G\n";
    assert_eq!(dead_links("docs/x.md", page, &there), ["docs/x.md: no such file: gone.md", "docs/x.md: no such heading: there.md#gone"]);

    let programs = ["fn main() {\n    one(); // first\n    two();\n}\n".to_owned()];
    let strange = |code: &str| strangers("x.md", &format!("Text.\n\n```rust\n{code}```\n"), ("rust", "//"), &programs).len();
    assert_eq!((strange("one();\n// second\ntwo();\n"), strange("two();\none();\n")), (0, 1));
}
