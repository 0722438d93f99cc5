//! What an open device costs while nobody uses it: `cargo bench -p reap-nvme --bench idle`.
//!
//! The CPU time of the whole process over ten seconds after a few I/Os: the embedded device's
//! thread included, or, on a file of the bench's own through io_uring, the kernel's threads. The
//! goal is at most 10 ms.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use reap::{Device, Mode, OpenOptions};

/// Longer than the embedded device's thread goes on spinning after its last command.
const SETTLE: Duration = Duration::from_millis(500);

const IDLE: Duration = Duration::from_secs(10);

/// Goal, in milliseconds of CPU time.
const GOAL_MS: f64 = 10.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>10} {:>24} {:>12} {:>8}", "device", "mode", "CPU in 10 s", "goal");
    idle(
        "embedded",
        "mem:1G?profile=optane",
        &[Mode::INTERRUPT, Mode::POLL, "irq-poll+submit-check".parse()?],
    )?;
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let file = tempfile::Builder::new().prefix("idle-bench-").tempfile_in(target)?;
    file.as_file().set_len(64 << 20)?;
    let uri = format!("kernel:{}", file.path().display());
    idle("kernel", &uri, &[Mode::INTERRUPT, Mode::POLL, Mode::ADAPTIVE, Mode::KERNEL_SQPOLL])
}

/// In each of these modes.
fn idle(device: &str, uri: &str, modes: &[Mode]) -> Result<(), Box<dyn std::error::Error>> {
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
        let before = hw::process_cpu();
        sleep(IDLE);
        let spent = (hw::process_cpu() - before).0 as f64 / 1e6;
        let verdict = if spent <= GOAL_MS { "met" } else { "missed" };
        println!("{name:>10} {:>24} {spent:>9.2} ms {verdict:>8}", mode.to_string());
    }
    Ok(())
}
