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
