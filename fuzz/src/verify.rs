//! Blocks that prove what they are, read back from a device that changed some of them.

use units::{Nanos, Op};
use workload::fio::{Input, Nothing, parse};
use workload::{Generator, Next, TargetSize, ThreadId};

use crate::source::Source;

/// Bytes of the device.
const BYTES: usize = 16 << 10;

/// Bytes of a header, and where its checksum stands (`workload`'s `generator/verify.rs`).
const HEADER: usize = 40;

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let kinds = ["crc32c", "md5", "sha256", "xxhash", "pattern", "pattern_hdr"];
    let kind = kinds[source.below(kinds.len())];
    let interval = ["", "verify_interval=512\n", "verify_interval=1k\n", "verify_interval=300\n"]
        [source.below(4)];
    let offset =
        ["", "verify_offset=64\n", "verify_offset=100\n", "verify_offset=3\n"][source.below(4)];
    let pattern =
        ["", "verify_pattern=0xdeadbeef\n", "verify_pattern=%o\n", "verify_pattern=\"ab\"%o\n"]
            [source.below(4)];
    let block = ["512", "4k", "1k-4k", "2k"][source.below(4)];
    let job =
        |how: &str| format!("[a]\n{how}\nbs={block}\nverify={kind}\n{interval}{offset}{pattern}");
    let mut memory = vec![0; BYTES];
    let Some((written, _)) = play(&job("rw=write\ndo_verify=0"), &mut memory) else { return };
    assert!(written > 0);
    let before = memory.clone();
    damage(&mut memory, &mut source);
    // Random sizes of a reader are not the writer's, unless the interval says what to judge by.
    let Some((_, bad)) = play(&job("rw=read"), &mut memory) else { return };
    if memory == before && !(block.contains('-') && interval.is_empty()) && !pattern.contains("%o")
    {
        assert_eq!(bad, 0, "{}", job("rw=read"));
    }
}

/// Changes bytes, copies stretches, and puts right checksums where a header would stand.
fn damage(memory: &mut [u8], source: &mut Source) {
    for _ in 0..64 {
        if source.is_over() {
            return;
        }
        let (what, at) = (source.u8(), usize::from(source.u16()) % BYTES);
        match what % 4 {
            0 => memory[at] ^= source.u8(),
            1 => {
                let bytes = source.take(usize::from(what));
                let end = (at + bytes.len()).min(BYTES);
                memory[at..end].copy_from_slice(&bytes[..end - at]);
            }
            2 => memory.copy_within(..(usize::from(what) * 16).min(BYTES - at), at),
            _ => {
                let at = at / 4 * 4;
                if let Some(header) = memory.get_mut(at..at + HEADER) {
                    let sum = !crc32c::crc32c(&header[..36]);
                    header[36..].copy_from_slice(&sum.to_le_bytes());
                }
            }
        }
    }
}

/// Plays a job on the memory. How many I/Os there were, and how many blocks were bad; `None`: the
/// job does not fit.
fn play(text: &str, memory: &mut [u8]) -> Option<(u64, u64)> {
    let parsed = parse(&[Input { name: "verify", text: text.as_bytes() }], &Nothing).ok()?;
    let mut generator = Generator::new(
        &parsed.jobs[0],
        ThreadId::default(),
        &[TargetSize { bytes: BYTES as u64, block: 512, size_at_setup: None }],
    )
    .ok()?;
    let (mut now, mut ios, mut flying) = (Nanos(1_000), 0, Vec::new());
    loop {
        match generator.next(now) {
            Next::Issue(io) => {
                if io.op == Op::Write {
                    generator.fill(&io, &mut memory[io.offset as usize..][..io.len as usize]);
                }
                flying.push(io);
                ios += 1;
                assert!(ios < 10_000, "the job does not end");
            }
            Next::Commit => generator.committed(now),
            Next::Reap { .. } => {
                now = Nanos(now.0 + 1_000);
                for io in flying.drain(..) {
                    generator.completed(
                        io.slot,
                        now,
                        Ok(()),
                        &memory[io.offset as usize..][..io.len as usize],
                    );
                }
            }
            Next::Wait { until } => now = until,
            Next::Done => break,
        }
    }
    generator.bad_blocks().iter().for_each(|bad| assert!(!bad.to_string().is_empty()));
    Some((ios, generator.bad_count()))
}
