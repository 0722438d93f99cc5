//! What stands in the buffers of a job, and so what its writes write where nothing is verified.

use workload::{Contents, FillPattern, Job};

/// Bytes of the longest list of ranges: 256 of 16 bytes (NVM 3.3.3).
const LIST: u64 = 4096;

/// The longest buffer that `job` needs, in bytes: commands that move no data need none, but the
/// list of a trim's ranges stands in one.
pub fn longest(job: &Job) -> u64 {
    let list = if job.ranges_of_each() > 1 { LIST } else { 0 };
    job.block.read.max.max(job.block.write.max).max(list)
}

/// Fills a buffer with the data of a job's writes, and so brings its pages into memory. `seed` tells buffers apart.
pub fn fill(buf: &mut [u8], seed: u64, contents: &Contents) {
    match contents {
        Contents::Random => scribble(buf, seed),
        Contents::Zeroes => buf.fill(0),
        Contents::Pattern(pattern) => repeat(buf, Some(pattern)),
        Contents::Compressible { percent, chunk, pattern } => {
            scribble(buf, seed);
            for part in buf.chunks_mut((*chunk).max(1) as usize) {
                let random = part.len() * (100 - *percent.min(&100) as usize) / 100;
                repeat(&mut part[random..], pattern.as_ref());
            }
        }
    }
}

/// The bytes of a pattern, over and over; of none, zeroes.
fn repeat(buf: &mut [u8], pattern: Option<&FillPattern>) {
    let bytes = pattern.map_or(&[0][..], |pattern| &pattern.bytes);
    buf.iter_mut().zip(bytes.iter().cycle()).for_each(|(place, byte)| *place = *byte);
}

/// Makes each block of `block` bytes what the first is.
pub fn repeat_first(data: &mut [u8], block: usize) {
    let Some((first, rest)) = data.split_at_mut_checked(block) else { return };
    rest.chunks_mut(block).for_each(|part| part.copy_from_slice(&first[..part.len()]));
}

/// Fills a buffer with something that does not compress, and so brings its pages into memory.
pub fn scribble(buf: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buf.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(contents: Contents) -> Vec<u8> {
        let mut buf = vec![0x55; 64];
        fill(&mut buf, 1, &contents);
        buf
    }

    #[test]
    fn the_first_block_is_repeated_to_the_end() {
        let mut data = [1, 2, 3, 4, 5, 6, 7];
        repeat_first(&mut data, 2);
        assert_eq!(data, [1, 2, 1, 2, 1, 2, 1]);
        repeat_first(&mut data, 8);
        assert_eq!(data, [1, 2, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn buffers_hold_what_the_job_says() {
        let pattern = FillPattern { bytes: vec![1, 2, 3], offsets: Vec::new() };
        assert_eq!(filled(Contents::Zeroes), [0; 64]);
        assert_eq!(filled(Contents::Pattern(pattern.clone()))[..7], [1, 2, 3, 1, 2, 3, 1]);
        let random = filled(Contents::Random);
        assert!(random.iter().filter(|byte| **byte == 0).count() < 8);
        let half = filled(Contents::Compressible { percent: 50, chunk: 16, pattern: Some(pattern) });
        for (part, whole) in half.chunks(16).zip(random.chunks(16)) {
            assert_eq!((&part[..8], &part[8..12]), (&whole[..8], &[1, 2, 3, 1][..]));
        }
    }
}
