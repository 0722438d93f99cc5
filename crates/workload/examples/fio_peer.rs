//! Whether jobs do the same I/O as fio does: `cargo run -p reap-workload --example fio_peer`
//!
//! Each job runs twice: in fio, with its engine `null` and `write_iolog`, and here, on a device that answers at once. Dice differ, so what
//! is compared are counts: I/Os and bytes of each operation, the reach of the offsets, how many blocks are touched, and the order of
//! operations where no dice are thrown. Fails where they differ; says so, and succeeds, where there is no fio.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use units::{Nanos, Op};
use workload::fio::{self, Input, Nothing};
use workload::{Generator, Next, Seat, Target, plan};

/// One I/O: operation, file, offset, length.
type Step = (Op, String, u64, u64);

/// Bytes of the file; fio's engine `null` has none, and takes the size.
const FILE: u64 = 1 << 20;

/// Jobs, and whether their order is fio's as well.
const JOBS: [(&str, bool); 16] = [
    ("rw=read", true),
    ("rw=write:4k bs=4k", true),
    ("rw=randread", false),
    ("rw=randread norandommap", false),
    ("rw=randread random_generator=lfsr", false),
    ("rw=trim bs=512,512,16k", true),
    ("rw=randtrim", false),
    ("rw=trimwrite", true),
    ("rw=randtrimwrite bs=8k", false),
    ("rw=read nrfiles=4", true),
    ("rw=randread bs=512 blockalign=4k", false),
    ("rw=write verify=crc32c verify_backlog=4", true),
    ("rw=write verify=crc32c verify_backlog=8 verify_backlog_batch=4 io_size=64k", true),
    ("rw=randwrite verify=md5 randrepeat=1", true),
    ("rw=write fsync=8", true),
    ("rw=read number_ios=17 thinktime=10 thinktime_blocks=4", true),
];

/// What is compared where the order is not.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    ios: [usize; 4],
    bytes: u64,
    /// The blocks that are touched; of dice that may throw one twice, only the end that none passes.
    blocks: Option<usize>,
    end: u64,
}

fn figures(steps: &[Step], once: bool) -> Figures {
    let count = |wanted: Op| steps.iter().filter(|(op, ..)| *op == wanted).count();
    let blocks: BTreeSet<(&str, u64)> = steps.iter().map(|(_, file, offset, _)| (file.as_str(), *offset)).collect();
    let end = steps.iter().map(|(_, _, offset, len)| offset + len).max().unwrap_or(0);
    Figures {
        ios: [Op::Read, Op::Write, Op::Deallocate, Op::Flush].map(count),
        bytes: steps.iter().map(|(.., len)| len).sum(),
        blocks: once.then_some(blocks.len()),
        end: if once { end } else { end.next_multiple_of(FILE) },
    }
}

/// fio's I/Os of the job.
fn theirs(options: &str, place: &Path) -> Option<Vec<Step>> {
    let list = place.join("list");
    let mut fio = Command::new("fio");
    fio.current_dir(place).args(["--name=x", "--ioengine=null", &format!("--size={FILE}"), &format!("--write_iolog={}", list.display())]);
    fio.args(options.split(' ').map(|option| format!("--{option}"))).stdout(Stdio::null());
    if !fio.status().ok()?.success() {
        return None;
    }
    let text = std::fs::read_to_string(&list).ok()?;
    let step = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, file, action, offset, len] = words.as_slice() else { return None };
        let op = match *action {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Deallocate,
            "sync" | "datasync" => Op::Flush,
            _ => return None,
        };
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset.parse().ok()?, len.parse().ok()?) };
        Some((op, (*file).to_owned(), offset, len))
    };
    Some(text.lines().filter_map(step).collect())
}

/// Reap's I/Os of the job.
fn ours(options: &str) -> Vec<Step> {
    let text = format!("[x]\nsize={FILE}\n{}\n", options.replace(' ', "\n"));
    let parsed = fio::parse(&[Input { name: options, text: text.as_bytes() }], &Nothing).expect("a job of this file");
    let (job, files) = (&parsed.jobs[0], u64::from(parsed.jobs[0].files));
    let seat: Seat = plan::plan(&parsed.jobs, &[0]).threads[0].seat(1);
    let mut generator = Generator::new(job, seat, &[Target { bytes: FILE, block: 512 }]).expect("it fits");
    let (mut now, mut steps, mut flying, mut memory) = (Nanos(1), Vec::new(), Vec::new(), vec![0; FILE as usize]);
    loop {
        match generator.next(now) {
            Next::Issue(io) => {
                let (part, len) = (FILE / files, u64::from(io.len));
                steps.push((io.op, format!("x.0.{}", io.offset / part), io.offset % part, len));
                if io.op == Op::Write {
                    generator.fill(&io, &mut memory[io.offset as usize..][..io.len as usize]);
                }
                generator.issued(&io, now);
                flying.push(io);
            }
            Next::Commit => generator.committed(now),
            Next::Reap { .. } | Next::Wait { .. } => {
                now += Nanos(1_000);
                for io in flying.drain(..) {
                    generator.completed(io, now, Ok(()), &memory[io.offset as usize..][..io.len as usize]);
                }
            }
            Next::Done => return steps,
        }
    }
}

fn main() -> ExitCode {
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: I/Os beside fio's: there is no fio here; install Debian's package fio");
        return ExitCode::SUCCESS;
    }
    let place = std::env::temp_dir().join(format!("reap-fio-peer-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory for fio's lists");
    let mut failed = 0;
    for (options, ordered) in JOBS {
        let _ = std::fs::remove_file(place.join("list"));
        let (Some(theirs), ours) = (theirs(options, &place), ours(options)) else {
            println!("FAILED: fio does not run: {options}");
            failed += 1;
            continue;
        };
        let repeats = ["norandommap", "blockalign"].iter().any(|word| options.contains(word));
        let (there, here) = (figures(&theirs, !repeats), figures(&ours, !repeats));
        let same = if ordered { theirs == ours } else { there == here };
        println!(
            "{}: {options}: {} I/Os{}",
            if same { "agreed" } else { "FAILED" },
            here.ios.iter().sum::<usize>(),
            if ordered { ", in order" } else { "" }
        );
        if !same {
            failed += 1;
            println!("    fio:  {there:?}\n    Reap: {here:?}");
            let at = theirs.iter().zip(&ours).position(|(a, b)| a != b).unwrap_or(theirs.len().min(ours.len()));
            println!("    from I/O {at}: fio {:?}, Reap {:?}", theirs.get(at), ours.get(at));
        }
    }
    let _ = std::fs::remove_dir_all(&place);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
