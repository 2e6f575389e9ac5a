//! A prompt as the engine sees it: a number of tokens and the chained hashes of its full blocks; and the output text.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::config::TOKEN_BYTES;

/// Prompt text in token order. Sections are padded to whole tokens, so that one turn's output, sent back as a message of
/// the next turn, falls on the same token boundaries and is found in the cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptText(Vec<u8>);

impl PromptText {
    /// Appends one section: about `TOKEN_BYTES` bytes a token, the last one padded.
    pub(crate) fn push(&mut self, section: &[u8]) {
        self.0.extend_from_slice(section);
        self.0.resize(self.0.len().next_multiple_of(TOKEN_BYTES), 0);
    }

    /// Appends one token given by its id.
    pub(crate) fn push_token_id(&mut self, id: u32) {
        self.0.extend_from_slice(&id.to_le_bytes());
    }

    /// The tokens, a number for each: their bytes.
    pub(crate) fn token_ids(&self) -> impl Iterator<Item = u32> {
        self.0.chunks_exact(TOKEN_BYTES).map(|token| u32::from_le_bytes([token[0], token[1], token[2], token[3]]))
    }
}

/// A prompt, hashed. Made outside the engine's lock: it costs a pass over the bytes.
#[derive(Debug)]
pub(crate) struct Prompt {
    /// Length in tokens, at least 1.
    pub(crate) tokens: usize,
    /// Hash of each full block and all before it.
    pub(crate) hashes: Vec<u64>,
    /// Bytes after the last full block.
    tail: Vec<u8>,
    root: u64,
    block_bytes: usize,
    /// Seed of the output: the same prompt gets the same output from every worker.
    pub(crate) output_seed: u64,
}

impl Prompt {
    /// `model` and `salt` separate caches: equal text under another model or salt has other hashes.
    pub(crate) fn new(mut text: PromptText, block_size_tokens: usize, model: &str, salt: &str) -> Self {
        if text.0.is_empty() {
            text.push_token_id(0);
        }
        let root = xxh3_64_with_seed(salt.as_bytes(), xxh3_64(model.as_bytes()));
        let block_bytes = block_size_tokens * TOKEN_BYTES;
        let blocks = text.0.chunks_exact(block_bytes);
        let tail = blocks.remainder().to_vec();
        let chain = |parent: &mut u64, block: &[u8]| {
            *parent = xxh3_64_with_seed(block, *parent);
            Some(*parent)
        };
        let hashes: Vec<u64> = blocks.scan(root, chain).collect();
        let output_seed = xxh3_64_with_seed(&tail, hashes.last().copied().unwrap_or(root));
        Self { tokens: text.0.len() / TOKEN_BYTES, hashes, tail, root, block_bytes, output_seed }
    }

    /// Appends output token `index`; a block that it fills gets its hash.
    pub(crate) fn push_output(&mut self, index: usize) {
        self.tail.extend_from_slice(&word(self.output_seed, index));
        if self.tail.len() >= self.block_bytes {
            let parent = self.hashes.last().copied().unwrap_or(self.root);
            self.hashes.push(xxh3_64_with_seed(&self.tail, parent));
            self.tail.clear();
        }
    }
}

/// Text of output token `index`: a space and three letters, exactly one token.
pub(crate) fn word(output_seed: u64, index: usize) -> [u8; TOKEN_BYTES] {
    let mixed = xxh3_64_with_seed(&index.to_le_bytes(), output_seed);
    let letter = |shift: u32| b'a' + ((mixed >> shift) as u16 % 26) as u8;
    [b' ', letter(0), letter(16), letter(32)]
}

/// The first `tokens` output tokens as text.
pub(crate) fn output_text(output_seed: u64, tokens: usize) -> String {
    (0..tokens).flat_map(|index| word(output_seed, index)).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(sections: &[&str], model: &str, salt: &str) -> Prompt {
        let mut text = PromptText::default();
        sections.iter().for_each(|section| text.push(section.as_bytes()));
        Prompt::new(text, 2, model, salt)
    }

    #[test]
    fn hashes_are_chained_and_seeded_by_model_and_salt() {
        let base = prompt(&["aaaabbbbccccdddd"], "m", "");
        assert_eq!((base.tokens, base.hashes.len()), (4, 2));
        let other_start = prompt(&["Xaaabbbbccccdddd"], "m", "");
        assert_ne!(base.hashes[1], other_start.hashes[1], "a later block's hash covers all before it");
        assert_ne!(base.hashes[0], prompt(&["aaaabbbbccccdddd"], "n", "").hashes[0]);
        assert_ne!(base.hashes[0], prompt(&["aaaabbbbccccdddd"], "m", "s").hashes[0]);
        assert_eq!(prompt(&[], "m", "").tokens, 1);
    }

    #[test]
    fn an_output_sent_back_continues_the_same_chain() {
        let mut first = prompt(&["user", "hello", "assistant"], "m", "");
        let output = output_text(first.output_seed, 5);
        (0..5).for_each(|index| first.push_output(index));
        let next = prompt(&["user", "hello", "assistant", &output, "user"], "m", "");
        let shared = first.hashes.len();
        assert_eq!(first.hashes[..], next.hashes[..shared]);
        assert!(shared >= 5);
    }
}
