//! What stands in the buffers of a job, and so what its writes write where nothing is verified.

/// Fills a buffer with something that does not compress, and so brings its pages into memory. `seed` tells buffers apart.
pub fn scribble(buf: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buf.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}
