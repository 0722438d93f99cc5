//! Whether `reap run` does the same I/O as fio does, on jobs made at random from the documented
//! subset of fio's job language:
//!
//! ```sh
//! cargo build -p reap-nvme-cli && cargo run -p reap-workload --example fio_peer --
//! target/debug/reap [JOBS [SEED]]
//! ```
//!
//! Each job runs twice, in a directory of its own: in fio, with its engine `psync`, and in `reap
//! run`. The program compares the lists of I/Os (`write_iolog`: operation, file, offset and length,
//! in order), the names and sizes of the files that the job leaves, and whether the job is refused.
//! A job depends on the seed and its number only. `JOBS` is the number of jobs (300 if it is not
//! given), `SEED` is 1 if it is not given; `NUMBER..` in place of `JOBS` runs that one job and
//! prints all its output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;

/// Number of jobs that run at once: fio mostly sleeps.
const AT_ONCE: usize = 6;
/// Errors with which Reap may refuse a job that fio runs: docs/fio-jobs.md has the reasons.
const MAY_REFUSE: [&str; 3] =
    ["see docs/fio-jobs.md", "with a step backwards, size", "less than one block of"];
/// An error of fio: in jobs with reads and writes of several sizes it finds its own data wrong.
const FIO_IS_WRONG: &str = "err=84/file:io_u.c";

/// One section: its name and its options.
struct Section {
    name: String,
    options: Vec<String>,
    threads: u32,
    trims: bool,
    /// Random offsets without `verify`: Reap's differ from fio's.
    own_places: bool,
}

/// The random numbers of one job.
struct Draws(SplitMix64);

impl Draws {
    fn one_in(&mut self, n: u32) -> bool {
        self.0.random_range(0..n) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.0).expect("there are choices")
    }

    fn up_to(&mut self, n: u64) -> u64 {
        self.0.random_range(0..=n)
    }
}

fn sections(seed: u64, number: u64) -> Vec<Section> {
    let mut rng = Draws(SplitMix64::seed_from_u64(seed << 32 ^ number));
    let count = if rng.one_in(4) { 2 } else { 1 };
    let trims = rng.one_in(12);
    let names = ["a", "b", "job-1", "x y"];
    let mut sections = Vec::new();
    for index in 0..count {
        let name =
            format!("{}{}", rng.of(&names), if rng.one_in(8) { "" } else { ["", "2"][index] });
        sections.push(section(&mut rng, name, index, trims));
    }
    sections
}

fn section(rng: &mut Draws, name: String, index: usize, trims: bool) -> Section {
    let mut options: Vec<String> = Vec::new();
    let mut say = |option: String| options.push(option);
    if index > 0 {
        say("stonewall".into());
    }
    let verify = !trims && rng.one_in(3);
    let rw = match (trims, verify) {
        (true, _) => rng.of(&["trim", "trimwrite"]),
        (_, true) => rng.of(&["write", "randwrite", "rw", "randrw"]),
        _ => rng.of(&["read", "write", "rw", "read", "write", "randread", "randwrite"]),
    };
    let random = rw.starts_with("rand");
    let writes = rw != "read" && rw != "randread";
    let own_places = random && !verify;
    let threads = if rng.one_in(6) { rng.of(&[2, 3]) } else { 1 };
    if !trims && !rng.one_in(3) {
        say(format!("ioengine={}", rng.of(&["psync", "libaio", "io_uring"])));
    }
    // Block sizes.
    let unit: u64 = rng.of(&[512, 512, 1024, 2048, 4096, 4096, 4096, 8192, 1536, 16384]);
    let mut least = unit;
    match rng.up_to(if own_places { 4 } else { 9 }) {
        0..=4 => say(format!("bs={unit}")),
        5 => {
            let other = rng.of(&[512, 1024, 4096, 8192]);
            let (read, write) = if rng.one_in(2) { (unit, other) } else { (other, unit) };
            say(format!("bs={read},{write},{unit}"));
            least = unit.min(other);
        }
        6 => say(format!("bsrange={unit}-{}", unit * (1 + rng.up_to(7)))),
        7 => say(format!(
            "bssplit={unit}/{}:{}/:{}/",
            10 + rng.up_to(40),
            unit * 2,
            unit * (3 + rng.up_to(5))
        )),
        8 => say(format!("bssplit={unit}/100")),
        _ => least = 4096,
    }
    // Extent: offset, size and number of I/Os.
    let odd = |rng: &mut Draws, bytes: u64| match rng.up_to(3) {
        0 => bytes + rng.up_to(least - 1),
        1 => bytes + 512,
        _ => bytes,
    };
    let blocks = 1 + rng.up_to(24);
    let whole = if trims { least.max(unit) * blocks * 4 } else { odd(rng, least * blocks) };
    let mut sized = true;
    match rng.up_to(15) {
        0 if !trims => say("size=0".into()),
        1 if !trims => sized = false,
        2 if !trims => say(format!("size={}%", rng.up_to(100))),
        3 if !trims => say(format!("size={}", rng.up_to(2 * least))),
        _ => say(format!("size={whole}")),
    }
    if !trims && (!sized || rng.one_in(5)) && !rng.one_in(10) {
        let bytes = least * (1 + rng.up_to(20));
        say(format!("filesize={}", odd(rng, bytes)));
    }
    let unit_of_offset = if rng.one_in(3) { 512 } else { least };
    if rng.one_in(3) {
        match rng.up_to(if trims || own_places { 2 } else { 3 }) {
            3 => say(format!("offset={}%", rng.up_to(100))),
            _ => say(format!("offset={}", unit_of_offset * rng.up_to(12))),
        }
    }
    if threads > 1 && rng.one_in(2) {
        match rng.up_to(if trims || own_places { 2 } else { 3 }) {
            3 => say(format!("offset_increment={}%", rng.up_to(50))),
            _ => say(format!("offset_increment={}", unit_of_offset * rng.up_to(30))),
        }
    }
    if rng.one_in(6) {
        match rng.up_to(3) {
            0 if !trims => say(format!("io_size={}%", 1 + rng.up_to(99))),
            _ => {
                let bytes = least * (1 + rng.up_to(60));
                say(format!("io_size={}", odd(rng, bytes)));
            }
        }
    }
    if rng.one_in(8) {
        say(format!("number_ios={}", 1 + rng.up_to(40)));
    }
    if rng.one_in(6) {
        say(format!("loops={}", 1 + rng.up_to(3)));
    }
    // Files.
    let files = if rng.one_in(4) { 1 + rng.up_to(3) } else { 1 };
    if files > 1 {
        say(format!("nrfiles={files}"));
    }
    // Several threads that verify get a file each, not to find data of other threads.
    match rng.up_to(7) + if verify && threads > 1 { 5 } else { 0 } {
        0 => say("filename=f".into()),
        1 => say(format!("filename=f:g{}", if rng.one_in(2) { ":h" } else { "" })),
        2 => say("filename_format=t.$filenum".into()),
        3 => say("filename_format=$jobname-$jobnum/$filenum.$jobnum".into()),
        4 => {
            say("directory=d".into());
            say("filename=f".into());
        }
        _ => say("directory=d".into()),
    }
    // Operation and order.
    let step = match rng.up_to(5) {
        0 if verify && random => {
            // With a random map fio also reads back blocks that were overwritten.
            say("norandommap".into());
            format!(":{}", 1 + rng.up_to(8))
        }
        0 if !verify && !trims && !random => {
            format!(
                ":{}{}",
                rng.of(&["", "-"]),
                rng.of(&[0, 512, least, least * 2, least * 3, whole / least / 2 * least])
            )
        }
        _ => String::new(),
    };
    say(format!("rw={rw}{step}"));
    if rw.ends_with("rw") && rng.one_in(2) {
        say(format!(
            "{}={}",
            rng.of(&["rwmixread", "rwmixwrite"]),
            rng.of(&[0, 10, 33, 50, 90, 100])
        ));
    }
    if writes && rng.one_in(4) {
        say(format!("{}={}", rng.of(&["fsync", "fdatasync"]), 1 + rng.up_to(9)));
    }
    if writes && rng.one_in(6) {
        say(rng.of(&["end_fsync=1", "fsync_on_close=1"]).into());
    }
    if verify {
        say(format!("verify={}", rng.of(&["crc32c", "md5", "xxhash", "sha256", "null"])));
        match rng.up_to(7) {
            0 => say(format!("verify_backlog={}", 1 + rng.up_to(12))),
            1 => {
                say(format!("verify_backlog={}", 1 + rng.up_to(12)));
                say(format!("verify_backlog_batch={}", 1 + rng.up_to(6)));
            }
            2 => say("do_verify=0".into()),
            _ => {}
        }
    }
    if rng.one_in(6) {
        say(format!("randseed={}", 1 + rng.up_to(1_000_000)));
    }
    if verify && random && rng.one_in(3) {
        say(rng.of(&["norandommap", "random_generator=tausworthe64"]).into());
    }
    if rng.one_in(12) {
        say(rng
            .of(&[
                "thread",
                "sync=1",
                "serialize_overlap=1",
                "thinktime=10",
                "iodepth_batch=4",
                "group_reporting",
                "gtod_reduce=1",
            ])
            .into());
    }
    if threads > 1 {
        say(format!("numjobs={threads}"));
    }
    Section { name, options, threads, trims, own_places }
}

/// The result of a run: whether it succeeded, the I/Os of each thread, the sizes of the files, and
/// the output.
#[derive(Default)]
struct Done {
    ok: bool,
    lists: Vec<Vec<String>>,
    files: BTreeMap<String, u64>,
    said: String,
}

/// The lines of a list that are I/Os, without their times.
fn ios(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let io = |line: &str| {
        let line = line.split_once(' ')?.1;
        let mut words = line.rsplit(' ');
        let (len, offset) = (words.next()?, words.next()?);
        (len.parse::<u64>().is_ok() && offset.parse::<u64>().is_ok()).then(|| line.to_owned())
    };
    text.lines().filter_map(io).collect()
}

/// The I/Os of each thread, from fio's output with `--debug=io`: the threads of one job would all
/// write the same list.
fn queued(said: &str) -> Vec<Vec<String>> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mut threads: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in said.lines() {
        let Some((process, io)) =
            line.strip_prefix("io ").and_then(|line| line.split_once(" queue: io_u "))
        else {
            continue;
        };
        let field = |name: &str| io.split_once(name).and_then(|(_, rest)| rest.split(',').next());
        let (Some(offset), Some(len), Some(op), Some((_, file))) = (
            field("off=").and_then(number),
            field("len=").and_then(number),
            field("ddir="),
            io.split_once("file="),
        ) else {
            continue;
        };
        let op = ["read", "write", "trim", "sync", "datasync"]
            .get(op.parse::<usize>().unwrap_or(9))
            .copied()
            .unwrap_or(op);
        threads
            .entry(process.trim().parse().unwrap_or(0))
            .or_default()
            .push(format!("{file} {op} {offset} {len}"));
    }
    threads.into_values().collect()
}

fn files(place: &Path, within: &str, found: &mut BTreeMap<String, u64>) {
    for entry in std::fs::read_dir(place.join(within)).into_iter().flatten().flatten() {
        let name = format!("{within}{}", entry.file_name().to_string_lossy());
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => files(place, &format!("{name}/"), found),
            Ok(meta)
                if !name.starts_with("list-") && name != "job" && !name.starts_with("local-") =>
            {
                _ = found.insert(name, meta.len())
            }
            _ => {}
        }
    }
}

/// Runs the job; `reap`: in Reap, else in fio.
fn run(sections: &[Section], reap: Option<&Path>, place: &Path) -> Done {
    std::fs::create_dir_all(place.join("d")).expect("a directory for the job");
    let trims = sections.iter().any(|section| section.trims);
    let parallel = sections.iter().any(|section| section.threads > 1);
    let mut text = String::new();
    for (index, section) in sections.iter().enumerate() {
        text += &format!("[{}]\n{}\n", section.name, section.options.join("\n"));
        // In fio the threads of one job would overwrite each other's list.
        if reap.is_some() || !parallel {
            text += &format!("write_iolog=list-{index}\n");
        }
        // fio cannot trim a regular file.
        text += if trims && reap.is_none() { "ioengine=null\n" } else { "" };
    }
    std::fs::write(place.join("job"), text).expect("a job file");
    let mut command = match reap {
        Some(reap) => {
            let mut command = Command::new(reap);
            command.args(["run", "job", "--output=/dev/null", "--completion=interrupt"]);
            command
        }
        None => {
            let mut command = Command::new("fio");
            command.args(["job", "--eta=never"]).args(parallel.then_some("--debug=io"));
            command
        }
    };
    let output =
        command.current_dir(place).stdin(Stdio::null()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let mut lists = match (reap, parallel) {
        (None, true) => queued(&said),
        _ => {
            let mut lists = Vec::new();
            for (index, section) in sections.iter().enumerate() {
                lists.push(ios(&place.join(format!("list-{index}"))));
                // As fio numbers them: the first, then the last, and down to the second.
                for thread in (1..section.threads).rev() {
                    lists.push(ios(&place.join(format!("list-{index}.{thread}"))));
                }
            }
            lists.retain(|list| !list.is_empty());
            lists
        }
    };
    if sections.iter().any(|section| section.own_places) {
        lists.iter_mut().for_each(|list| without_places(list));
    }
    let mut found = BTreeMap::new();
    if !trims {
        files(place, "", &mut found);
    }
    Done { ok: output.status.success(), lists, files: found, said }
}

/// Removes the offsets from a list and sorts it: what is left is how many I/Os of which length each
/// file has.
fn without_places(list: &mut [String]) {
    for line in list.iter_mut() {
        let mut words: Vec<&str> = line.split(' ').collect();
        words.remove(words.len() - 2);
        *line = words.join(" ");
    }
    list.sort();
}

/// The first difference; `None`: there is no difference.
fn difference(fio: &Done, reap: &Done) -> Option<String> {
    if !fio.ok && fio.said.contains(FIO_IS_WRONG) {
        return None;
    }
    if fio.ok != reap.ok {
        let last = |done: &Done| {
            done.said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned()
        };
        return match fio.ok {
            true if MAY_REFUSE.iter().any(|words| reap.said.contains(words)) => None,
            true => Some(format!("fio runs the job, Reap does not: {}", last(reap))),
            false => Some(format!(
                "Reap runs the job, fio does not: {}",
                fio.said.lines().find(|line| line.contains("fio: ")).unwrap_or(&last(fio))
            )),
        };
    }
    if !fio.ok {
        return None;
    }
    for thread in 0..fio.lists.len().max(reap.lists.len()) {
        let none = Vec::new();
        let (theirs, ours) =
            (fio.lists.get(thread).unwrap_or(&none), reap.lists.get(thread).unwrap_or(&none));
        if theirs != ours {
            let at = theirs
                .iter()
                .zip(ours)
                .position(|(a, b)| a != b)
                .unwrap_or(theirs.len().min(ours.len()));
            let show =
                |list: &Vec<String>| list.get(at).map_or("end".into(), |io| format!("'{io}'"));
            let (there, here) = (theirs.len(), ours.len());
            return Some(format!(
                "list {thread}, I/O {at}: fio {} of {there}, Reap {} of {here}",
                show(theirs),
                show(ours)
            ));
        }
    }
    (fio.files != reap.files).then(|| format!("files: fio {:?}, Reap {:?}", fio.files, reap.files))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let Some(reap) = argument(0).and_then(|path| std::fs::canonicalize(path).ok()) else {
        eprintln!("usage: fio_peer REAP [JOBS [SEED]]");
        return ExitCode::FAILURE;
    };
    let (jobs, seed) =
        (argument(1).unwrap_or("300"), argument(2).and_then(|seed| seed.parse().ok()).unwrap_or(1));
    let numbers: Vec<u64> = match jobs.strip_suffix("..") {
        Some(one) => vec![one.parse().expect("the number of a job")],
        None => (0..jobs.parse().expect("how many jobs")).collect(),
    };
    let place: PathBuf = std::env::temp_dir().join(format!("reap-fio-peer-{}", std::process::id()));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let (refused, refused_here) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let one = |number: u64| {
        let sections = sections(seed, number);
        let (theirs, ours) =
            (place.join(format!("{number}-fio")), place.join(format!("{number}-reap")));
        let (fio, reap) = (run(&sections, None, &theirs), run(&sections, Some(&reap), &ours));
        if !fio.ok && !reap.ok {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        if fio.ok && !reap.ok {
            refused_here.fetch_add(1, Ordering::Relaxed);
        }
        let why = difference(&fio, &reap);
        if why.is_some() || numbers.len() == 1 {
            let job = std::fs::read_to_string(ours.join("job")).unwrap_or_default();
            let mut text = format!(
                "{number}: {}\n    {}",
                why.as_deref().unwrap_or("agreed"),
                job.trim_end().replace('\n', "\n    ")
            );
            if numbers.len() == 1 {
                text += &format!(
                    "\nfio: {}\n{:?}\n{:#?}\nReap: {}\n{:?}\n{:#?}",
                    fio.said, fio.files, fio.lists, reap.said, reap.files, reap.lists
                );
            }
            println!("{text}");
        }
        if why.is_some() {
            failed.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        }
        let _ = (std::fs::remove_dir_all(&theirs), std::fs::remove_dir_all(&ours));
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one(*number);
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(&place);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} of {} jobs agree; {} are refused by both, {} by Reap alone (seed {seed})",
        numbers.len() - failed.len(),
        numbers.len(),
        refused.into_inner(),
        refused_here.into_inner()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
