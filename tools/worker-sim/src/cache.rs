//! The KV block pool: reference counts, prefix reuse by block hash, and eviction of the least recently used block.
//!
//! After vLLM's `BlockPool`: a block that no request references stays readable until it is needed; the free queue is in
//! order of use, and a request gives back its last block first, so that a prefix is evicted from its end. Unlike vLLM,
//! a second block with the content of a cached one is not itself cached, and blocks without a hash are reused first.

use std::collections::HashMap;

/// Index of a block in its pool. Only the pool makes them, so they are always in range.
pub(crate) type BlockId = u32;

const NIL: BlockId = BlockId::MAX;

#[derive(Debug, Clone, Copy)]
struct Block {
    hash: Option<u64>,
    references: u32,
    /// Neighbours in the free queue, or `NIL`; meaningless while referenced.
    before: BlockId,
    after: BlockId,
}

/// A fixed number of KV blocks. Law: `reserved <= free`, so a reserved block can always be had.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    by_hash: HashMap<u64, BlockId>,
    /// Next block to be reused.
    oldest: BlockId,
    newest: BlockId,
    free: usize,
    reserved: usize,
}

impl BlockPool {
    /// A pool of so many empty blocks; fewer than 2^32 - 1.
    pub(crate) fn new(capacity_blocks: usize) -> Self {
        let empty = Block { hash: None, references: 0, before: NIL, after: NIL };
        let mut pool = Self {
            blocks: vec![empty; capacity_blocks],
            by_hash: HashMap::new(),
            oldest: NIL,
            newest: NIL,
            free: 0,
            reserved: 0,
        };
        for id in 0..capacity_blocks {
            pool.push_newest(id as BlockId);
        }
        pool
    }

    /// Referenced blocks over all, 0 to 1: vLLM's `kv_cache_usage_perc`.
    pub(crate) fn usage(&self) -> f64 {
        (self.blocks.len() - self.free) as f64 / self.blocks.len() as f64
    }

    /// Takes the longest cached prefix of `hashes` and reserves the rest of `total_blocks` for [`Self::grow`].
    /// `None`, and nothing changed, if the rest does not fit beside what others have reserved.
    pub(crate) fn admit(&mut self, hashes: &[u64], total_blocks: usize) -> Option<Vec<BlockId>> {
        let mut matched = Vec::with_capacity(total_blocks);
        matched.extend(hashes.iter().map_while(|hash| self.by_hash.get(hash)).take(total_blocks));
        let revived = matched.iter().filter(|&&id| self.blocks[id as usize].references == 0).count();
        let rest = total_blocks - matched.len();
        if self.free < self.reserved + revived + rest {
            return None;
        }
        for &id in &matched {
            if self.blocks[id as usize].references == 0 {
                self.unlink(id);
            }
            self.blocks[id as usize].references += 1;
        }
        self.reserved += rest;
        Some(matched)
    }

    /// Turns reserved blocks into held ones until `held` has `want` of them; evicts the least recently used.
    pub(crate) fn grow(&mut self, held: &mut Vec<BlockId>, want: usize) {
        while held.len() < want && self.oldest != NIL {
            let id = self.oldest;
            self.unlink(id);
            self.forget(id);
            self.blocks[id as usize].references = 1;
            self.reserved = self.reserved.saturating_sub(1);
            held.push(id);
        }
    }

    /// Makes a full block findable under the hash of its content and all before it.
    pub(crate) fn publish(&mut self, id: BlockId, hash: u64) {
        if self.blocks[id as usize].hash.is_none() && !self.by_hash.contains_key(&hash) {
            self.blocks[id as usize].hash = Some(hash);
            self.by_hash.insert(hash, id);
        }
    }

    /// Gives back a request's blocks, and what it had reserved and not used.
    pub(crate) fn release(&mut self, held: &[BlockId], unused_reserve: usize) {
        self.reserved = self.reserved.saturating_sub(unused_reserve);
        for &id in held.iter().rev() {
            let block = &mut self.blocks[id as usize];
            block.references -= 1;
            match (block.references, block.hash) {
                (0, Some(_)) => self.push_newest(id),
                (0, None) => self.push_oldest(id),
                _ => {}
            }
        }
    }

    /// Forgets all content. Referenced blocks stay held.
    pub(crate) fn clear(&mut self) {
        self.by_hash.clear();
        for block in &mut self.blocks {
            block.hash = None;
        }
    }

    fn forget(&mut self, id: BlockId) {
        if let Some(hash) = self.blocks[id as usize].hash.take() {
            self.by_hash.remove(&hash);
        }
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { before, after, .. } = self.blocks[id as usize];
        match before {
            NIL => self.oldest = after,
            _ => self.blocks[before as usize].after = after,
        }
        match after {
            NIL => self.newest = before,
            _ => self.blocks[after as usize].before = before,
        }
        self.free -= 1;
    }

    fn push_newest(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        (block.before, block.after) = (self.newest, NIL);
        match self.newest {
            NIL => self.oldest = id,
            last => self.blocks[last as usize].after = id,
        }
        self.newest = id;
        self.free += 1;
    }

    fn push_oldest(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        (block.before, block.after) = (NIL, self.oldest);
        match self.oldest {
            NIL => self.newest = id,
            first => self.blocks[first as usize].before = id,
        }
        self.oldest = id;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one request of these block hashes from start to end; the number of blocks it found cached.
    fn serve(pool: &mut BlockPool, hashes: &[u64]) -> usize {
        let mut held = pool.admit(hashes, hashes.len()).unwrap();
        let cached = held.len();
        pool.grow(&mut held, hashes.len());
        for (&id, &hash) in held.iter().zip(hashes) {
            pool.publish(id, hash);
        }
        pool.release(&held, 0);
        cached
    }

    #[test]
    fn a_match_is_contiguous_from_the_first_block() {
        let mut pool = BlockPool::new(8);
        assert_eq!(serve(&mut pool, &[1, 2, 3]), 0);
        assert_eq!(serve(&mut pool, &[1, 2, 3]), 3);
        assert_eq!(serve(&mut pool, &[1, 9, 3]), 1);
        assert_eq!(serve(&mut pool, &[7, 2, 3]), 0);
    }

    #[test]
    fn the_least_recently_used_prefix_is_evicted_from_its_end() {
        let mut pool = BlockPool::new(6);
        serve(&mut pool, &[1, 2, 3]);
        serve(&mut pool, &[11, 12, 13]);
        serve(&mut pool, &[1, 2, 3]);
        // Two new blocks push out the tail of the older prefix only.
        serve(&mut pool, &[21, 22]);
        assert_eq!(pool.admit(&[11, 12, 13], 3).unwrap().len(), 1);
        assert_eq!(pool.admit(&[1, 2, 3], 3).unwrap().len(), 3);
    }

    #[test]
    fn referenced_blocks_are_never_evicted_and_admission_waits_for_room() {
        let mut pool = BlockPool::new(4);
        let mut held = pool.admit(&[1, 2, 3], 3).unwrap();
        pool.grow(&mut held, 2);
        assert!((pool.usage() - 0.5).abs() < 1e-9);
        assert!(pool.admit(&[5, 6], 2).is_none(), "one block is reserved, so only one is to be had");
        pool.release(&held, 1);
        assert!(pool.admit(&[5, 6, 7, 8], 4).is_some());
    }

    #[test]
    fn a_matched_free_block_is_not_counted_as_room() {
        let mut pool = BlockPool::new(3);
        serve(&mut pool, &[1, 2]);
        // Both matched blocks leave the free queue; one free block is left for two more.
        assert!(pool.admit(&[1, 2, 3, 4], 4).is_none());
        assert_eq!(pool.admit(&[1, 2, 3], 3).unwrap().len(), 2);
    }

    #[test]
    fn clearing_forgets_content_but_keeps_what_is_held() {
        let mut pool = BlockPool::new(4);
        serve(&mut pool, &[1, 2]);
        let held = pool.admit(&[1, 2], 2).unwrap();
        pool.clear();
        assert_eq!(serve(&mut pool, &[1, 2]), 0);
        pool.release(&held, 0);
        assert!(pool.usage().abs() < 1e-9);
    }

    /// A naive model: after any history, every block is either free or held and a hash names at most one block.
    #[test]
    fn any_history_keeps_the_books_balanced() {
        let (mut pool, mut live, mut x) = (BlockPool::new(32), Vec::new(), 1u64);
        for _ in 0..5_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (x >> 60) < 9 {
                let start = (x >> 20) % 12;
                let hashes: Vec<u64> = (start * 100..start * 100 + 1 + (x >> 40) % 9).collect();
                if let Some(mut held) = pool.admit(&hashes, hashes.len()) {
                    pool.grow(&mut held, hashes.len());
                    held.iter().zip(&hashes).for_each(|(&id, &hash)| pool.publish(id, hash));
                    live.push(held);
                }
            } else if !live.is_empty() {
                let held = live.swap_remove((x >> 33) as usize % live.len());
                pool.release(&held, 0);
            }
            let referenced = pool.blocks.iter().filter(|block| block.references > 0).count();
            assert_eq!(pool.free + referenced, 32);
            assert_eq!(pool.reserved, 0);
            assert!(pool.by_hash.iter().all(|(&hash, &id)| pool.blocks[id as usize].hash == Some(hash)));
        }
    }
}
