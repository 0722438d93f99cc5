//! Offsets, lengths and seeds of jobs that verify, against what fio 3.33 wrote: read from the
//! headers of a file of 64 KiB.

use super::*;

/// The writes of a job: offset, length, and seed of the data.
fn writes(job: &Job, id: ThreadId) -> Vec<(u64, u32, u64)> {
    let target = TargetSize { bytes: 64 << 10, block: 512, size_at_setup: None };
    let verify = Some(Verify { after_write: false, interval: Some(512), ..Verify::default() });
    let mut generator = Generator::new(&Job { verify, ..job.clone() }, id, &[target]).unwrap();
    let mut log = Vec::new();
    Device::new().run(&mut generator, |next, _| {
        if let Next::Issue(io) = next
            && io.op == Op::Write
        {
            log.push(io);
        }
    });
    // Once more, for the data: the device keeps only the last write to a block.
    let mut generator = Generator::new(
        &Job { verify: Some(Verify::default()), iodepth: 1, ..job.clone() },
        id,
        &[target],
    )
    .unwrap();
    let mut seeds = Vec::new();
    let mut data = vec![0; 64 << 10];
    while seeds.len() < log.len() {
        match generator.next(Nanos(1)) {
            Next::Issue(io) => {
                if io.op == Op::Write {
                    generator.fill(&io, &mut data[..io.len as usize]);
                    seeds.push(u64::from_le_bytes(data[8..16].try_into().unwrap()));
                }
                generator.committed(Nanos(1));
                generator.completed(io.slot, Nanos(1), Ok(()), &data[..io.len as usize]);
            }
            Next::Done => break,
            _ => {}
        }
    }
    log.iter().zip(seeds).map(|(io, seed)| (io.offset, io.len, seed)).collect()
}

fn random(direction: Direction) -> Job {
    Job { pattern: pattern(direction, true), ..Job::default() }
}

fn in_kib(writes: &[(u64, u32, u64)]) -> Vec<u64> {
    writes.iter().map(|(offset, ..)| offset / 1024).collect()
}

fn seeds(writes: &[(u64, u32, u64)]) -> Vec<u64> {
    writes.iter().map(|(.., seed)| *seed).collect()
}

const SEEDS: [u64; 16] = [
    0x00a4_cc01_c509_543c,
    0x88bb_0a8c_f6db_562e,
    0x4198_14f3_ac04_92d0,
    0x187a_339a_9394_9434,
    0x12c1_f281_37cb_2a66,
    0x3eda_88b9_2ae8_d090,
    0x645c_66c8_73c5_b945,
    0x37e1_d1eb_fcaa_81ed,
    0x0656_678f_e80f_3000,
    0x1a31_2d5c_dc61_0381,
    0x11b8_f5be_5c23_b434,
    0x314e_14d6_e3d6_8e80,
    0x850f_2d2d_3b05_5e4a,
    0x0019_6a0f_cff5_3fee,
    0x2455_e5e4_cdff_fd31,
    0x00c9_a9a6_9dc4_e625,
];

#[test]
fn random_writes_go_where_fios_do() {
    let found = writes(&random(Direction::Write), ThreadId::default());
    assert_eq!(in_kib(&found), [0, 44, 52, 28, 24, 56, 32, 20, 60, 4, 8, 40, 12, 16, 36, 48]);
    assert_eq!(seeds(&found), SEEDS);
    let wide = writes(
        &Job { random_generator: RandomGenerator::Tausworthe64, ..random(Direction::Write) },
        ThreadId::default(),
    );
    assert_eq!(in_kib(&wide), [60, 0, 4, 8, 32, 12, 28, 20, 52, 48, 36, 16, 56, 24, 40, 44]);
    assert_eq!(seeds(&wide)[..2], [0x131a_7e28_a61c_4b7a, 0xf4a8_c4db_4b34_2411]);
    let unmapped = Job { random_map: false, number_ios: Some(5), ..random(Direction::Write) };
    assert_eq!(in_kib(&writes(&unmapped, ThreadId::default())), [0, 44, 52, 28, 24]);
    let mut runs = Job { number_ios: Some(8), ..random(Direction::Write) };
    runs.pattern.step = 4;
    assert_eq!(in_kib(&writes(&runs, ThreadId::default())), [0, 4, 8, 12, 44, 48, 52, 56]);
}

#[test]
fn given_seeds_change_the_data() {
    let given = writes(&Job { seed: Some(42), ..random(Direction::Write) }, ThreadId::default());
    assert_eq!(in_kib(&given)[..4], [0, 44, 52, 28]);
    assert_eq!(seeds(&given)[..2], [0x01b0_f7d6_7d5f_db30, 0x5b9c_2f30_9b8f_9518]);
}

#[test]
fn mixed_jobs_write_when_fio_does() {
    let found = writes(&Job { read_percent: 30, ..random(Direction::Mixed) }, ThreadId::default());
    assert_eq!(in_kib(&found), [0, 52, 28, 32, 20, 60, 8, 40, 12, 48]);
    assert_eq!(seeds(&found), SEEDS[..10]);
    let ordered = writes(
        &Job { pattern: pattern(Direction::Mixed, false), ..Job::default() },
        ThreadId::default(),
    );
    assert_eq!(in_kib(&ordered), [0, 4, 8, 12, 16, 20]);
    assert_eq!(seeds(&ordered), SEEDS[..6]);
}

#[test]
fn lengths_are_fios() {
    let range = BlockSizes { min: 512, max: 8192, split: Vec::new() };
    let lengths = |job: &Job| {
        writes(job, ThreadId::default())
            .iter()
            .map(|(offset, len, _)| (*offset, *len))
            .collect::<Vec<_>>()
    };
    let ranged = Job { block: PerOp::all(range), ..random(Direction::Write) };
    let found = lengths(&ranged);
    assert_eq!(
        found[..6],
        [(3584, 1536), (48128, 5632), (54784, 6656), (30720, 3072), (26112, 4608), (61440, 1024)]
    );
    assert_eq!((found.len(), found[13], found[22]), (23, (15872, 7168), (12288, 3584)));
    let ordered = lengths(&Job { pattern: pattern(Direction::Write, false), ..ranged });
    assert_eq!((ordered.len(), ordered[3], ordered[17]), (18, (13824, 3072), (57344, 8192)));
    let split =
        BlockSizes { min: 1024, max: 8192, split: vec![(1024, 20), (4096, 50), (8192, 30)] };
    let found = lengths(&Job { block: PerOp::all(split), ..random(Direction::Write) });
    assert_eq!(
        found[..6],
        [(3072, 1024), (48128, 4096), (54272, 4096), (30720, 8192), (25600, 4096), (58368, 1024)]
    );
    assert_eq!((found.len(), found[24], found[25]), (26, (10240, 5120), (19456, 1024)));
}

#[test]
fn each_thread_has_its_own_order() {
    let half = Amount::Bytes(32 << 10);
    let job = Job { offset_increment: half, size: Some(half), ..random(Direction::Write) };
    let first = writes(&job, ThreadId::default());
    assert_eq!(in_kib(&first), [0, 20, 24, 12, 16, 28, 4, 8]);
    let second = writes(&job, ThreadId { number: 2, subjob: 1, entropy: 0 });
    assert_eq!(in_kib(&second), [40, 36, 48, 32, 44, 52, 56, 60]);
    assert_eq!(seeds(&second)[..2], [0x2c7e_ba26_694f_51b8, 0x2085_f438_7b23_a9a9]);
}
