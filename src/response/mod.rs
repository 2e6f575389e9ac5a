//! What an engine tells of a finished request: `usage`, read out of its answer as the bytes come.
//!
//! An answer is one JSON object or a stream of server-sent events with one object each. Both are walked byte by byte in
//! a fixed state, and nothing is kept, copied or allocated: `usage.rs` finds the JSON in the stream, `object.rs` finds
//! the numbers in the JSON.
//!
//! The text in an answer is the model's, and so the client's who prompted it. It must not be able to steer routing, so
//! only the member `usage` of the outermost object counts: strings are skipped as strings, and a tool call's argument,
//! a log probability or anything else in a nested object counts for nothing. Whatever is no JSON is skipped up to the
//! next event.

mod object;
mod usage;

#[cfg(test)]
mod tests;

pub use object::Usage;
pub use usage::UsageReader;

/// Where the first byte is that is one of `wanted`.
///
/// Looks at 8 bytes at a time, for long strings are what answers consist of.
#[inline]
fn find(bytes: &[u8], wanted: [u8; 2]) -> Option<usize> {
    let is_wanted = |byte: &u8| wanted.contains(byte);
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = wanted.map(|byte| zero_bytes(word ^ repeat(byte)));
        let hits = hits[0] | hits[1];
        if hits != 0 {
            return Some(index * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    tail.iter().position(is_wanted).map(|at| words.len() * 8 + at)
}

/// The top bit of each byte of `word` that is 0. A byte above such a one may be set without cause, so only the lowest
/// hit counts.
///
/// Source: Sean Eron Anderson, Bit Twiddling Hacks, "Determine if a word has a zero byte".
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(0x01)) & !word & repeat(0x80)
}

const fn repeat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}
