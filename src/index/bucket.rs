//! One bucket of a page: a stretch of a chain, and some of the workers that hold it.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{REMEMBERED_CAPACITIES, Retention};
use crate::prefix::BlockHash;
use crate::worker::WorkerId;

/// Blocks of a stretch, at the most.
pub(super) const STRETCH_BLOCKS: usize = 16;

/// Holders in one bucket: what fits into 128 bytes.
pub(super) const HOLDERS: usize = 7;

/// A stretch and some of its holders.
///
/// Of the first block the whole hash is kept, of the others 16 bits each: a block that parts from the stretch is taken
/// for the stretch's own once in 65,536 times, and then the match is one block too long.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Bucket {
    first: U64,
    tags: [U16; STRETCH_BLOCKS - 1],
    /// Blocks of the stretch; 0 = the bucket is free.
    blocks: u8,
    spare: u8,
    /// The page's clock when it was last recorded.
    pub(super) touched: U32,
    pub(super) holders: [Holder; HOLDERS],
}

/// A worker and how much of the stretch it was sent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Holder {
    worker: U16,
    generation: u8,
    /// Blocks of the stretch that it was sent; 0 = the place is free.
    pub(super) reach: u8,
    /// Its odometer when it was last sent them.
    pub(super) stamp: U32,
    /// When that was, seconds since the epoch.
    pub(super) touched_s: U32,
}

impl Bucket {
    /// A bucket for the stretch of `blocks`, of which there are one to [`STRETCH_BLOCKS`].
    pub(super) fn new(blocks: &[BlockHash]) -> Self {
        let mut bucket = Self {
            first: U64::new(blocks.first().map_or(0, |block| block.0)),
            tags: [U16::ZERO; STRETCH_BLOCKS - 1],
            blocks: 0,
            spare: 0,
            touched: U32::ZERO,
            holders: [Holder::FREE; HOLDERS],
        };
        bucket.extend(blocks);
        bucket
    }

    /// Another bucket for the same stretch.
    pub(super) fn without_holders(&self) -> Self {
        Self { holders: [Holder::FREE; HOLDERS], ..*self }
    }

    pub(super) const fn is_free(&self) -> bool {
        self.blocks == 0
    }

    /// Frees it if nobody holds any of the stretch.
    pub(super) fn free_if_unheld(&mut self) {
        if self.holders.iter().all(|holder| holder.reach == 0) {
            self.blocks = 0;
        }
    }

    /// Whether it is of the stretch that begins with `first`.
    pub(super) const fn is_of(&self, first: BlockHash) -> bool {
        self.blocks != 0 && self.first.get() == first.0
    }

    /// Blocks of the stretch.
    pub(super) fn blocks(&self) -> usize {
        usize::from(self.blocks).min(STRETCH_BLOCKS)
    }

    /// How many of `blocks`, the first of which is the stretch's first, the stretch has too.
    pub(super) fn common(&self, blocks: &[BlockHash]) -> usize {
        let own = self.tags.iter().take(self.blocks().saturating_sub(1));
        let others = blocks.get(1..).unwrap_or_default();
        1 + own.zip(others).take_while(|(tag, block)| tag.get() == tag_of(**block)).count()
    }

    /// Makes the stretch all of `blocks`, of which it has the first ones already.
    pub(super) fn extend(&mut self, blocks: &[BlockHash]) {
        for (tag, block) in self.tags.iter_mut().zip(blocks.get(1..).unwrap_or_default()) {
            *tag = U16::new(tag_of(*block));
        }
        self.blocks = blocks.len().min(STRETCH_BLOCKS) as u8;
    }
}

impl Holder {
    pub(super) const FREE: Self =
        Self { worker: U16::ZERO, generation: 0, reach: 0, stamp: U32::ZERO, touched_s: U32::ZERO };

    pub(super) const fn new(worker: WorkerId, retention: &Retention, reach: u8, now_s: u32) -> Self {
        Self {
            worker: U16::new(worker.0),
            generation: retention.generation,
            reach,
            stamp: U32::new(retention.odometer),
            touched_s: U32::new(now_s),
        }
    }

    pub(super) const fn worker(&self) -> WorkerId {
        WorkerId(self.worker.get())
    }

    /// Whether the place is `worker`'s.
    pub(super) const fn is_of(&self, worker: WorkerId) -> bool {
        self.reach != 0 && self.worker.get() == worker.0
    }

    /// Spans that were new to its worker, whose `retention` this is, since it was sent this; `None` if it has restarted
    /// since.
    pub(super) fn age_at(&self, retention: &Retention) -> Option<u32> {
        let is_current = self.reach != 0 && self.generation == retention.generation;
        is_current.then(|| retention.age(self.stamp.get()))
    }

    /// Whether there is a reason to keep it.
    pub(super) fn is_worth_keeping(&self, retentions: &[Retention]) -> bool {
        let Some(retention) = retentions.get(usize::from(self.worker.get())) else { return false };
        let age_max = retention.capacity.saturating_mul(REMEMBERED_CAPACITIES);
        self.age_at(retention).is_some_and(|age| age <= age_max)
    }
}

/// The bits of a block's hash that are kept; its page and the first block's identity come from others.
const fn tag_of(block: BlockHash) -> u16 {
    block.0 as u16
}
