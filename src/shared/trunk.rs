//! Which prefixes everybody shares: the popular trunk of the tree of prompts.
//!
//! Where many conversations begin with the same system prompt, hashing that prompt sends all of them to one worker; in
//! the Mooncake conversation trace the first 512 tokens are the same in every request. So a prompt is known by the first
//! part of it that is *not* popular. This page counts, for all worker threads, how often each prefix was seen since it
//! was first seen, and how many different prompts it led to. Both count: the prefix of the one conversation of a quiet
//! evening is in all requests, and still belongs to one conversation, each of whose turns continues the one before.
//!
//! A prompt's prefixes are counted to the first unpopular one and some further, so that a long trunk is learned in one go.
//! The page is a set-associative table, so its size is fixed; the least counted entry of a set makes way.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};

const PREAMBLE: Preamble = Preamble::new(*b"WRTR", 2);

/// Every so many requests all counts are halved, so that what was popular an hour ago is forgotten: a count reaches back
/// over about twice as many, the 2,000 requests of the routing study.
pub const HALVING_REQUESTS: u32 = 1_000;

/// A prefix seen no more often than this is not popular, however few requests there were.
const SIGHTINGS_MIN: u16 = 6;

/// A prefix that leads to fewer different prompts than this is not shared.
const PROMPTS_MIN: u32 = 4;

/// Unpopular prefixes counted beyond the first. Enough for a shared prompt of 24 KB without message ends: gateways agree on
/// a prompt's key only once all of them have learned the whole trunk.
const AHEAD_MAX: usize = 15;

const SETS: usize = 36;
const WAYS: usize = 8;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Entry {
    prefix: U64,
    /// The ends of the last prompt seen with this prefix, 32 bits of each hash.
    last_end: U32,
    last_block: U32,
    /// A bit for each different prompt seen with this prefix, by hash: the number of bits set is a floor of their number.
    prompts: U32,
    sightings: U16,
    is_popular: U16,
    /// How many requests there had been when it was first seen; moves forward as the sightings are halved.
    born: U32,
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

    /// Whether a part that it begins with has a hash with these low 32 bits.
    fn begins_with(&self, hash: u32) -> bool;
}

/// The page, to be observed and stored again. It stays below 8 KB: reading it costs little more than the smallest value.
#[derive(Clone, Debug)]
pub struct TrunkPage {
    bytes: Vec<u8>,
}

impl TrunkPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<Vec<u8>>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if PREAMBLE.matches(&bytes)? && bytes.len() == size_of::<Page>() {
            return Ok(Self { bytes });
        }
        let page = Page { preamble: PREAMBLE, requests: U32::ZERO, sets: [[EMPTY; WAYS]; SETS] };
        Ok(Self { bytes: page.as_bytes().to_vec() })
    }

    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Counts one prompt and returns the hash by which to know it: its first prefix that is not popular.
    ///
    /// A prefix becomes popular when more than `1 / workers` of the requests since it was first seen begin with it, more
    /// than one worker's share, and they are of different prompts; it stays popular down to half of that, so that prompts
    /// near the line do not move to and fro. A prompt that is popular to its end is known by its longest prefix; `None` only without any.
    pub fn observe(&mut self, prompt: &impl Prompt, workers: usize) -> Option<u64> {
        let page = Page::mut_from_bytes(&mut self.bytes).ok()?;
        let requests = page.count_request();
        let workers = u64::try_from(workers).unwrap_or(u64::MAX);
        let (mut known_by, mut longest, mut ahead) = (None, None, 0);
        for prefix in prompt.prefixes() {
            let Some(entry) = page.count_prefix(prefix, prompt, requests, workers) else { break };
            match known_by {
                None if entry.is_popular == U16::ZERO => known_by = Some(prefix),
                None => longest = Some(prefix),
                Some(_) => ahead += 1,
            }
            if ahead == AHEAD_MAX {
                break;
            }
        }
        known_by.or(longest)
    }
}

impl Page {
    fn count_request(&mut self) -> u32 {
        let requests = self.requests.get().wrapping_add(1);
        self.requests = U32::new(requests);
        if requests.is_multiple_of(HALVING_REQUESTS) {
            self.sets.iter_mut().flatten().for_each(|entry| entry.halve(requests));
        }
        requests
    }

    /// Counts `prefix` in its set; `None` cannot happen with the constants above and means: stop here.
    fn count_prefix(&mut self, prefix: u64, prompt: &impl Prompt, requests: u32, workers: u64) -> Option<Entry> {
        let set = self.sets.get_mut(usize::try_from(prefix % SETS as u64).ok()?)?;
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
        let sightings = self.sightings.get();
        let bit = 1 << (end >> 59);
        if self.prompts.get() & bit == 0 && (sightings == 0 || !self.is_continued_by(prompt)) {
            self.prompts = U32::new(self.prompts.get() | bit);
        }
        self.last_end = U32::new(end as u32);
        self.last_block = U32::new(prompt.last_block() as u32);
        let sightings = sightings.saturating_add(1);
        self.sightings = U16::new(sightings);
        let share = u64::from(sightings).saturating_mul(workers);
        let since: u64 = requests.wrapping_sub(self.born.get()).into();
        let prompts = self.prompts.get().count_ones();
        let is_popular = if self.is_popular == U16::ZERO {
            share > since && prompts >= PROMPTS_MIN && sightings > SIGHTINGS_MIN
        } else {
            share.saturating_mul(2) > since && prompts >= PROMPTS_MIN / 2
        };
        self.is_popular = U16::new(is_popular.into());
    }

    /// Whether `prompt` is the last one again, or its next turn: begins with all of it, or has grown beyond its blocks.
    fn is_continued_by(&self, prompt: &impl Prompt) -> bool {
        let (last_end, last_block) = (self.last_end.get(), self.last_block.get());
        let has_grown = last_block != 0 && last_block != prompt.last_block() as u32 && prompt.begins_with(last_block);
        last_end == prompt.end() as u32 || prompt.begins_with(last_end) || has_grown
    }

    /// Halves what is counted and the time over which. Every other prompt bit goes too, even and odd ones in turn, so
    /// that a prefix stays shared only while different prompts keep coming.
    fn halve(&mut self, requests: u32) {
        let kept = if (requests / HALVING_REQUESTS).is_multiple_of(2) { EVEN_BITS } else { !EVEN_BITS };
        self.prompts = U32::new(self.prompts.get() & kept);
        self.sightings = U16::new(self.sightings.get() / 2);
        let since = requests.wrapping_sub(self.born.get());
        self.born = U32::new(requests.wrapping_sub(since / 2));
    }
}

const EVEN_BITS: u32 = 0x5555_5555;

const EMPTY: Entry = Entry {
    prefix: U64::ZERO,
    last_end: U32::ZERO,
    last_block: U32::ZERO,
    prompts: U32::ZERO,
    sightings: U16::ZERO,
    is_popular: U16::ZERO,
    born: U32::ZERO,
};

#[cfg(test)]
mod tests;
