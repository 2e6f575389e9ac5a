//! Which worker has seen how much of a prompt: the approximate index of the workers' KV caches (S8).
//!
//! - **stretch**: up to 16 consecutive blocks of a chain. It begins at each sixteenth block, and where a chain parts from
//!   the stretch that an earlier one left; so chains with a common beginning share stretches up to there.
//! - **page**: 4 KB of shared data with 31 buckets. A stretch is on the page that its first block's hash names, so a walk
//!   reads one page a stretch (two or three for 32 blocks) and one more where chains parted.
//! - **holder**: a worker that was sent so many blocks of a stretch. A stretch with more holders than a bucket takes
//!   several buckets. In a full page the bucket that was touched least recently makes way.
//! - **odometer**: how much text this gateway has sent a worker that was new to it. What was touched less than the
//!   worker's capacity ago, by its odometer, is believed to be there still. That is how an engine's LRU forgets, without
//!   any knowledge of time.
//!
//! A chain is recorded whole and at once, when its worker is picked, and engines free the tail of a chain before its
//! beginning. So a holder of a stretch holds all stretches before it, even where the bound on a page has made an earlier
//! one forget that: a match is contiguous from block 0 by construction, for each worker.
//!
//! Only a worker that builds the KV cache is recorded. Where prefill and decode are split that is the prefill worker.

mod bucket;
mod chain;
mod page;

pub use chain::{Index, Recorded, Segment};
pub use page::IndexPage;

/// Odometers and capacities count in spans of so many prompt bytes, about 16 tokens: 32 bits then last for 275 GB.
pub const SPAN_BYTES: u64 = 64;

/// What is believed of one worker's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The low bits of the worker's generation: what an earlier one held is gone.
    pub generation: u8,
    /// Spans sent there so far that were new to it, wrapping.
    pub odometer: u32,
    /// Spans that it keeps: what was touched at most so many ago is believed to be there.
    pub capacity: u32,
}

impl Retention {
    /// How many spans have been new to the worker since the odometer stood at `stamp`.
    ///
    /// A stamp ahead of the odometer is new: another VM has recorded more than this one has read of, or a recording was
    /// taken back.
    #[must_use]
    pub const fn age(&self, stamp: u32) -> u32 {
        let age = self.odometer.wrapping_sub(stamp);
        if age > u32::MAX / 2 { 0 } else { age }
    }
}

/// Beyond so many times its capacity a worker's entry is not worth keeping; up to there an answer may still show that
/// the capacity was thought too small.
const REMEMBERED_CAPACITIES: u32 = 4;

#[cfg(test)]
mod tests;
