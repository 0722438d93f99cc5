//! Whole job files.

use super::*;

fn read(text: &str) -> Result<Parsed, ParseErrors> {
    parse(&[Input { name: "t.fio", text: text.as_bytes() }], &Nothing)
}

#[test]
fn globals_hold_for_what_follows() {
    let parsed = read("[global]\nbs=8k\n[a]\n[global]\nbs=16k\niodepth=4\n[b]\nbs=,4k\n").unwrap();
    let blocks: Vec<(u64, u64)> = parsed.jobs.iter().map(|job| (job.block.read.min, job.block.write.min)).collect();
    assert_eq!(blocks, [(8192, 8192), (16384, 4096)]);
}
