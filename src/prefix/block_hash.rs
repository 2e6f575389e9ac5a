//! The chain: a prompt's bytes become block hashes, cuts and the conversation's root.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::PromptSink;
use super::block_size::{BLOCK_BYTES_MAX, BLOCKS_MAX, block_bytes};

/// Hash of a block and all before it, model and cache salt included.
///
/// Not secret and not collision-proof against someone who looks for collisions: a false match costs a worker that is
/// less warm than believed, and never shows one client another's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u64);

/// A place where prompts may part: the end of a block or of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Hash of all before the cut. Where a message ends within a block it equals no block's hash.
    pub hash: BlockHash,
    /// Bytes of the fed prompt before the cut.
    pub end_bytes: u32,
}

/// Cuts kept for one prompt, the first ones in order of position. Conversations part early: 64 are at least the first
/// 24 KB of a prompt without messages.
pub const CUTS_MAX: usize = 64;

/// Where a chain starts: all hashes of a prompt depend on it, and so on the model and the salt.
///
/// `model` and `salt` are decoded (no JSON escapes). No salt differs from an empty one. The API is left out on purpose:
/// its framing marks already tell a chat from a completion.
#[must_use]
pub fn seed(model: &[u8], salt: Option<&[u8]>) -> u64 {
    let of_model = xxh3_64_with_seed(model, FORMAT_VERSION);
    salt.map_or(of_model, |salt| xxh3_64_with_seed(salt, of_model ^ SALT_MIX))
}

/// Hashes a prompt block by block as it is fed. One chain serves request after request: [`reset`](Self::reset) keeps
/// its buffers, and feeding allocates nothing.
#[derive(Clone, Debug)]
pub struct Chain {
    blocks: Vec<BlockHash>,
    cuts: Vec<Cut>,
    /// The bytes of the block that is not full yet.
    partial: Vec<u8>,
    /// Bytes of the block that `partial` will become; `None` once the chain is full.
    block_bytes: Option<usize>,
    /// Hash of the last full block, or the seed.
    last: BlockHash,
    /// Bytes of all full blocks.
    hashed_bytes: u32,
    prompt_bytes: u64,
    first_message_end: Option<BlockHash>,
    told_root: Option<BlockHash>,
}

impl Chain {
    /// An empty chain with all the room it will ever take (some 42 KB).
    #[must_use]
    pub fn new() -> Self {
        Self {
            blocks: Vec::with_capacity(BLOCKS_MAX),
            cuts: Vec::with_capacity(CUTS_MAX),
            partial: Vec::with_capacity(BLOCK_BYTES_MAX),
            block_bytes: block_bytes(0),
            last: BlockHash(0),
            hashed_bytes: 0,
            prompt_bytes: 0,
            first_message_end: None,
            told_root: None,
        }
    }

    /// Forgets the prompt; the next one starts at `seed` (see [`seed`]).
    pub fn reset(&mut self, seed: u64) {
        self.blocks.clear();
        self.cuts.clear();
        self.partial.clear();
        self.block_bytes = block_bytes(0);
        self.last = BlockHash(seed);
        self.hashed_bytes = 0;
        self.prompt_bytes = 0;
        self.first_message_end = None;
        self.told_root = None;
    }

    /// The full blocks' hashes from the start of the prompt, at most [`BLOCKS_MAX`].
    #[must_use]
    pub fn blocks(&self) -> &[BlockHash] {
        &self.blocks
    }

    /// The first [`CUTS_MAX`] cuts in order of position, at most one per position.
    ///
    /// They depend only on what lies before them: a conversation that goes on keeps all the cuts it had.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// The conversation's root: equal for all its turns, different for most others.
    ///
    /// The end of the message that was told to be the root; else of the first message; else the last cut; else (a
    /// prompt shorter than a block whose end was not seen) all that was fed.
    #[must_use]
    pub fn root(&self) -> BlockHash {
        self.told_root
            .or(self.first_message_end)
            .or_else(|| self.cuts.last().map(|cut| cut.hash))
            .unwrap_or_else(|| self.hash_here())
    }

    /// The end of the message that was told to be the root; `None` if it was not fed, or only in part.
    #[must_use]
    pub const fn told_root(&self) -> Option<BlockHash> {
        self.told_root
    }

    /// All bytes fed, framing included; they count even where the chain is full.
    #[must_use]
    pub const fn prompt_bytes(&self) -> u64 {
        self.prompt_bytes
    }

    fn push_block(&mut self, hash: u64, block_bytes: usize) {
        self.last = BlockHash(hash);
        self.hashed_bytes = self.hashed_bytes.saturating_add(block_bytes as u32);
        self.blocks.push(self.last);
        self.push_cut(self.last, self.hashed_bytes);
        self.block_bytes = super::block_bytes(self.blocks.len());
    }

    fn push_cut(&mut self, hash: BlockHash, end_bytes: u32) {
        // A message that ends with a block gives no second cut: nothing can part between the two.
        let is_known = self.cuts.last().is_some_and(|last| last.end_bytes == end_bytes);
        if !is_known && self.cuts.len() < CUTS_MAX {
            self.cuts.push(Cut { hash, end_bytes });
        }
    }

    /// Hash of all that was fed so far; the last full block's once the chain is full.
    fn hash_here(&self) -> BlockHash {
        if self.partial.is_empty() {
            return self.last;
        }
        BlockHash(xxh3_64_with_seed(&self.partial, self.last.0 ^ MESSAGE_END_MIX))
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl PromptSink for Chain {
    fn text(&mut self, mut bytes: &[u8]) {
        self.prompt_bytes = self.prompt_bytes.saturating_add(bytes.len() as u64);
        while let Some(block_bytes) = self.block_bytes {
            let missing_bytes = block_bytes.saturating_sub(self.partial.len());
            let Some((head, rest)) = bytes.split_at_checked(missing_bytes) else {
                self.partial.extend_from_slice(bytes);
                return;
            };
            let hash = if self.partial.is_empty() {
                xxh3_64_with_seed(head, self.last.0)
            } else {
                self.partial.extend_from_slice(head);
                let hash = xxh3_64_with_seed(&self.partial, self.last.0);
                self.partial.clear();
                hash
            };
            self.push_block(hash, block_bytes);
            bytes = rest;
        }
    }

    fn mark(&mut self, kind: u8) {
        // 0xFF is no byte of any UTF-8 text, so no text looks like a mark.
        self.text(&[0xff, kind]);
    }

    fn end_of_message(&mut self) {
        // A body of a million tiny messages must not hash a partial block for each: past the kept cuts there is nothing
        // to do. Past the last block the place cannot be told from others.
        let is_wanted = self.cuts.len() < CUTS_MAX || self.first_message_end.is_none();
        if !is_wanted || self.block_bytes.is_none() || self.prompt_bytes == 0 {
            return;
        }
        let hash = self.hash_here();
        self.first_message_end.get_or_insert(hash);
        self.push_cut(hash, self.hashed_bytes.saturating_add(self.partial.len() as u32));
    }

    fn end_of_root(&mut self) {
        if self.told_root.is_none() && self.block_bytes.is_some() {
            self.told_root = Some(self.hash_here());
        }
    }
}

/// Part of every seed: a change of framing, block table or hash raises it, so that hashes of two versions of the plugin
/// never mean the same entry of a shared index.
const FORMAT_VERSION: u64 = 2;

/// Tells a salt from a longer model name. Any constant will do; these two are the fractional parts of sqrt(2), sqrt(3).
const SALT_MIX: u64 = 0x6a09_e667_f3bc_c908;

/// Tells the end of a message within a block from a block that would hold the same bytes.
const MESSAGE_END_MIX: u64 = 0xbb67_ae85_84ca_a73b;

#[cfg(test)]
mod tests;
