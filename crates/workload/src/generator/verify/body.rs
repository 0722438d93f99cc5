//! What stands behind the headers: data that follows from a seed, or a pattern.

/// fio's multiplier, 2^64 times the square of the golden ratio's inverse.
const STEP: u64 = 0x61c8_8646_80b5_83eb;
/// What the seed is multiplied with for each of the interleaved sequences: fio's default number of them.
const LANES: [u64; 4] = [1, 2, 3, 5];

/// Fills `buf` with the data of `seed`: four interleaved sequences of words, each word the one before times a constant.
pub(super) fn fill_seeded(buf: &mut [u8], seed: u64) {
    let mut lanes = LANES.map(|lane| seed.wrapping_mul(lane));
    let (chunks, rest) = buf.as_chunks_mut::<32>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks_mut::<8>();
        for (word, lane) in words.iter_mut().zip(&mut lanes) {
            *word = lane.to_le_bytes();
            *lane = lane.wrapping_mul(STEP);
        }
    }
    let mut word = lanes[0];
    for part in rest.chunks_mut(8) {
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        word = word.wrapping_mul(STEP);
    }
}

/// Fills `buf` with `pattern`, over and over.
pub(super) fn fill_pattern(buf: &mut [u8], pattern: &[u8]) {
    for part in buf.chunks_mut(pattern.len().max(1)) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}

/// The first byte of `data`, which begins `at` bytes after the pattern did, that is not the pattern's: its index and its value,
/// and the pattern's.
pub(super) fn pattern_differs(data: &[u8], at: usize, pattern: &[u8]) -> Option<(usize, u8, u8)> {
    let wanted = pattern.iter().cycle().skip(at % pattern.len().max(1));
    data.iter()
        .zip(wanted)
        .enumerate()
        .find(|(_, (found, wanted))| found != wanted)
        .map(|(index, (found, wanted))| (index, *found, *wanted))
}

/// The same for what `data` should be, where all but a few bytes are: what is wholly different was not written from this seed.
pub(super) fn seeded_differs(data: &[u8], wanted: &[u8]) -> Option<(usize, u8, u8)> {
    let mut different = data.iter().zip(wanted).enumerate().filter(|(_, (found, wanted))| found != wanted);
    let (index, (found, wanted)) = different.next()?;
    (different.count() < data.len() / 4).then_some((index, *found, *wanted))
}

#[cfg(test)]
mod tests;
