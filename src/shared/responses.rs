//! Which worker holds which response: for requests that continue one by its name.
//!
//! Engines keep the responses of OpenAI's Responses API in the process that made them, and answer 404 to a request that
//! continues one which they do not have. Source: vLLM `entrypoints/openai/responses/serving.py`, `response_store`, with
//! `VLLM_ENABLE_RESPONSES_API_STORE`; SGLang's `serving_responses.py` has the same.
//!
//! A pool has [`PAGES`] pages, and a response's name says on which it is. A page is a list with the response that was
//! recorded last in front; the one at its end makes way. Being asked for does not bring a response to the front: a
//! conversation goes on from its newest response, and an answer to a question would have to be written.

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};
use crate::worker::WorkerId;

const PREAMBLE: Preamble = Preamble::new(*b"WRRE", 1);

/// Pages of a pool: 256 KB and some 32,000 responses, at the most.
pub const PAGES: usize = 64;

/// Responses on one page: what fits into 4 KB.
const HELD: usize = 511;

/// A response and who holds it. `tag` is of the name's hash what does not say which page it is on: another name has the
/// same once in 2^40 times on a page, and then a request goes to a worker that answers 404.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, PartialEq, Eq)]
#[repr(C)]
struct HeldResponse {
    tag_low: U32,
    tag_high: u8,
    address_tag: u8,
    /// The worker's id and one; 0 = the place is free.
    worker_and_one: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Page {
    preamble: Preamble,
    spare: [u8; 2],
    held: [HeldResponse; HELD],
}

/// One of the pages, 4096 bytes: the largest value that the host hands over at the price of the smallest.
#[derive(Clone, Debug)]
pub struct ResponsesPage {
    bytes: Vec<u8>,
}

/// Who holds a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The worker that made it.
    pub worker: WorkerId,
    /// Some of the hash of its address: the id may be another's by now. See [`Holder::new`].
    pub address_tag: u8,
}

impl Holder {
    /// The worker with this id at `address`. Another address has the same tag once in 256 times, and then a request goes to
    /// a worker that answers 404, as any other would.
    #[must_use]
    pub fn new(worker: WorkerId, address: &str) -> Self {
        Self { worker, address_tag: xxh3_64(address.as_bytes()) as u8 }
    }
}

impl HeldResponse {
    const FREE: Self = Self { tag_low: U32::ZERO, tag_high: 0, address_tag: 0, worker_and_one: U16::ZERO };

    fn new(response: u64, holder: Holder) -> Option<Self> {
        let worker_and_one = U16::new(holder.worker.0.checked_add(1)?);
        Some(Self { address_tag: holder.address_tag, worker_and_one, ..Self::tagged(response) })
    }

    const fn tagged(response: u64) -> Self {
        Self { tag_low: U32::new(response as u32), tag_high: (response >> 32) as u8, ..Self::FREE }
    }

    fn is_of(&self, response: u64) -> bool {
        let tagged = Self::tagged(response);
        self.worker_and_one != U16::ZERO && self.tag_low == tagged.tag_low && self.tag_high == tagged.tag_high
    }
}

/// The number of the page that a response is on, by the hash of its name; below [`PAGES`].
#[must_use]
pub const fn page_of(response: u64) -> usize {
    (response >> 40) as usize % PAGES
}

impl ResponsesPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<Vec<u8>>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if PREAMBLE.matches(&bytes)? && bytes.len() == size_of::<Page>() {
            return Ok(Self { bytes });
        }
        let page = Page { preamble: PREAMBLE, spare: [0; 2], held: [HeldResponse::FREE; HELD] };
        Ok(Self { bytes: page.as_bytes().to_vec() })
    }

    /// The bytes to store.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Who holds the response whose name has this hash; `None` if that was never recorded, or long ago.
    #[must_use]
    pub fn find(&self, response: u64) -> Option<Holder> {
        let page = Page::ref_from_bytes(&self.bytes).ok()?;
        let held = page.held.iter().find(|held| held.is_of(response))?;
        let worker = WorkerId(held.worker_and_one.get().checked_sub(1)?);
        Some(Holder { worker, address_tag: held.address_tag })
    }

    /// Records who holds a response. In a full page the one that was recorded longest ago is forgotten.
    pub fn record(&mut self, response: u64, holder: Holder) {
        let Ok(page) = Page::mut_from_bytes(&mut self.bytes) else { return };
        let Some(new) = HeldResponse::new(response, holder) else { return };
        let before = page.held.iter().position(|held| held.is_of(response)).unwrap_or(HELD - 1);
        if let Some(front) = page.held.get_mut(..=before) {
            front.rotate_right(1);
        }
        if let Some(first) = page.held.first_mut() {
            *first = new;
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    fn holder(worker: u16, address_tag: u8) -> Holder {
        Holder { worker: WorkerId(worker), address_tag }
    }

    fn empty() -> ResponsesPage {
        ResponsesPage::open(None).unwrap()
    }

    /// Names that are all on one page, as their hashes would be: only the tag differs.
    fn response(number: u32) -> u64 {
        u64::from(number) << 8 | 0x55
    }

    #[test]
    fn a_page_remembers_as_a_list_does_and_no_worker_is_found_that_was_not_recorded() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut page, mut list) = (empty(), Vec::new());
            for _ in 0..1_500 {
                let name = response(rng.below(800));
                let want = list.iter().find(|(held, _)| *held == name).map(|(_, holder)| *holder);
                assert_eq!(page.find(name), want, "seed {seed}");
                let next = holder(rng.below(3) as u16, rng.below(256) as u8);
                page.record(name, next);
                list.retain(|(held, _)| *held != name);
                list.insert(0, (name, next));
                list.truncate(HELD);
                assert_eq!(page.find(name), Some(next), "seed {seed}");
                // As another VM reads it.
                page = ResponsesPage::open(Some(page.into_bytes())).unwrap();
            }
            assert_eq!(list.len(), HELD, "the seeds fill the page");
        }
    }

    #[test]
    fn the_page_has_the_size_that_is_handed_over_cheaply_and_names_are_spread_over_all_pages() {
        assert_eq!(empty().into_bytes().len(), 4_096);
        let mut rng = Rng::new(1);
        let mut responses = [0_u32; PAGES];
        (0..6_400).for_each(|_| responses[page_of(rng.next_u64())] += 1);
        assert!(responses.iter().all(|count| (50..170).contains(count)), "{responses:?}");
    }

    #[test]
    fn the_first_and_the_last_worker_id_are_kept_apart_from_none() {
        let mut page = empty();
        assert_eq!(page.find(0), None, "a free place is nobody's");
        page.record(0, holder(0, 0));
        page.record(1, holder(u16::MAX - 1, 255));
        page.record(2, holder(u16::MAX, 1));
        assert_eq!([0, 1, 2].map(|name| page.find(name)), [Some(holder(0, 0)), Some(holder(u16::MAX - 1, 255)), None]);
    }

    #[test]
    fn a_newer_page_is_left_alone_and_whatever_cannot_be_read_is_begun_anew() {
        let newer = [b"WRRE".as_slice(), &[2, 0], &[0; 4_090]].concat();
        assert_eq!(ResponsesPage::open(Some(newer)).map(|_| ()), Err(PageError::Newer { version: 2 }));
        let mut page = empty();
        page.record(7, holder(1, 1));
        let bytes = page.into_bytes();
        for broken in [&bytes[..4_095], &bytes[1..], &[], &[0xff; 4_096]] {
            assert_eq!(ResponsesPage::open(Some(broken.to_vec())).unwrap().find(7), None);
        }
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = bytes.clone();
            (0..6).for_each(|_| bytes[6 + rng.below(4_090) as usize] = rng.below(256) as u8);
            let mut page = ResponsesPage::open(Some(bytes)).unwrap();
            let name = rng.next_u64();
            page.record(name, holder(3, 3));
            assert_eq!(page.find(name), Some(holder(3, 3)), "seed {seed}");
        }
    }
}
