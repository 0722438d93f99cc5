//! Parses fio's own example jobs: `cargo run -p reap-workload --example fio_jobs -- CHECKOUT`
//!
//! Reads each `examples/*.fio` and `t/jobs/*.fio` of CHECKOUT, a checkout of fio, and prints a
//! table in Markdown: whether Reap runs the same I/O, which options it ignores, and why it refuses
//! jobs. If `fio` is installed, the table has whether fio accepts the file (`--parse-only`).
//!
//! Some files need variables, and two need a file that does not exist: `GIVEN` and `made` provide
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use workload::fio::{self, Environment, Input};

/// Variables that files need, with values as their comments describe. Variables of the environment
/// override these.
const GIVEN: [(&str, &str); 5] = [
    ("FIO_DIR", "/tmp"),
    ("GPU_DEV_IDS", "0"),
    ("FIO_RW", "randread"),
    ("FIO_IODEPTH", "16"),
    ("FIO_BS", "4096"),
];

/// Files that exist when fio's own tests run a job: the test script makes a pattern of 16 KiB, and
/// `t0031-pre.fio` an iolog.
fn made() -> [(&'static str, Vec<u8>); 2] {
    let pattern =
        (0..16 << 10).map(|byte: u32| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let list = "fio version 2 iolog\nt0030file add\nt0030file open\nt0030file write 0 4096\nt0030file write 4096 4096\nt0030file close\n";
    [("t0027.pattern", pattern), ("iolog", list.into())]
}

/// The result of parsing a file.
enum Verdict {
    /// Reap runs the same I/O as fio.
    Same,
    /// Reap runs the same I/O as fio, with these warnings.
    Warned(Vec<String>),
    /// Reap refuses the file, with these errors.
    Refused(Vec<String>),
}

/// The files and variables for a job file: the files in its directory, and the environment.
struct Here;

impl Environment for Here {
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String> {
        let relative = Path::new(from).parent().map(|dir| dir.join(path)).unwrap_or_default();
        let made = || made().into_iter().find(|(name, _)| *name == path).map(|(_, text)| text);
        let text = std::fs::read(&relative)
            .or_else(|error| made().ok_or(error))
            .map_err(|error| error.to_string())?;
        Ok((relative.display().to_string(), text))
    }

    fn variable(&self, name: &str) -> Option<String> {
        let given =
            || GIVEN.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        std::env::var(name).ok().or_else(given)
    }
}

fn main() -> ExitCode {
    let Some(checkout) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: fio_jobs CHECKOUT: a directory with fio's sources");
        return ExitCode::FAILURE;
    };
    let mut files: Vec<PathBuf> =
        ["examples", "t/jobs"].iter().flat_map(|part| job_files(&checkout.join(part))).collect();
    files.sort();
    if files.is_empty() {
        eprintln!(
            "{} has neither examples/*.fio nor t/jobs/*.fio: give a checkout of fio",
            checkout.display()
        );
        return ExitCode::FAILURE;
    }
    let variables: Vec<String> = GIVEN
        .iter()
        .map(|(name, _)| format!("{name}={}", Here.variable(name).unwrap_or_default()))
        .collect();
    println!("Variables: {}.\n", variables.join(" "));
    println!("| file | fio takes it | Reap | why |\n| --- | --- | --- | --- |");
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for file in &files {
        let (taken, verdict) = (accepted_by_fio(file), read(file));
        let (word, why) = match &verdict {
            Verdict::Same => ("the same I/O", String::new()),
            Verdict::Warned(why) => ("the same I/O, with warnings", why.join("; ")),
            Verdict::Refused(why) if why.iter().any(|why| why.contains("no block I/O")) => {
                ("no block I/O: refused", first(why))
            }
            Verdict::Refused(why)
                if taken != Some(false) && why.iter().all(|why| why.contains("No such file")) =>
            {
                ("a file is missing", first(why))
            }
            Verdict::Refused(why) if taken == Some(false) => ("refused, as by fio", first(why)),
            Verdict::Refused(why) => ("refused", first(why)),
        };
        *counts.entry(word).or_default() += 1;
        let taken = taken.map_or("–", |taken| if taken { "yes" } else { "no" });
        let name = file.strip_prefix(&checkout).unwrap_or(file).display();
        println!("| `{name}` | {taken} | {word} | {} |", why.replace('|', "\\|"));
    }
    let counts: Vec<String> =
        counts.iter().map(|(word, count)| format!("{word}: {count}")).collect();
    println!("\n{} files. {}.", files.len(), counts.join("; "));
    ExitCode::SUCCESS
}

fn job_files(place: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "fio")).collect()
}

/// The first three distinct reasons.
fn first(why: &[String]) -> String {
    let mut seen: Vec<&String> = Vec::new();
    why.iter().for_each(|why| {
        if !seen.contains(&why) {
            seen.push(why);
        }
    });
    seen.into_iter().take(3).cloned().collect::<Vec<_>>().join("; ")
}

fn read(file: &Path) -> Verdict {
    let (name, text) = (file.display().to_string(), std::fs::read(file).unwrap_or_default());
    match fio::parse(&[Input { name: &name, text: &text }], &Here) {
        Ok(parsed) if parsed.warnings.is_empty() => Verdict::Same,
        Ok(parsed) => {
            Verdict::Warned(parsed.warnings.into_iter().map(|warning| warning.message).collect())
        }
        Err(errors) => Verdict::Refused(errors.0.into_iter().map(|error| error.message).collect()),
    }
}

/// Whether fio accepts the file; `None`: fio is not installed.
fn accepted_by_fio(file: &Path) -> Option<bool> {
    let here = tempfile::tempdir().ok()?;
    made().iter().try_for_each(|(name, text)| std::fs::write(here.path().join(name), text)).ok()?;
    let file = file.canonicalize().ok()?;
    let mut fio = Command::new("fio");
    fio.arg("--parse-only")
        .arg(file)
        .current_dir(&here)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status =
        fio.envs(GIVEN.map(|(name, _)| (name, Here.variable(name).unwrap_or_default()))).status();
    status.ok().map(|status| status.success())
}
