use super::*;
use proptest::prelude::*;

#[test]
fn seeded_data_match_fio_3_33() {
    // The bytes from 48 on of the first block of a file that fio wrote, whose header says this seed.
    let wanted: [u8; 32] = [
        0x3c, 0x15, 0x45, 0x9c, 0xb6, 0xc6, 0xe0, 0x0a, 0x64, 0x23, 0x73, 0x04, 0xdb, 0xf5, 0xcb, 0xbc, 0x5c, 0xbb, 0xe6, 0x9a, 0x27, 0xb3,
        0x0c, 0x02, 0xb8, 0x76, 0xcd, 0x35, 0x4f, 0x66, 0x19, 0x04,
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
