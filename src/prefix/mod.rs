//! Which part of a prompt may already be in a worker's KV cache: the prompt as a chain of hashes.
//!
//! - **block**: a fixed span of the fed prompt's bytes; where blocks begin and end does not depend on what they hold.
//! - **chain**: the blocks' hashes in order. Each hash covers its block and all before it, so two prompts share a
//!   block's hash only if they are equal up to the block's end (and have model and cache salt in common).
//! - **cut**: a place where prompts may part, with the hash of all before it: a block's end or a message's end.
//! - **match**: contiguous blocks from the start whose hashes are known for a worker.
//!
//! This module does not know requests or JSON: whoever reads a body feeds it through [`PromptSink`].

mod block_hash;
mod block_size;
mod skip;

pub use block_hash::{BlockHash, CUTS_MAX, Chain, Cut, seed};
pub use block_size::{BLOCKS_MAX, block_bytes, prefix_bytes};
pub use skip::{LINE_BEGIN_BYTES_MAX, SkipLines};

/// Takes a prompt in the order in which the engine's chat template sees it.
///
/// How a text is split over calls of [`text`](Self::text) means nothing: `text("ab")` equals `text("a"), text("b")`.
pub trait PromptSink {
    /// Some bytes of the prompt, JSON escapes already decoded. Mostly UTF-8, but nobody checked.
    fn text(&mut self, bytes: &[u8]);

    /// Frames what follows: `kind` says what it is (a role, a content part, ...), so that texts on both sides never
    /// run into each other.
    fn mark(&mut self, kind: u8);

    /// A message (or one prompt of several) is complete: a cut. Not called for a message that a truncated body cuts.
    fn end_of_message(&mut self);

    /// The message that has just ended is the one that tells this conversation from others: the root. Only the first
    /// call counts.
    fn end_of_root(&mut self);
}
