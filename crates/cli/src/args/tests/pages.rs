//! README and the pages of docs/ show commands that the program takes, on files that there are.

use std::ffi::OsString;
use std::path::Path;

use crate::args::Cli;

/// How a page begins a command of the program's.
const BEGINNINGS: [&str; 2] = ["reap ", "cargo run --release -- "];

/// The commands in the fenced blocks of a page, with their lines: what stands before a comment, a pipe or a redirection.
fn commands(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (line, text) in (1..).zip(page.lines()) {
        fenced ^= text.starts_with("```");
        if let Some(rest) = BEGINNINGS.iter().find_map(|start| text.strip_prefix(start)).filter(|_| fenced) {
            found.push((line, words(rest)));
        }
    }
    found
}

/// As a shell splits them, as far as pages go: quotes of one kind, and no variables.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in text.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '#' | '|' | '>' | '&' if !quoted && word.is_none() => break,
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What the program says against a command, and which of this repository's files it names in vain.
fn mistakes(words: &[String], root: &Path) -> Vec<String> {
    // docs/policy.md has a policy of its own, which a program of its own registers.
    let known = |word: &String| word.replace("interrupt,patient", "interrupt");
    let line = std::iter::once("reap".to_owned()).chain(words.iter().map(known)).map(OsString::from);
    let told = Cli::parse_words(line).err().map(|error| error.to_string());
    let ours = |word: &&String| ["jobs/", "scenarios/", "examples/"].iter().any(|dir| word.starts_with(dir));
    let gone = words.iter().filter(ours).filter(|word| !root.join(word.as_str()).exists());
    told.into_iter().chain(gone.map(|word| format!("there is no {word}"))).collect()
}

#[test]
fn every_command_on_a_page_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([root.join("README.md")]);
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in pages {
        for (line, words) in commands(&std::fs::read_to_string(&path).unwrap()) {
            seen += 1;
            let told = mistakes(&words, &root);
            wrong.extend(told.iter().map(|told| format!("{}:{line}: {told}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 30, "the pages have no commands any more, or look otherwise: {seen}");
}

#[test]
fn a_wrong_command_is_told() {
    let page = "reap no fence\n```\nreap run 'a b.fio' --completion poll  # a comment\nreap list | head\n$ reap list\n```\nreap list\n";
    let found = commands(page);
    let expected = [(3, vec!["run", "a b.fio", "--completion", "poll"]), (4, vec!["list"])];
    assert_eq!(found.iter().map(|(line, words)| (*line, words.iter().map(String::as_str).collect())).collect::<Vec<_>>(), expected);
    let told = |text: &str| mistakes(&words(text), Path::new("/nowhere")).len();
    assert_eq!([told("list"), told("lsit"), told("compare --lods 5"), told("run jobs/gone.fio")], [0, 1, 1, 1]);
}
