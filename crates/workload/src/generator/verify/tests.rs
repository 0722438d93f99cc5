use super::*;
use crate::job::{BlockSizes, PerOp, Verify};
use proptest::prelude::*;
use units::Op;

const WRITE: Extra = Extra {
    intended: Nanos::ZERO,
    sequence: 65_541,
    check: false,
    seed: 0x1234_5678_9abc_def1,
    written: Nanos(77_000_000_005),
    data_sync: false,
};

fn io(offset: u64, len: usize) -> Io {
    Io { slot: 0, op: Op::Read, target: 3, offset, len: len as u32 }
}

fn layout(interval: u64, verify: Verify) -> Layout {
    let verify = Some(Verify { interval: Some(interval), ..verify });
    let job = Job { verify, block: PerOp::all(BlockSizes::fixed(interval)), ..Job::default() };
    Layout::new(&job).unwrap().unwrap()
}

fn of_kind(kind: VerifyKind) -> Verify {
    let pattern = FillPattern { bytes: vec![7, 0, 0, 0, 0, 0, 0, 0, 0], offsets: vec![1] };
    let with = matches!(kind, VerifyKind::Pattern | VerifyKind::PatternHeader);
    Verify { kind, pattern: with.then_some(pattern), ..Verify::default() }
}

fn kinds() -> impl Strategy<Value = VerifyKind> {
    prop::sample::select(&VerifyKind::ALL[..7]).prop_map(|(_, kind)| kind)
}

fn filled(layout: &Layout, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    layout.fill(&io(offset, len), WRITE, 3, &mut data);
    data
}

fn faults(layout: &Layout, offset: u64, expected: Expected, data: &[u8]) -> Vec<BadBlock> {
    let mut bad = Vec::new();
    layout.check(&io(offset, data.len()), expected, data, |block| bad.push(block));
    bad
}

proptest! {
    #[test]
    fn flipped_bits_are_located(
        kind in kinds(), blocks in 1usize..5, moved: bool, bit in any::<prop::sample::Index>(),
    ) {
        let verify = Verify { offset: if moved { 128 } else { 0 }, ..of_kind(kind) };
        let layout = layout(512, verify);
        let mut data = filled(&layout, 8192, blocks * 512);
        prop_assert!(faults(&layout, 8192, Expected::default(), &data).is_empty());
        let bit = bit.index(data.len() * 8);
        data[bit / 8] ^= 1 << (bit % 8);
        let found = faults(&layout, 8192, Expected::default(), &data);
        let place = bit / 8 % 512;
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(found[0].offset, 8192 + (bit / 8 / 512 * 512) as u64);
        prop_assert_eq!((found[0].target, found[0].len), (3, 512));
        if let Some((_, first)) = found[0].why.split_once(": byte ") {
            prop_assert!(first.starts_with(&format!("{place} is ")), "{first}");
        }
    }

    #[test]
    fn data_of_any_kind_never_panics(kind in kinds(), data in proptest::collection::vec(any::<u8>(), 0..1200), offset: u64) {
        faults(&layout(512, of_kind(kind)), offset >> 1 & !511, Expected::default(), &data);
    }

    #[test]
    fn each_interval_stands_for_itself(start in 0usize..8, len in 1usize..8) {
        // Written as one, read in other pieces.
        let layout = layout(512, Verify::default());
        let data = filled(&layout, 0, 16 * 512);
        let part = &data[start * 512..(start + len) * 512];
        prop_assert!(faults(&layout, start as u64 * 512, Expected::default(), part).is_empty());
    }
}

#[test]
fn each_fault_has_its_name() {
    let layout = |interval| layout(interval, Verify::default());
    let data = filled(&layout(4096), 4096, 4096);
    let open = Expected::default();
    let why = |offset, expected, data: &[u8]| {
        faults(&layout(4096), offset, expected, data)[0].why.clone()
    };
    let short = faults(&layout(512), 4096, open, &data[..512])[0].why.clone();
    let since = Nanos(77_000_000_006);
    let mut damaged = data.clone();
    damaged[20] ^= 1;
    let header = why(4096, open, &damaged);
    damaged[20] ^= 1;
    damaged[44] ^= 1;
    for (found, wanted) in [
        (why(4096, open, &[0; 4096]), "no verify header (bad magic 0x0000, wanted 0xacca)"),
        (why(8192, open, &data), "belongs to offset 4096"),
        (short, "has 4096 bytes"),
        (
            why(4096, Expected { written: Some((since, Nanos::MAX)), ..open }, &data),
            "stale data: written at 77.000000005 s",
        ),
        (
            why(4096, Expected { written: Some((Nanos(0), Nanos(5))), ..open }, &data),
            "stale data: written at 77.000000005 s",
        ),
        (why(4096, Expected { thread: Some(4), ..open }, &data), "by thread 3, wanted thread 4"),
        (why(4096, Expected { number: Some(6), ..open }, &data), "of write 5, wanted write 6"),
        (
            why(4096, Expected { seed: Some(9), ..open }, &data),
            "seed is 0x123456789abcdef1, wanted 0x0000000000000009",
        ),
        (why(4096, open, &data[..39]), "shorter than a verified block"),
        (header, "header's own checksum is wrong"),
        (why(4096, open, &damaged), ": byte 44 is "),
    ] {
        assert!(found.contains(wanted), "{found}");
    }
    let other = Layout { kind: VerifyKind::Md5, ..layout(4096) };
    let found = &faults(&other, 4096, open, &data)[0];
    assert!(
        found
            .to_string()
            .ends_with("the block was written with verify=crc32c, and is checked with verify=md5"),
        "{found}"
    );
    let all = Expected {
        seed: Some(WRITE.seed),
        written: Some((WRITE.written, WRITE.written)),
        thread: Some(3),
        number: Some(5),
    };
    assert!(faults(&layout(4096), 4096, all, &data).is_empty());
}

#[test]
fn verify_interval_matches_fio() {
    let of = |write: (u64, u64), read: u64, reads: bool, given: Option<u64>| {
        let block = PerOp {
            read: BlockSizes::fixed(read),
            ..PerOp::all(BlockSizes { min: write.0, max: write.1, split: Vec::new() })
        };
        let direction =
            if reads { crate::job::Direction::Mixed } else { crate::job::Direction::Write };
        let pattern = crate::job::Pattern { direction, random: false, step: 0 };
        interval(&Job { block, pattern, ..Job::default() }, given)
    };
    assert_eq!(of((4096, 4096), 4096, false, None), 4096);
    assert_eq!(of((4096, 4096), 4096, false, Some(512)), 512);
    assert_eq!(of((4096, 4096), 4096, false, Some(8192)), 4096);
    assert_eq!(of((4096, 16384), 4096, false, None), 4096);
    // No divisor of what is written.
    assert_eq!(of((4096, 4096), 4096, false, Some(3000)), 4096);
    assert_eq!(of((4096, 6144), 4096, false, None), 2048);
    assert_eq!(of((8192, 8192), 4096, true, Some(8192)), 4096);
}

#[test]
fn seeded_data_match_fio_3_33() {
    // The bytes from 48 on of the first block of a file that fio wrote, whose header says this
    // seed.
    let wanted: [u8; 32] = [
        0x3c, 0x15, 0x45, 0x9c, 0xb6, 0xc6, 0xe0, 0x0a, 0x64, 0x23, 0x73, 0x04, 0xdb, 0xf5, 0xcb,
        0xbc, 0x5c, 0xbb, 0xe6, 0x9a, 0x27, 0xb3, 0x0c, 0x02, 0xb8, 0x76, 0xcd, 0x35, 0x4f, 0x66,
        0x19, 0x04,
    ];
    let mut data = vec![0; 4096];
    fill_seeded(&mut data, 0x00a4_cc01_c509_543c);
    assert_eq!(data[48..80], wanted);
}

proptest! {
    #[test]
    fn differences_are_located(len in 1usize..200, at in any::<prop::sample::Index>(), seed: u64, from in 0usize..50) {
        let mut wanted = vec![0; len];
        fill_seeded(&mut wanted, seed);
        prop_assert_eq!(seeded_differs(&wanted, &wanted), None);
        let at = at.index(len);
        let mut data = wanted.clone();
        data[at] ^= 0x20;
        if len >= 4 {
            prop_assert_eq!(seeded_differs(&data, &wanted), Some((at, data[at], wanted[at])));
        }
        let mut whole = vec![0; from + len];
        fill_pattern(&mut whole, b"pattern");
        prop_assert_eq!(pattern_differs(&whole[from..], from, b"pattern"), None);
        whole[from + at] ^= 0x20;
        let differs = pattern_differs(&whole[from..], from, b"pattern").map(|(index, ..)| index);
        prop_assert_eq!(differs, Some(at));
    }
}

/// From blocks of 512 bytes that fio 3.33 wrote with verify_pattern=0x5a.
const OF_FIO: [(VerifyKind, &str); 4] = [
    (VerifyKind::Crc32c, "5aef5f04"),
    (VerifyKind::XxHash, "44c80cc1"),
    (VerifyKind::Md5, "f2f02d7d685e8888c8afca247ff9a782"),
    (
        VerifyKind::Sha256,
        "fbefdea974620f285a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a8000000000000000000000000000000000000000000000000000000000000000c00c000000000000",
    ),
];

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn digests_are_fios() {
    for (kind, wanted) in OF_FIO {
        let data = vec![0x5a; 512 - HEADER - len_of(kind)];
        assert_eq!(text(&digest(kind, &data)[..len_of(kind)]), wanted, "{}", kind.name());
        assert_eq!(len_of(kind), wanted.len() / 2);
    }
}

#[test]
fn digests_are_shown_shortly() {
    let shown = |kind| super::shown(&digest(kind, &[0x5a; 408])[..len_of(kind)]);
    assert!(shown(VerifyKind::Crc32c).starts_with("0x"));
    assert_eq!(shown(VerifyKind::Sha256), "fbefdea974620f285a5a5a5a5a5a5a5a");
}
