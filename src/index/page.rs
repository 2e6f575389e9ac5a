//! One page of the index: where a stretch's holders are found, recorded and forgotten.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bucket::{Bucket, HOLDERS, Holder, STRETCH_BLOCKS};
use super::{REMEMBERED_CAPACITIES, Retention};
use crate::prefix::{BlockHash, prefix_bytes};
use crate::shared::{PageError, Preamble};
use crate::worker::WorkerId;

const PREAMBLE: Preamble = Preamble::new(*b"WRIX", 1);

const BUCKETS: usize = 31;

/// Buckets that one stretch takes, at the most: half of a page, so that what everybody shares does not drive out the
/// conversations that happen to be on the same page.
const BUCKETS_OF_STRETCH_MAX: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Page {
    preamble: Preamble,
    spare: [u8; 118],
    /// Counts the recordings: the age of buckets.
    clock: U32,
    buckets: [Bucket; BUCKETS],
}

/// The page, 4096 bytes: the largest value that the host hands over at the price of the smallest.
#[derive(Clone, Debug)]
pub struct IndexPage {
    bytes: Vec<u8>,
}

/// What recording a chain's stretch at a worker found there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// Where the next stretch begins; the chain's length if this was the last.
    pub(super) next: usize,
    /// The end of the blocks that it was sent before, their age, and how long ago, seconds.
    pub(super) held: Option<(usize, u32, u32)>,
    /// Bytes that are new to the worker.
    pub(super) new_bytes: u64,
}

impl IndexPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<Vec<u8>>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if PREAMBLE.matches(&bytes)? && bytes.len() == size_of::<Page>() {
            return Ok(Self { bytes });
        }
        let mut bytes = vec![0; size_of::<Page>()];
        if let Ok(page) = Page::mut_from_bytes(&mut bytes) {
            page.preamble = PREAMBLE;
        }
        Ok(Self { bytes })
    }

    /// The bytes to store.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn buckets(&self) -> &[Bucket] {
        Page::ref_from_bytes(&self.bytes).map_or(&[], |page| &page.buckets)
    }

    /// Tells `visit` which workers are believed to hold the chain up to which block, by its stretch that begins at block
    /// `at`; returns where the next stretch begins that may be known.
    pub(super) fn look_up(
        &self,
        blocks: &[BlockHash],
        at: usize,
        retentions: &[Retention],
        mut visit: impl FnMut(WorkerId, usize),
    ) -> Option<usize> {
        let rest = blocks.get(at..)?;
        let first = *rest.first()?;
        let mut found = None;
        for bucket in self.buckets().iter().filter(|bucket| bucket.is_of(first)) {
            // All buckets of one stretch have the same blocks.
            let (common, _) = *found.get_or_insert_with(|| (bucket.common(rest), bucket.blocks()));
            for holder in bucket.holders.iter().filter(|holder| holder.reach != 0) {
                let retention = retentions.get(usize::from(holder.worker().0));
                if retention.is_some_and(|kept| holder.age_at(kept).is_some_and(|age| age <= kept.capacity)) {
                    visit(holder.worker(), at + usize::from(holder.reach).min(common));
                }
            }
        }
        let (common, stretch_blocks) = found?;
        let next = at + common;
        // A stretch that ends early is extended in place, so nothing begins behind it.
        let may_go_on = common < stretch_blocks || next == stretch_end(at);
        (may_go_on && next < blocks.len()).then_some(next)
    }

    /// Records that `worker` is sent the chain's stretch that begins at block `at`, and advances its odometer by what of
    /// it is new there.
    pub(super) fn record(
        &mut self,
        blocks: &[BlockHash],
        at: usize,
        worker: WorkerId,
        retentions: &mut [Retention],
        now_s: u32,
    ) -> Option<Touched> {
        let end = stretch_end(at).min(blocks.len());
        let stretch_blocks = blocks.get(at..end)?;
        let first = *stretch_blocks.first()?;
        let page = Page::mut_from_bytes(&mut self.bytes).ok()?;
        page.clock = U32::new(page.clock.get().wrapping_add(1));
        let clock = page.clock;

        let common = page.extend(stretch_blocks, first);
        let (bucket, place) = page.place_of(first, worker, retentions).or_else(|| {
            let victim = page.victim(first)?;
            let stretch = page.buckets.iter().find(|bucket| bucket.is_of(first)).map(Bucket::without_holders);
            *page.buckets.get_mut(victim)? = stretch.unwrap_or_else(|| Bucket::new(stretch_blocks));
            Some((victim, 0))
        })?;
        for bucket in page.buckets.iter_mut().filter(|bucket| bucket.is_of(first)) {
            bucket.touched = clock;
        }
        let holder = page.buckets.get_mut(bucket)?.holders.get_mut(place)?;
        let retention = retentions.get_mut(usize::from(worker.0))?;
        let before = if holder.is_of(worker) { *holder } else { Holder::FREE };
        let age = before.age_at(retention);
        let held_end = at + usize::from(before.reach).min(common);
        let is_kept = age.is_some_and(|age| age <= retention.capacity);
        let new_from = if is_kept { held_end } else { at };
        let new_bytes = prefix_bytes(at + common).saturating_sub(prefix_bytes(new_from));
        retention.odometer = retention.odometer.wrapping_add((new_bytes / super::SPAN_BYTES) as u32);
        // The chain may part from the stretch within what the worker was sent before. What lies behind is of another
        // chain and ages on. There is one stamp for both parts: the old one while that is young, and then the new one for
        // the front alone.
        let is_young = age.is_some_and(|age| age <= retention.capacity / 4);
        if is_young && common < usize::from(before.reach) {
            holder.touched_s = U32::new(now_s);
        } else {
            *holder = Holder::new(worker, retention, common as u8, now_s);
        }
        let held = age
            .filter(|age| *age <= retention.capacity.saturating_mul(REMEMBERED_CAPACITIES))
            .map(|age| (held_end, age, now_s.saturating_sub(before.touched_s.get())));
        Some(Touched { next: at + common, held, new_bytes })
    }

    /// Forgets that `worker` was sent the chain's blocks from `from` on, as far as they are in the stretch that begins at
    /// block `at`; returns where the next stretch begins.
    pub(super) fn forget(&mut self, blocks: &[BlockHash], at: usize, worker: WorkerId, from: usize) -> Option<usize> {
        let rest = blocks.get(at..)?;
        let first = *rest.first()?;
        let page = Page::mut_from_bytes(&mut self.bytes).ok()?;
        let mut common = None;
        for bucket in page.buckets.iter_mut().filter(|bucket| bucket.is_of(first)) {
            let shared = bucket.common(rest);
            common = Some(shared);
            if from >= at + shared {
                // What of this stretch lies behind is another chain's.
                continue;
            }
            for holder in bucket.holders.iter_mut().filter(|holder| holder.is_of(worker)) {
                holder.reach = holder.reach.min(from.saturating_sub(at).min(STRETCH_BLOCKS) as u8);
            }
            bucket.free_if_unheld();
        }
        let next = at + common?;
        (next < blocks.len()).then_some(next)
    }
}

impl Page {
    /// How much of `stretch` the recorded stretch has, once it was extended where it ended early; all of it if there is
    /// none yet.
    fn extend(&mut self, stretch: &[BlockHash], first: BlockHash) -> usize {
        let mut common = stretch.len();
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.is_of(first)) {
            common = bucket.common(stretch);
            if common == bucket.blocks() && common < stretch.len() {
                bucket.extend(stretch);
                common = stretch.len();
            }
        }
        common
    }

    /// The bucket and the place in it that `worker` has, or may take.
    fn place_of(&self, first: BlockHash, worker: WorkerId, retentions: &[Retention]) -> Option<(usize, usize)> {
        let places = || {
            let buckets = self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.is_of(first));
            buckets.flat_map(|(at, bucket)| {
                bucket.holders.iter().enumerate().map(move |(place, holder)| ((at, place), holder))
            })
        };
        let own = places().find(|(_, holder)| holder.is_of(worker));
        let free = || places().find(|(_, holder)| !holder.is_worth_keeping(retentions));
        let oldest = || {
            let is_full = places().count() >= BUCKETS_OF_STRETCH_MAX * HOLDERS;
            if is_full { places().min_by_key(|(_, holder)| holder.touched_s.get()) } else { None }
        };
        own.or_else(free).or_else(oldest).map(|(place, _)| place)
    }

    /// The bucket that makes way for the stretch that begins with `first`: a free one, else the least recently touched.
    fn victim(&self, first: BlockHash) -> Option<usize> {
        let age = |bucket: &Bucket| {
            if bucket.is_free() { u32::MAX } else { self.clock.get().wrapping_sub(bucket.touched.get()) }
        };
        let others = self.buckets.iter().enumerate().filter(|(_, bucket)| !bucket.is_of(first));
        others.max_by_key(|(_, bucket)| age(bucket)).map(|(at, _)| at)
    }
}

/// Where the stretch that begins at block `at` ends at the latest.
const fn stretch_end(at: usize) -> usize {
    (at / STRETCH_BLOCKS + 1) * STRETCH_BLOCKS
}
