//! README and the pages of docs/ show commands that the program takes, on files that there are,
//! jobs that can be read, and nothing else that a reader could copy and no test has tried.

use std::ffi::OsString;
use std::path::Path;

use workload::fio::{self, Environment, Input};

use crate::args::{Cli, Subcommand};

/// How a page begins a command of the program's.
const BEGINNINGS: [&str; 2] = ["reap ", "cargo run --release -- "];

/// What a fenced block may hold. `tests/house/pages.rs` looks for what is `rust` or `toml` in
/// examples and scenarios; `text` is drawn or printed, and nothing to copy.
const KINDS: [&str; 5] = ["sh", "fio", "rust", "toml", "text"];
/// How what can be copied begins: a block without a kind has no such line.
const COPIED: [&str; 4] = ["reap ", "cargo ", "[", "./"];
/// Programs of others that a page calls.
const OTHERS: [&str; 8] =
    ["cd", "printf", "qemu-system-x86_64", "sudo", "time", "cp", "dd", "nvme"];

/// The fenced blocks of a page: line of the first of each, kind, text.
fn fences(page: &str) -> Vec<(usize, &str, String)> {
    let mut found: Vec<(usize, &str, String)> = Vec::new();
    let mut fenced = false;
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(kind) = text.strip_prefix("```") {
            fenced = !fenced;
            found.extend(fenced.then(|| (line + 1, kind, String::new())));
        } else if let Some((_, _, block)) = found.last_mut().filter(|_| fenced) {
            *block += text;
            block.push('\n');
        }
    }
    found
}

/// The command lines of a page, each with its line; one that is broken with a backslash is one.
fn lines(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (first, _, block) in fences(page).into_iter().filter(|(_, kind, _)| *kind == "sh") {
        let mut open = false;
        for (line, text) in (first..).zip(block.lines()) {
            let (text, more) = text.strip_suffix('\\').map_or((text, false), |text| (text, true));
            match found.last_mut().filter(|_| open) {
                Some((_, before)) => *before += text,
                None => found.push((line, text.to_owned())),
            }
            open = more;
        }
    }
    found
}

/// The commands of this program's on a page, with their lines: what stands before a comment, a pipe
/// or a redirection.
fn commands(page: &str) -> Vec<(usize, Vec<String>)> {
    let beginning =
        |text: &str| BEGINNINGS.iter().find_map(|start| text.strip_prefix(start)).map(words);
    lines(page).into_iter().filter_map(|(line, text)| Some((line, beginning(&text)?))).collect()
}

/// What is wrong with a command line that is not this program's, as far as the repository can tell.
fn wrong_line(text: &str, root: &Path) -> Option<String> {
    let all = words(text);
    let mut rest = all.iter().skip_while(|word| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c == '_' || c.is_ascii_uppercase()))
    });
    let first = rest.next()?.as_str();
    let path = Path::new(first);
    if first.contains('/') {
        return (!root.join(path).is_file()).then(|| format!("there is no {first}"));
    }
    if first != "cargo" {
        return (!OTHERS.contains(&first) && first != "reap")
            .then(|| format!("{first} is no program that pages are known to call"));
    }
    let rest: Vec<&str> = rest.map(String::as_str).take_while(|word| *word != "--").collect();
    let behind = |option: &str| {
        rest.iter()
            .zip(rest.iter().skip(1))
            .filter(move |(word, _)| **word == option)
            .map(|(_, value)| *value)
            .collect::<Vec<_>>()
    };
    let dirs = std::fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let packages: Vec<(String, std::path::PathBuf)> = dirs
        .filter_map(|dir| Some((std::fs::read_to_string(dir.join("Cargo.toml")).ok()?, dir)))
        .collect();
    let folder = |name: &str| {
        packages
            .iter()
            .find(|(text, _)| text.contains(&format!("\nname = \"{name}\"\n")))
            .map(|(_, dir)| dir)
    };
    let named = behind("-p");
    if let Some(name) = named.iter().find(|name| folder(name).is_none()) {
        return Some(format!("there is no package {name}"));
    }
    if let (["add", name, ..], [path]) = (rest.as_slice(), behind("--path").as_slice()) {
        // REAP stands for the folder of Reap's sources.
        let there = root.join(path.strip_prefix("REAP/")?);
        return (folder(name).map(|dir| root.join(dir).canonicalize().ok())
            != Some(there.canonicalize().ok()))
        .then(|| format!("{name} is not in {path}"));
    }
    let dir = named.first().and_then(|name| folder(name));
    let gone = |kind: &str, name: &&str| {
        dir.is_some_and(|dir| !dir.join(kind).join(format!("{name}.rs")).is_file())
    };
    let examples = behind("--example");
    examples
        .iter()
        .find(|name| gone("examples", name))
        .map(|name| format!("{} has no example {name}", named[0]))
}

/// What is wrong with a job file on a page. Where it wants a variable, that is a number.
fn wrong_job(text: &str) -> Option<String> {
    struct Page;
    impl Environment for Page {
        fn include(&self, _: &str, path: &str) -> Result<(String, Vec<u8>), String> {
            Err(format!("there is no {path} on a page"))
        }

        fn variable(&self, _: &str) -> Option<String> {
            Some("16".into())
        }
    }
    fio::parse(&[Input { name: "job", text: text.as_bytes() }], &Page)
        .err()
        .map(|errors| errors.to_string())
}

/// As a shell splits them, as far as pages go: no variables, and no quotes within others.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match c {
            '\'' | '"' if quoted.is_none_or(|open| open == c) => {
                quoted = if quoted.is_none() { Some(c) } else { None };
                word.get_or_insert_default();
            }
            '#' | '|' | '>' | '&' if quoted.is_none() && word.is_none() => break,
            c if c.is_whitespace() && quoted.is_none() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Errors of a command, and files of this repository that it names and that do not exist.
fn mistakes(words: &[String], root: &Path) -> Vec<String> {
    // docs/policy.md has a policy of its own, which a program of its own registers.
    let known = |word: &String| word.replace("interrupt,patient", "interrupt");
    let line =
        std::iter::once("reap".to_owned()).chain(words.iter().map(known)).map(OsString::from);
    let told = match Cli::parse_words(line) {
        Ok(Cli { command: Subcommand::Run(run) }) => run.jobs.as_deref().and_then(wrong_job),
        parsed => parsed.err().map(|error| error.to_string()),
    };
    // A reader has no job file of the page's making.
    let ours = |word: &&String| {
        word.ends_with(".fio")
            || ["jobs/", "scenarios/", "examples/"].iter().any(|dir| word.starts_with(dir))
    };
    let gone = words.iter().filter(ours).filter(|word| !root.join(word.as_str()).exists());
    told.into_iter().chain(gone.map(|word| format!("there is no {word}"))).collect()
}

/// What is wrong on a page with anything that a reader could copy, line by line, and how many
/// commands of the program it has.
fn tried(page: &str, root: &Path) -> (usize, Vec<(usize, String)>) {
    let mut wrong = Vec::new();
    for (line, kind, block) in fences(page) {
        let drawn = kind.is_empty()
            && !block.lines().any(|line| COPIED.iter().any(|start| line.starts_with(start)));
        if !drawn && !KINDS.contains(&kind) {
            wrong.push((
                line - 1,
                format!(
                    "a block of kind {kind:?}: say which of {KINDS:?} it is, so that it is tried"
                ),
            ));
        }
        wrong.extend(if kind == "fio" { wrong_job(&block) } else { None }.map(|told| (line, told)));
    }
    wrong.extend(
        lines(page).into_iter().filter_map(|(line, text)| Some((line, wrong_line(&text, root)?))),
    );
    let commands = commands(page);
    let of_one = |(line, words): &(usize, Vec<String>)| {
        mistakes(words, root).into_iter().map(|told| (*line, told)).collect::<Vec<_>>()
    };
    wrong.extend(commands.iter().flat_map(of_one));
    (commands.len(), wrong)
}

#[test]
fn documented_commands_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .chain([root.join("README.md")]);
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in pages {
        let (commands, told) = tried(&std::fs::read_to_string(&path).unwrap(), &root);
        seen += commands;
        wrong.extend(told.iter().map(|(line, told)| format!("{}:{line}: {told}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 30, "the pages have no commands any more, or look otherwise: {seen}");
}

#[test]
fn wrong_command_is_reported() {
    let page = "reap no fence\n```sh\nreap run 'a b.fio' --completion poll  # a comment\nreap list | head\n$ reap list\n```\nreap list\n";
    let found = commands(page);
    let expected = [(3, vec!["run", "a b.fio", "--completion", "poll"]), (4, vec!["list"])];
    assert_eq!(
        found
            .iter()
            .map(|(line, words)| (*line, words.iter().map(String::as_str).collect()))
            .collect::<Vec<_>>(),
        expected
    );
    let told = |text: &str| mistakes(&words(text), Path::new("/nowhere")).len();
    assert_eq!(
        [told("list"), told("lsit"), told("compare --lods 5"), told("run jobs/gone.fio")],
        [0, 1, 1, 1]
    );
    assert_eq!([told("run --name=a --rw=read"), told("run --name=a --rw=raed")], [0, 1]);
}

#[test]
fn undocumented_blocks_are_reported() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let wrong = |page: &str| tried(page, &root).1.len();
    assert_eq!(
        [
            wrong("```text\nx\n```\n"),
            wrong("```\n x\n```\n"),
            wrong("```\n[x]\n```\n"),
            wrong("```yaml\nx\n```\n")
        ],
        [0, 0, 1, 1]
    );
    assert_eq!(
        [wrong("```fio\n[a]\nrw=read\niodepth=${D}\n```\n"), wrong("```fio\n[a]\nrw=raed\n```\n")],
        [0, 1]
    );
    for (line, mistakes) in [
        ("X=1 cargo test -p reap-nvme --example tokio", 0),
        ("cargo test -p reap-nvem", 1),
        ("cargo run --release -p reap-nvme --example tokoi", 1),
        ("cargo add reap-nvme --path REAP/crates/reap", 0),
        ("cargo add reap-nvme --path REAP/crates/cli", 1),
        ("RUSTFLAGS=\"--cfg loom\" cargo test -p reap-sync", 0),
        ("./test.sh", 0),
        ("fuzz/rnu.sh 60", 1),
        ("raep list", 1),
        ("reap list \\\n  --jsno", 1),
    ] {
        assert_eq!(wrong(&format!("```sh\n{line}\n```\n")), mistakes, "{line}");
    }
}
