//! Which prefixes everybody shares: the popular trunk of the tree of prompts.
//!
//! Where many conversations begin with the same system prompt, hashing that prompt sends all of them to one worker; in
//! the Mooncake conversation trace the first 512 tokens are the same in every request. So a prompt is known by the first
//! part of it that is *not* popular. This page counts, for all worker threads, how often each prefix was seen since it
//! was first seen, and how many different prompts it led to. Both count: the prefix of the one conversation of a quiet
//! evening is in all requests, and still belongs to one conversation, each of whose turns continues the one before.
//!
//! Only prefixes at the edge of the trunk are counted: a prompt's prefixes are walked to the first unpopular one, and a
//! few further if that one was seen before, so that a long trunk is learned several places at a time. The page is a
//! set-associative table, so its size is fixed; the least counted entry of a set makes way.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};

const PREAMBLE: Preamble = Preamble::new(*b"WRTR", 1);

/// Every so many requests all counts are halved, so that what was popular an hour ago is forgotten: a count reaches back
/// over about twice as many, the 2,000 requests of the routing study.
pub const HALVING_REQUESTS: u32 = 1_000;

/// A prefix seen no more often than this is not popular, however few requests there were.
const SIGHTINGS_MIN: u32 = 6;

/// A prefix that leads to fewer different prompts than this is not shared.
const PROMPTS_MIN: u32 = 4;

/// Unpopular prefixes counted beyond the first.
const AHEAD_MAX: usize = 3;

const SETS: usize = 23;
const WAYS: usize = 8;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Entry {
    prefix: U64,
    /// The ends of the last prompt seen with this prefix.
    last_end: U64,
    last_block: U64,
    /// A bit for each different prompt seen with this prefix, by hash: the number of bits set is a floor of their number.
    prompts: U64,
    sightings: U32,
    /// How many requests there had been when it was first seen; moves forward as the sightings are halved.
    born: U32,
    is_popular: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Page {
    preamble: Preamble,
    requests: U32,
    sets: [[Entry; WAYS]; SETS],
}

/// A prompt, as the trunk sees it.
pub trait Prompt {
    /// The hashes of its prefixes, from short to long, at the places where prompts are told apart.
    fn prefixes(&self) -> impl Iterator<Item = u64>;

    /// The hash of all of it, as it stands after its last message.
    fn end(&self) -> u64;

    /// The hash of it up to its last full block; 0 if it has none. Text that simply goes on has no cut where it ended
    /// before, but has all the blocks.
    fn last_block(&self) -> u64;

    /// Whether `hash` is of a part that it begins with.
    fn begins_with(&self, hash: u64) -> bool;
}

/// The page, to be observed and stored again. It stays below 8 KB: reading it costs little more than the smallest value.
#[derive(Clone, Debug)]
pub struct TrunkPage {
    page: Box<Page>,
}

impl TrunkPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<&[u8]>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        let page = if PREAMBLE.matches(bytes)? { Page::read_from_bytes(bytes).ok() } else { None };
        let page = page.unwrap_or(Page { preamble: PREAMBLE, requests: U32::ZERO, sets: [[EMPTY; WAYS]; SETS] });
        Ok(Self { page: Box::new(page) })
    }

    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.page.as_bytes()
    }

    /// Counts one prompt and returns the hash by which to know it: its first prefix that is not popular.
    ///
    /// A prefix becomes popular when more than `1 / (2 * workers)` of the requests since it was first seen begin with it
    /// and they are of different prompts; it stays popular down to half of that, so that prompts near the line do not
    /// move to and fro. A prompt that is popular to its end is known by its longest prefix; `None` only without any.
    pub fn observe(&mut self, prompt: &impl Prompt, workers: usize) -> Option<u64> {
        let requests = self.count_request();
        let workers = u64::try_from(workers).unwrap_or(u64::MAX);
        let (mut known_by, mut is_known, mut ahead) = (None, false, 0);
        for prefix in prompt.prefixes() {
            let Some(entry) = self.count_prefix(prefix, prompt, requests, workers) else { break };
            if !is_known {
                known_by = Some(prefix);
                is_known = entry.is_popular == U32::ZERO;
            }
            // What is beyond a prefix that nobody had before, nobody had either.
            if is_known && (entry.sightings.get() <= 1 || ahead == AHEAD_MAX) {
                break;
            }
            ahead += usize::from(is_known);
        }
        known_by
    }

    fn count_request(&mut self) -> u32 {
        let requests = self.page.requests.get().wrapping_add(1);
        self.page.requests = U32::new(requests);
        if requests.is_multiple_of(HALVING_REQUESTS) {
            self.page.sets.iter_mut().flatten().for_each(|entry| entry.halve(requests));
        }
        requests
    }

    /// Counts `prefix` in its set; `None` cannot happen with the constants above and means: stop here.
    fn count_prefix(&mut self, prefix: u64, prompt: &impl Prompt, requests: u32, workers: u64) -> Option<Entry> {
        let set = self.page.sets.get_mut(usize::try_from(prefix % SETS as u64).ok()?)?;
        let known = set.iter().position(|entry| entry.prefix.get() == prefix && entry.sightings.get() > 0);
        // The least counted makes way, of equals the oldest.
        let age = |entry: &Entry| requests.wrapping_sub(entry.born.get());
        let rank = |way: &usize| set.get(*way).map(|entry| (entry.sightings.get(), u32::MAX - age(entry)));
        let way = known.or_else(|| (0..WAYS).min_by_key(rank))?;
        let entry = set.get_mut(way)?;
        if known.is_none() {
            *entry = Entry { prefix: U64::new(prefix), born: U32::new(requests.wrapping_sub(1)), ..EMPTY };
        }
        entry.count(prompt, requests, workers);
        Some(*entry)
    }
}

impl Entry {
    fn count(&mut self, prompt: &impl Prompt, requests: u32, workers: u64) {
        let end = prompt.end();
        if self.sightings.get() == 0 || !self.is_continued_by(prompt) {
            self.prompts = U64::new(self.prompts.get() | 1 << (end >> 58));
        }
        self.last_end = U64::new(end);
        self.last_block = U64::new(prompt.last_block());
        self.sightings = U32::new(self.sightings.get().saturating_add(1));
        let share = u64::from(self.sightings.get()).saturating_mul(workers).saturating_mul(2);
        let since: u64 = requests.wrapping_sub(self.born.get()).into();
        let prompts = self.prompts.get().count_ones();
        let is_popular = if self.is_popular == U32::ZERO {
            share > since && prompts >= PROMPTS_MIN && self.sightings.get() > SIGHTINGS_MIN
        } else {
            share.saturating_mul(2) > since && prompts >= PROMPTS_MIN / 2
        };
        self.is_popular = U32::new(is_popular.into());
    }

    /// Whether `prompt` is the last one again, or its next turn: begins with all of it, or has grown beyond its blocks.
    fn is_continued_by(&self, prompt: &impl Prompt) -> bool {
        let (last_end, last_block) = (self.last_end.get(), self.last_block.get());
        let has_grown = last_block != 0 && last_block != prompt.last_block() && prompt.begins_with(last_block);
        last_end == prompt.end() || prompt.begins_with(last_end) || has_grown
    }

    /// Halves what is counted and the time over which. Every other prompt bit goes too, even and odd ones in turn, so
    /// that a prefix stays shared only while different prompts keep coming.
    fn halve(&mut self, requests: u32) {
        let kept = if (requests / HALVING_REQUESTS).is_multiple_of(2) { EVEN_BITS } else { !EVEN_BITS };
        self.prompts = U64::new(self.prompts.get() & kept);
        self.sightings = U32::new(self.sightings.get() / 2);
        let since = requests.wrapping_sub(self.born.get());
        self.born = U32::new(requests.wrapping_sub(since / 2));
    }
}

const EVEN_BITS: u64 = 0x5555_5555_5555_5555;

const EMPTY: Entry = Entry {
    prefix: U64::ZERO,
    last_end: U64::ZERO,
    last_block: U64::ZERO,
    prompts: U64::ZERO,
    sightings: U32::ZERO,
    born: U32::ZERO,
    is_popular: U32::ZERO,
};

#[cfg(test)]
mod tests;
