use proptest::prelude::*;

use super::*;

/// The entries that these pieces make.
fn taken<const BYTES: usize>(pieces: &[&[u8]]) -> (Vec<[u8; BYTES]>, usize) {
    let (mut entries, mut out) = (Entries::<BYTES>::default(), Vec::new());
    for piece in pieces {
        entries.take(piece, |entry| out.push(entry));
    }
    (out, entries.have())
}

/// Cuts `bytes` where `cuts` say, empty pieces among them.
fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces: Vec<&[u8]> = cuts
        .iter()
        .map(|cut| {
            let (piece, others) = rest.split_at((*cut).min(rest.len()));
            rest = others;
            piece
        })
        .collect();
    pieces.push(rest);
    pieces
}

proptest! {
    #[test]
    fn any_cutting_gives_the_same_entries(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
        cuts in proptest::collection::vec(0..40_usize, 0..60),
    ) {
        let pieces = cut(&bytes, &cuts);
        let (completions, left) = taken::<16>(&pieces);
        prop_assert_eq!(completions.as_flattened(), &bytes[..bytes.len() / 16 * 16]);
        prop_assert_eq!(left, bytes.len() % 16);
        let (commands, left) = taken::<64>(&pieces);
        prop_assert_eq!(commands.as_flattened(), &bytes[..bytes.len() / 64 * 64]);
        prop_assert_eq!(left, bytes.len() % 64);
    }
}
