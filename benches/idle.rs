//! What an open device costs while nobody uses it: `cargo bench -p reap-nvme --bench idle`.
//!
//! The CPU time of the whole process over ten seconds after a few I/Os: the embedded device's
//! thread included, or, on a file of the bench's own through io_uring, the kernel's threads. The
//! goal is at most 10 ms. Next to it how often its threads have woken up, the one that sleeps these
//! ten seconds left out. Over TCP the target is another process, and the goal is at most 10
//! wake-ups more than Keep Alive takes: one to send it, one to receive its response.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use reap::serve::{ServeEvent, open_tcp};
use reap::{Device, Mode, MultipathUri, OpenOptions};

/// Longer than the embedded device's thread goes on spinning after its last command.
const SETTLE: Duration = Duration::from_millis(500);

const IDLE: Duration = Duration::from_secs(10);

/// Goal, in milliseconds of CPU time.
const GOAL_MS: f64 = 10.0;

/// Of a connection, beyond those of Keep Alive, which is sent every 1.25 s by default.
const GOAL_WAKEUPS: u64 = 10;
const KEEP_ALIVES: u64 = 8;

/// Tells this program, run again, that it is the target.
const TARGET: &str = "REAP_IDLE_TARGET";

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(TARGET).is_some() {
        return target();
    }
    println!(
        "{:>10} {:>24} {:>12} {:>8} {:>9}",
        "device", "mode", "CPU in 10 s", "goal", "wake-ups"
    );
    idle(
        "embedded",
        "mem:1G?profile=optane",
        &[Mode::INTERRUPT, Mode::POLL, "irq-poll+submit-check".parse()?],
    )?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let file = tempfile::Builder::new().prefix("idle-bench-").tempfile_in(folder)?;
    file.as_file().set_len(64 << 20)?;
    let uri = format!("kernel:{}", file.path().display());
    idle("kernel", &uri, &[Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE, Mode::KERNEL_SQPOLL])?;
    let mut target = Command::new(std::env::current_exe()?)
        .env(TARGET, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut uri = String::new();
    BufReader::new(target.stdout.take().ok_or("no output")?).read_line(&mut uri)?;
    idle("tcp", uri.trim(), &[Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE])?;
    // It ends as its input does.
    drop(target.stdin.take());
    target.wait()?;
    Ok(())
}

/// Serves over TCP, and says where.
fn target() -> Result<(), Box<dyn Error>> {
    let uri = MultipathUri::repeated("mem:64M", 1)?;
    let mut server = open_tcp(&uri, &["127.0.0.1:0".parse()?], Vec::new(), None)?;
    server.run(std::io::stdin(), &mut |event| {
        if let ServeEvent::ListeningTcp { address, nqn, .. } = event {
            println!("tcp://{address}/{nqn}");
        }
    })?;
    Ok(())
}

/// Voluntary context switches of the other threads of this process.
fn wakeups() -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        if task.file_name().to_str() == Some(&std::process::id().to_string()) {
            continue;
        }
        let status = std::fs::read_to_string(task.path().join("status"))?;
        let switches =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += switches.ok_or("no count")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// In each of these modes.
fn idle(device: &str, uri: &str, modes: &[Mode]) -> Result<(), Box<dyn Error>> {
    let name = device;
    for &mode in modes {
        let device = Device::open_with(uri, &OpenOptions::new().mode(mode))?;
        let queue = device.local_queue()?;
        let ns = device.namespaces()[0];
        for lba in 0..100 {
            let (result, _) = queue.block_on(queue.write(&ns, lba, queue.buffer(4096)?))?;
            result?;
        }
        sleep(SETTLE);
        let (before, asleep) = (hw::process_cpu(), wakeups()?);
        sleep(IDLE);
        let spent = (hw::process_cpu() - before).0 as f64 / 1e6;
        let woken = wakeups()? - asleep;
        let verdict = |met| if met { "met" } else { "missed" };
        let beyond = if name == "tcp" {
            let beyond = woken.saturating_sub(2 * KEEP_ALIVES);
            format!(", {beyond} beyond Keep Alive: {}", verdict(beyond <= GOAL_WAKEUPS))
        } else {
            String::new()
        };
        let cpu = verdict(spent <= GOAL_MS);
        println!("{name:>10} {:>24} {spent:>9.2} ms {cpu:>8} {woken:>9}{beyond}", mode.to_string());
    }
    Ok(())
}
