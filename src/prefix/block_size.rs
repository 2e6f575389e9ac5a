//! How long each block of a prompt is: short where prompts part, longer the deeper.

/// Blocks of one chain, at the most: about 8.4 MiB of prompt. What lies behind is counted but not hashed.
///
/// 1024 hashes are 8 KB of memory, and 8 MiB of text are more tokens than any context window takes.
pub const BLOCKS_MAX: usize = 1024;

/// Bytes of the longest block: what a chain has to buffer, at the most.
pub(super) const BLOCK_BYTES_MAX: usize = 32_768;

/// A run of blocks of one length.
struct Tier {
    /// Index of the first block behind this run.
    end_block: usize,
    /// Bytes of each block in this run.
    block_bytes: usize,
}

/// Runs of blocks, from the start of the prompt.
///
/// At the usual 4 bytes a token a block of 256 bytes is 64 tokens, four of vLLM's default 16-token blocks. Chats part
/// within the first tens of kilobytes, and there a block too few costs a whole prefill, so blocks are short; from
/// 8 KB on a block is at most a sixteenth of what lies before it, and a 1 MiB prompt is 546 hashes and not 4096.
const TIERS: [Tier; 8] = [
    Tier { end_block: 32, block_bytes: 256 },
    Tier { end_block: 64, block_bytes: 512 },
    Tier { end_block: 96, block_bytes: 1024 },
    Tier { end_block: 512, block_bytes: 2048 },
    Tier { end_block: 640, block_bytes: 4096 },
    Tier { end_block: 768, block_bytes: 8192 },
    Tier { end_block: 896, block_bytes: 16_384 },
    Tier { end_block: BLOCKS_MAX, block_bytes: BLOCK_BYTES_MAX },
];

/// Bytes of block number `block` (from 0); `None` from [`BLOCKS_MAX`] on.
#[must_use]
pub fn block_bytes(block: usize) -> Option<usize> {
    TIERS.iter().find(|tier| block < tier.end_block).map(|tier| tier.block_bytes)
}

/// Bytes that the first `blocks` blocks cover together: turns a match into bytes. More than [`BLOCKS_MAX`] counts as
/// [`BLOCKS_MAX`].
#[must_use]
pub fn prefix_bytes(blocks: usize) -> u64 {
    let mut begin_block = 0;
    let mut bytes = 0;
    for tier in &TIERS {
        let in_tier = blocks.min(tier.end_block).saturating_sub(begin_block);
        bytes += in_tier as u64 * tier.block_bytes as u64;
        begin_block = tier.end_block;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_table_covers_every_block_and_ends_at_the_bound() {
        let mut bytes = 0;
        for block in 0..BLOCKS_MAX {
            assert_eq!(prefix_bytes(block), bytes, "block {block}");
            let this_bytes = block_bytes(block).unwrap();
            assert!(this_bytes <= BLOCK_BYTES_MAX);
            bytes += this_bytes as u64;
        }
        assert_eq!(block_bytes(BLOCKS_MAX), None);
        assert_eq!(prefix_bytes(BLOCKS_MAX), bytes);
        assert_eq!(prefix_bytes(usize::MAX), bytes);
        assert_eq!(bytes, 8_773_632);
    }

    #[test]
    fn lengths_change_where_the_table_says() {
        const CASES: &[(usize, usize)] =
            &[(0, 256), (31, 256), (32, 512), (63, 512), (64, 1024), (95, 1024), (96, 2048), (511, 2048), (512, 4096)];
        for &(block, bytes) in CASES {
            assert_eq!(block_bytes(block), Some(bytes), "block {block}");
        }
        assert_eq!(
            [639, 640, 767, 768, 895, 896].map(block_bytes).map(Option::unwrap),
            [4096, 8192, 8192, 16_384, 16_384, 32_768]
        );
    }
}
