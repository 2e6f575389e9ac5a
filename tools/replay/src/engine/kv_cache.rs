//! The paged KV cache of one engine, with prefix caching at the grain of pieces.
//!
//! Blocks of 16 tokens, counted and not numbered. A block is free, private to one request, or part of a published piece.
//! What no request refers to any more stays where it is until its place is needed, least recently released first, and a
//! chain's tail before its head, so that what is left of it is still a prefix. Source: vLLM
//! `vllm/v1/core/block_pool.py` and `kv_cache_manager.py`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Tokens of a block, as vLLM's default `--block-size`.
pub const BLOCK_TOKENS: u32 = 16;

/// Counts of blocks, and which pieces they hold.
pub struct KvCache {
    blocks_total: u32,
    /// Blocks that hold nothing.
    blocks_free: u32,
    /// Blocks that hold something that nobody refers to.
    blocks_released: u32,
    pieces: HashMap<u64, Piece, BuildHasherDefault<PieceHasher>>,
    /// Released blocks, oldest first. A piece that was taken again since has another stamp, and its record is void.
    released: VecDeque<Released>,
    releases: u64,
}

struct Piece {
    blocks: u32,
    references: u32,
    /// Number of its last release.
    stamp: u64,
}

struct Released {
    stamp: u64,
    /// `None`: blocks whose text will never be asked for, such as an unfinished last piece.
    piece: Option<u64>,
    blocks: u32,
}

impl KvCache {
    /// An empty cache for `tokens`, rounded down to whole blocks.
    #[must_use]
    pub fn new(tokens: u32) -> Self {
        let blocks_total = tokens / BLOCK_TOKENS;
        Self {
            blocks_total,
            blocks_free: blocks_total,
            blocks_released: 0,
            pieces: HashMap::default(),
            released: VecDeque::new(),
            releases: 0,
        }
    }

    /// All its blocks.
    #[must_use]
    pub const fn blocks_total(&self) -> u32 {
        self.blocks_total
    }

    /// Blocks that requests refer to or own.
    #[must_use]
    pub const fn blocks_in_use(&self) -> u32 {
        self.blocks_total - self.blocks_free - self.blocks_released
    }

    /// Whether it holds the piece, referred to or not.
    #[must_use]
    pub fn contains(&self, piece: u64) -> bool {
        self.pieces.contains_key(&piece)
    }

    /// Blocks that [`allocate`](Self::allocate) could hand out once the pieces of `matched` are referred to.
    #[must_use]
    pub fn blocks_available(&self, matched: impl Iterator<Item = u64>) -> u32 {
        let revived = matched.filter_map(|piece| self.pieces.get(&piece)).filter(|piece| piece.references == 0);
        self.blocks_free + self.blocks_released - revived.map(|piece| piece.blocks).sum::<u32>()
    }

    /// Refers to a piece once more, if it is here.
    pub fn refer(&mut self, piece: u64) {
        if let Some(piece) = self.pieces.get_mut(&piece) {
            if piece.references == 0 {
                self.blocks_released -= piece.blocks;
            }
            piece.references += 1;
        }
    }

    /// Makes `blocks` the caller's own, and forgets for that what was released first. `false`: there are not so many.
    #[must_use]
    pub fn allocate(&mut self, blocks: u32) -> bool {
        if self.blocks_free + self.blocks_released < blocks {
            return false;
        }
        while self.blocks_free < blocks {
            self.forget_oldest();
        }
        self.blocks_free -= blocks;
        true
    }

    /// Turns `blocks` of the caller's own into a piece that others can find, and that the caller refers to. If the piece
    /// is here already, the caller refers to that one and the blocks become free.
    pub fn publish(&mut self, piece: u64, blocks: u32) {
        match self.pieces.entry(piece) {
            Entry::Vacant(vacant) => {
                vacant.insert(Piece { blocks, references: 1, stamp: 0 });
            }
            Entry::Occupied(_) => {
                self.refer(piece);
                self.blocks_free += blocks;
            }
        }
    }

    /// Gives back a request's own blocks and its references. `chain` runs from the prompt's start.
    pub fn release(&mut self, chain: impl DoubleEndedIterator<Item = u64>, own_blocks: u32) {
        if own_blocks > 0 {
            self.releases += 1;
            self.blocks_released += own_blocks;
            self.released.push_back(Released { stamp: self.releases, piece: None, blocks: own_blocks });
        }
        for id in chain.rev() {
            let Some(piece) = self.pieces.get_mut(&id) else { continue };
            piece.references -= 1;
            if piece.references == 0 {
                self.releases += 1;
                piece.stamp = self.releases;
                self.blocks_released += piece.blocks;
                self.released.push_back(Released { stamp: self.releases, piece: Some(id), blocks: piece.blocks });
            }
        }
        // Without this, a cache that is never full would collect void records without end.
        if self.released.len() > 4 * self.pieces.len() + 4096 {
            let pieces = &self.pieces;
            self.released.retain(|record| is_valid(pieces, record));
        }
    }

    fn forget_oldest(&mut self) {
        let Some(record) = self.released.pop_front() else { return };
        if !is_valid(&self.pieces, &record) {
            return;
        }
        if let Some(piece) = record.piece {
            self.pieces.remove(&piece);
        }
        self.blocks_released -= record.blocks;
        self.blocks_free += record.blocks;
    }
}

fn is_valid(pieces: &HashMap<u64, Piece, BuildHasherDefault<PieceHasher>>, record: &Released) -> bool {
    let Some(id) = record.piece else { return true };
    pieces.get(&id).is_some_and(|piece| piece.references == 0 && piece.stamp == record.stamp)
}

/// Hashes a piece's id, which is a hash already: one multiplication is enough, and a replay looks up millions of them.
#[derive(Default)]
pub struct PieceHasher(u64);

impl Hasher for PieceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, piece: u64) {
        self.0 = (self.0.rotate_left(5) ^ piece).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table takes its buckets from the low bits, to which a multiplication carries nothing from above.
        self.0 ^= self.0 >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of four pieces of two blocks each.
    fn cache() -> KvCache {
        KvCache::new(8 * BLOCK_TOKENS)
    }

    fn compute(cache: &mut KvCache, chain: &[u64]) {
        for &piece in chain {
            assert!(cache.allocate(2), "no room for {piece}");
            cache.publish(piece, 2);
        }
    }

    fn held(cache: &KvCache, among: &[u64]) -> Vec<u64> {
        among.iter().copied().filter(|&piece| cache.contains(piece)).collect()
    }

    #[test]
    fn the_least_recently_released_chain_goes_first_and_its_tail_before_its_head() {
        let mut cache = cache();
        compute(&mut cache, &[1, 2]);
        compute(&mut cache, &[3, 4]);
        cache.release([1, 2].into_iter(), 0);
        cache.release([3, 4].into_iter(), 0);
        let expected: [&[u64]; 4] = [&[1, 3, 4], &[3, 4], &[3], &[]];
        for left in expected {
            assert!(cache.allocate(2));
            assert_eq!(held(&cache, &[1, 2, 3, 4]), left);
        }
        assert!(!cache.allocate(1), "all blocks are private now");
    }

    #[test]
    fn a_piece_in_use_stays_and_a_use_makes_it_recent() {
        let mut cache = cache();
        compute(&mut cache, &[1]);
        compute(&mut cache, &[2]);
        cache.release([1].into_iter(), 0);
        cache.release([2].into_iter(), 0);
        cache.refer(1);
        assert_eq!(cache.blocks_available([2].into_iter()), 4, "2 would be revived, 1 is in use, 4 blocks are free");
        cache.release([1].into_iter(), 0);
        assert!(cache.allocate(6));
        assert_eq!(held(&cache, &[1, 2]), [1]);
    }

    #[test]
    fn a_piece_that_was_computed_twice_is_kept_once() {
        let mut cache = cache();
        compute(&mut cache, &[1]);
        compute(&mut cache, &[1]);
        assert_eq!(cache.blocks_in_use(), 2);
        cache.release([1].into_iter(), 0);
        assert_eq!(cache.blocks_in_use(), 2, "the other still refers to it");
        cache.release([1].into_iter(), 0);
        assert_eq!(cache.blocks_in_use(), 0);
    }

    #[test]
    fn text_that_nobody_can_ask_for_takes_room_until_its_turn() {
        let mut cache = cache();
        assert!(cache.allocate(3));
        cache.release(std::iter::empty(), 3);
        compute(&mut cache, &[1]);
        cache.release([1].into_iter(), 0);
        assert!(cache.allocate(6));
        assert_eq!(held(&cache, &[1]), [1], "the older three blocks went first");
    }
}
