//! Which prefixes everybody shares: the popular trunk of the tree of prompts.
//!
//! Where many conversations begin with the same system prompt, hashing that prompt sends all of them to one worker; in
//! the Mooncake conversation trace the first 512 tokens are the same in every request. So a prompt is known by the first
//! part of it that is *not* popular. This page counts, over about the last [`REQUESTS_MAX`] requests of all worker
//! threads, how often each prefix was seen and how many different conversations it led to. Both count: the prefix of
//! the one conversation of a quiet evening is in all requests, and still belongs to one conversation.
//!
//! Only prefixes at the edge of the trunk are counted: a prompt's prefixes are walked until the first unpopular one.
//! The page is a set-associative table, so its size is fixed; the least counted entry of a set makes way.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};

const PREAMBLE: Preamble = Preamble::new(*b"WRTR", 1);

/// At this many requests all counts are halved, so that what was popular an hour ago is forgotten.
///
/// The decay of the routing study's popular trunk: 2,000 requests.
pub const REQUESTS_MAX: u32 = 2_000;

/// A prefix seen no more often than this is not popular, however few requests there were.
const SIGHTINGS_MIN: u32 = 6;

/// A prefix that leads to fewer different conversations than this is not shared.
const CONVERSATIONS_MIN: u32 = 4;

const SETS: usize = 24;
const WAYS: usize = 8;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Entry {
    prefix: U64,
    /// A bit for each conversation seen below the prefix, by hash: the number of bits set is a floor of their number.
    conversations: U64,
    sightings: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Page {
    preamble: Preamble,
    requests: U32,
    halvings: U32,
    sets: [[Entry; WAYS]; SETS],
}

/// The page, to be observed and stored again. It is below 4 KB, up to which size shared data costs the same.
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
        let page = page.unwrap_or_else(|| {
            let empty = Entry { prefix: U64::ZERO, conversations: U64::ZERO, sightings: U32::ZERO };
            Page { preamble: PREAMBLE, requests: U32::ZERO, halvings: U32::ZERO, sets: [[empty; WAYS]; SETS] }
        });
        Ok(Self { page: Box::new(page) })
    }

    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.page.as_bytes()
    }

    /// Counts one prompt and returns the hash by which to know it: its first prefix that is not popular.
    ///
    /// `prefixes` are the hashes of the prompt's prefixes from short to long, `conversation` is what all turns of one
    /// conversation have in common. A prefix is popular when more than `1 / (2 * workers)` of the requests begin with it.
    /// A prompt that is popular to its end is known by its longest prefix; `None` only without any prefix.
    pub fn observe(&mut self, prefixes: impl Iterator<Item = u64>, conversation: u64, workers: usize) -> Option<u64> {
        let requests = self.count_request();
        let workers = u64::try_from(workers).unwrap_or(u64::MAX);
        let mut known_by = None;
        for prefix in prefixes {
            known_by = Some(prefix);
            let Some(entry) = self.count_prefix(prefix, conversation) else { break };
            let sightings = entry.sightings.get();
            let is_frequent = u64::from(sightings).saturating_mul(workers).saturating_mul(2) > requests.into();
            let is_shared = entry.conversations.get().count_ones() >= CONVERSATIONS_MIN;
            if !(is_frequent && is_shared && sightings > SIGHTINGS_MIN) {
                break;
            }
        }
        known_by
    }

    fn count_request(&mut self) -> u32 {
        let requests = self.page.requests.get().saturating_add(1);
        self.page.requests = U32::new(requests);
        if requests >= REQUESTS_MAX {
            self.halve();
        }
        self.page.requests.get()
    }

    /// Counts `prefix` in its set; `None` cannot happen with the constants above and means: stop here.
    fn count_prefix(&mut self, prefix: u64, conversation: u64) -> Option<Entry> {
        let set = self.page.sets.get_mut(usize::try_from(prefix % SETS as u64).ok()?)?;
        let bit = 1_u64 << (conversation >> 58);
        let known = set.iter().position(|entry| entry.prefix.get() == prefix && entry.sightings.get() > 0);
        let way = known.or_else(|| (0..WAYS).min_by_key(|&way| set.get(way).map(|entry| entry.sightings.get())))?;
        let entry = set.get_mut(way)?;
        if known.is_none() {
            *entry = Entry { prefix: U64::new(prefix), conversations: U64::ZERO, sightings: U32::ZERO };
        }
        entry.sightings = U32::new(entry.sightings.get().saturating_add(1));
        entry.conversations = U64::new(entry.conversations.get() | bit);
        Some(*entry)
    }

    /// Halves all counts. Every other conversation bit goes too, even and odd ones in turn, so that a prefix stays
    /// shared only while different conversations keep coming.
    fn halve(&mut self) {
        let halvings = self.page.halvings.get().wrapping_add(1);
        let kept = if halvings.is_multiple_of(2) { 0x5555_5555_5555_5555 } else { 0xaaaa_aaaa_aaaa_aaaa };
        self.page.halvings = U32::new(halvings);
        self.page.requests = U32::new(self.page.requests.get() / 2);
        for entry in self.page.sets.iter_mut().flatten() {
            entry.sightings = U32::new(entry.sightings.get() / 2);
            entry.conversations = U64::new(entry.conversations.get() & kept);
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::{Rng, mix};

    const WORKERS: usize = 4;

    fn empty() -> TrunkPage {
        TrunkPage::open(None).unwrap()
    }

    #[test]
    fn a_system_prompt_that_all_share_is_skipped() {
        let mut page = empty();
        let mut keys = Vec::new();
        for conversation in 0..200 {
            let own = mix(1_000 + conversation);
            keys.push((page.observe([1, 2, own].into_iter(), own, WORKERS), own));
        }
        let late = &keys[100..];
        assert!(late.iter().all(|&(key, own)| key == Some(own)), "{late:?}");
    }

    #[test]
    fn the_only_conversation_of_a_quiet_evening_keeps_its_key() {
        let mut page = empty();
        for _ in 0..500 {
            assert_eq!(page.observe([1, 2, 3].into_iter(), 77, WORKERS), Some(1));
        }
    }

    #[test]
    fn rare_prefixes_are_the_key_themselves() {
        let mut page = empty();
        let mut rng = Rng::new(3);
        for _ in 0..2_000 {
            let document = u64::from(rng.below(100)) + 1;
            let key = page.observe([mix(document), rng.next_u64()].into_iter(), rng.next_u64(), WORKERS);
            assert_eq!(key, Some(mix(document)));
        }
    }

    #[test]
    fn a_prompt_that_is_popular_to_its_end_is_known_by_its_end() {
        let mut page = empty();
        let mut last = None;
        for conversation in 0..100 {
            last = page.observe([1, 2].into_iter(), mix(conversation), WORKERS);
        }
        assert_eq!(last, Some(2));
        assert_eq!(page.observe([].into_iter(), 1, WORKERS), None);
    }

    #[test]
    fn what_was_popular_is_forgotten() {
        let mut page = empty();
        for conversation in 0..500 {
            page.observe([1, mix(conversation)].into_iter(), mix(conversation), WORKERS);
        }
        let mut rng = Rng::new(5);
        for _ in 0..20 * u64::from(REQUESTS_MAX) {
            page.observe([rng.next_u64()].into_iter(), rng.next_u64(), WORKERS);
        }
        assert_eq!(page.observe([1, 9].into_iter(), 9, WORKERS), Some(1));
    }

    #[test]
    fn the_page_comes_back_from_its_bytes_and_fits_the_cheap_size() {
        let mut page = empty();
        page.observe([1, 2].into_iter(), 3, WORKERS);
        let again = TrunkPage::open(Some(page.as_bytes())).unwrap();
        assert_eq!(again.as_bytes(), page.as_bytes());
        assert!(page.as_bytes().len() <= 4_096, "{}", page.as_bytes().len());
        assert!(TrunkPage::open(Some(b"WRTR")).is_ok());
    }
}
