//! What an engine tells of a finished request: `usage`, read out of its answer as the bytes come.
//!
//! An answer is one JSON object, a stream of server-sent events with one object each, or lines with one object each. All
//! are walked byte by byte in a fixed state, and nothing is kept or allocated: `usage.rs` finds the JSON in the stream,
//! `object.rs` finds in the JSON the places that `member.rs` names, and `counts.rs` makes one [`Usage`] of what the
//! different APIs count.
//!
//! The text in an answer is the model's, and so the client's who prompted it. It must not be able to steer routing, so
//! only members of the outermost object and of the few named in `member.rs` count: strings are skipped as strings, and a
//! tool call's argument, a log probability or anything else in another object or in a list counts for nothing. Whatever is
//! no JSON is skipped up to the next event.
//!
//! A list of answers, as SGLang and llama.cpp give it for several prompts at once, tells nothing, and neither do its
//! streams: their numbers are of one prompt each, and what is known of the request is about all of them.

mod counts;
mod member;
mod object;
mod usage;
mod wanted;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

pub use counts::Usage;
pub use usage::UsageReader;
pub use wanted::AnswerReader;

use xxhash_rust::xxh3::xxh3_64;

/// The longest name of a response that is taken note of. vLLM's and SGLang's have 37 bytes, OpenAI's some 55.
const RESPONSE_NAME_BYTES_MAX: usize = 64;

/// Hash of a response's name, `None` if `name` is none. A request that names the response before it has the same hash.
///
/// Source: OpenAI API reference, "The response object"; vLLM `entrypoints/openai/responses/protocol.py` and SGLang's
/// `entrypoints/openai/protocol.py` make the same names.
#[must_use]
pub fn response_hash(name: &[u8]) -> Option<u64> {
    let is_name = name.starts_with(b"resp_") && name.len() <= RESPONSE_NAME_BYTES_MAX && !name.contains(&b'\\');
    is_name.then(|| xxh3_64(name))
}
