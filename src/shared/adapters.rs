//! Which LoRA adapters' requests were sent where of late: what no report tells yet.
//!
//! Written when a request for an adapter is sent, so that the next one, of any thread, finds the adapter there: a burst
//! between two scrapes stays together. A row counts for its own adapter only, until an answer confirms it: clients may ask for
//! any name. Whoever records reports takes what is confirmed into the fleet's memory of what is loaded
//! ([`super::fleet::Fleet::remember_sent`]), for a request may come and go between two scrapes. So the page has to reach back
//! one scrape only, and a full one forgets the oldest.
//!
//! A page of its own, and not a column of another one: where nobody uses adapters it is neither read nor written. Two
//! requests on two threads within some 50 us may miss each other, as they may in the index.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};
use crate::time::Timestamp;
use crate::worker::{AdapterHash, WorkerId};

const PREAMBLE: Preamble = Preamble::new(*b"WRAD", 1);

/// Pairs of adapter and worker that the page has room for: 4.3 KB.
pub const SENDINGS_MAX: usize = 256;

/// The last sending of a worker is not written anew for a request of the same adapter that follows within so many
/// milliseconds: the page says what it would say.
const REFRESH_MS: u64 = 50;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    sendings: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Row {
    adapter: U32,
    worker: U16,
    /// The lower half of the worker's generation.
    generation: U16,
    sent_ns: U64,
    /// 1 = the worker has served such a request in this life.
    is_confirmed: u8,
}

/// The last request for one adapter that was sent to one worker in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// For whom the request was.
    pub adapter: AdapterHash,
    /// To whom it was sent.
    pub worker: WorkerId,
    /// When.
    pub sent_at: Timestamp,
    /// Whether the worker has served a request for the adapter, this one or an earlier one.
    pub is_confirmed: bool,
    generation: u16,
}

impl Sending {
    /// Whether it was in the life that the worker has now. A worker's lives are counted up to 65,536 here.
    #[must_use]
    pub const fn is_of(&self, generation: u32) -> bool {
        self.generation == generation as u16
    }
}

/// The page, checked: its length fits the sendings that its header names.
#[derive(Clone, Debug)]
pub struct AdaptersPage {
    bytes: Vec<u8>,
}

impl Default for AdaptersPage {
    /// Nothing sent yet.
    fn default() -> Self {
        Self { bytes: Header { preamble: PREAMBLE, sendings: U16::ZERO }.as_bytes().to_vec() }
    }
}

impl AdaptersPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<Vec<u8>>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if PREAMBLE.matches(&bytes)?
            && let Ok((header, rows)) = Header::ref_from_prefix(&bytes)
            && usize::from(header.sendings.get()) <= SENDINGS_MAX
            && rows.len() == usize::from(header.sendings.get()) * size_of::<Row>()
        {
            return Ok(Self { bytes });
        }
        Ok(Self::default())
    }

    /// The bytes to store, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What was sent, in no order; one for each adapter and worker.
    pub fn sendings(&self) -> impl Iterator<Item = Sending> {
        self.rows().iter().map(Row::sending)
    }

    /// Notes that a request for `adapter` is sent to `worker`; returns whether that changed the page.
    pub fn note(&mut self, adapter: AdapterHash, worker: WorkerId, generation: u32, now: Timestamp) -> bool {
        let mut next = Row::new(adapter, worker, generation, now);
        let last = self.rows().iter().filter(|row| row.worker == next.worker).max_by_key(|row| row.sent_ns.get());
        if last.is_some_and(|last| last.says_already(&next)) {
            return false;
        }
        if let Some(known) = self.rows().iter().find(|row| row.is_same_life(&next)) {
            next.is_confirmed = known.is_confirmed;
        }
        self.put(next)
    }

    /// Notes that `worker` served a request for `adapter` that was sent at `sent_at`; returns whether that changed the page.
    pub fn confirm(&mut self, adapter: AdapterHash, worker: WorkerId, generation: u32, sent_at: Timestamp) -> bool {
        let mut next = Row { is_confirmed: 1, ..Row::new(adapter, worker, generation, sent_at) };
        match self.rows().iter().find(|row| row.is_same_life(&next)) {
            Some(known) if known.is_confirmed != 0 => return false,
            // A later one may be on its way.
            Some(known) => next.sent_ns = known.sent_ns,
            None => {}
        }
        self.put(next)
    }

    /// Writes the row over that of its adapter and worker, if there is one; returns whether it is in the page now.
    fn put(&mut self, next: Row) -> bool {
        let place = self.rows().iter().position(|row| row.is_pair(&next)).or_else(|| self.oldest_if_full());
        match (place, Header::mut_from_prefix(&mut self.bytes)) {
            (Some(place), Ok((_, rows))) => {
                let row = <[Row]>::mut_from_bytes(rows).ok().and_then(|rows| rows.get_mut(place));
                row.map(|row| *row = next).is_some()
            }
            (None, Ok((header, _))) => {
                header.sendings = U16::new(header.sendings.get().saturating_add(1));
                self.bytes.extend_from_slice(next.as_bytes());
                true
            }
            (_, Err(_)) => false,
        }
    }

    /// Takes back the sending of `sent_at`: the worker did not serve it. One that others' answers confirmed stays, and so
    /// does a later one. Returns whether that changed the page.
    pub fn forget(&mut self, adapter: AdapterHash, worker: WorkerId, sent_at: Timestamp) -> bool {
        let own = Row::new(adapter, worker, 0, sent_at);
        let is_it = |row: &Row| row.is_pair(&own) && row.sent_ns == own.sent_ns && row.is_confirmed == 0;
        let Some(place) = self.rows().iter().position(is_it) else { return false };
        let (start, row_bytes) = (size_of::<Header>() + place * size_of::<Row>(), size_of::<Row>());
        self.bytes.drain(start..start + row_bytes);
        if let Ok((header, _)) = Header::mut_from_prefix(&mut self.bytes) {
            header.sendings = U16::new(header.sendings.get().saturating_sub(1));
        }
        true
    }

    fn oldest_if_full(&self) -> Option<usize> {
        let rows = self.rows().iter().enumerate();
        let oldest = rows.min_by_key(|(_, row)| row.sent_ns.get()).map(|(place, _)| place);
        oldest.filter(|_| self.rows().len() >= SENDINGS_MAX)
    }

    fn rows(&self) -> &[Row] {
        let rows = Header::ref_from_prefix(&self.bytes).ok().map(|(_, rows)| rows);
        rows.and_then(|rows| <[Row]>::ref_from_bytes(rows).ok()).unwrap_or_default()
    }
}

impl Row {
    /// Of a request that is sent now.
    fn new(adapter: AdapterHash, worker: WorkerId, generation: u32, sent_at: Timestamp) -> Self {
        Self {
            adapter: U32::new(adapter.0),
            worker: U16::new(worker.0),
            generation: U16::new(generation as u16),
            sent_ns: U64::new(sent_at.as_ns()),
            is_confirmed: 0,
        }
    }

    fn sending(&self) -> Sending {
        Sending {
            adapter: AdapterHash(self.adapter.get()),
            worker: WorkerId(self.worker.get()),
            sent_at: Timestamp::from_ns(self.sent_ns.get()),
            is_confirmed: self.is_confirmed != 0,
            generation: self.generation.get(),
        }
    }

    fn is_same_life(&self, other: &Self) -> bool {
        self.is_pair(other) && self.generation == other.generation
    }

    fn is_pair(&self, other: &Self) -> bool {
        (self.adapter, self.worker) == (other.adapter, other.worker)
    }

    /// Whether this one, the last of its worker, tells what `next` would.
    fn says_already(&self, next: &Self) -> bool {
        let age_ms = next.sending().sent_at.ms_between(self.sending().sent_at);
        self.is_pair(next) && self.generation == next.generation && age_ms < REFRESH_MS
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);

    fn told(page: &AdaptersPage) -> Vec<(u32, u16, u64)> {
        let mut told: Vec<_> = page
            .sendings()
            .map(|sending| (sending.adapter.0, sending.worker.0, sending.sent_at.ms_between(NOW)))
            .collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn the_last_sending_of_each_adapter_and_worker_is_kept() {
        let mut page = AdaptersPage::open(None).unwrap();
        let note = |page: &mut AdaptersPage, adapter, worker, generation, ms| {
            page.note(AdapterHash(adapter), WorkerId(worker), generation, NOW.plus_ms(ms))
        };
        assert!(note(&mut page, 1, 0, 0, 0));
        assert!(!note(&mut page, 1, 0, 0, 49), "the page says so already");
        assert!(note(&mut page, 1, 0, 0, 50));
        assert!(note(&mut page, 2, 0, 0, 51));
        assert!(note(&mut page, 1, 0, 0, 52), "another one's came in between");
        assert!(note(&mut page, 1, 1, 7, 53));
        assert!(note(&mut page, 1, 1, 8, 54), "another life");
        let page = AdaptersPage::open(Some(page.into_bytes())).unwrap();
        assert_eq!(told(&page), [(1, 0, 52), (1, 1, 54), (2, 0, 51)]);
        let of_life = |generation| page.sendings().filter(|sending| sending.is_of(generation)).count();
        assert_eq!((of_life(0), of_life(7), of_life(8)), (2, 0, 1));
    }

    #[test]
    fn what_was_not_served_is_forgotten() {
        let mut page = AdaptersPage::default();
        for adapter in 0..3 {
            page.note(AdapterHash(adapter), WorkerId(5), 0, NOW);
        }
        assert!(!page.forget(AdapterHash(1), WorkerId(5), NOW.plus_ms(1)), "another one's");
        assert!(page.forget(AdapterHash(1), WorkerId(5), NOW));
        assert!(!page.forget(AdapterHash(1), WorkerId(5), NOW) && !page.forget(AdapterHash(2), WorkerId(4), NOW));
        assert_eq!(told(&AdaptersPage::open(Some(page.into_bytes())).unwrap()), [(0, 5, 0), (2, 5, 0)]);
    }

    #[test]
    fn what_was_confirmed_stays_so_for_the_workers_life_whatever_fails_later() {
        const ADAPTER: AdapterHash = AdapterHash(1);
        const WORKER: WorkerId = WorkerId(5);
        let confirmed = |page: &AdaptersPage| -> Vec<(bool, u64)> {
            page.sendings().map(|sending| (sending.is_confirmed, sending.sent_at.ms_between(NOW))).collect()
        };
        let mut page = AdaptersPage::default();
        page.note(ADAPTER, WORKER, 0, NOW);
        page.note(ADAPTER, WORKER, 0, NOW.plus_ms(100));
        assert_eq!(confirmed(&page), [(false, 100)]);
        assert!(page.confirm(ADAPTER, WORKER, 0, NOW) && !page.confirm(ADAPTER, WORKER, 0, NOW));
        assert_eq!(confirmed(&page), [(true, 100)], "the later one is on its way");
        page.note(ADAPTER, WORKER, 0, NOW.plus_ms(200));
        assert!(!page.forget(ADAPTER, WORKER, NOW.plus_ms(200)));
        let mut page = AdaptersPage::open(Some(page.into_bytes())).unwrap();
        assert_eq!(confirmed(&page), [(true, 200)]);
        page.note(ADAPTER, WORKER, 1, NOW.plus_ms(300));
        assert_eq!(confirmed(&page), [(false, 300)], "another life");
        assert!(page.forget(ADAPTER, WORKER, NOW.plus_ms(300)));
        assert!(page.confirm(ADAPTER, WORKER, 1, NOW.plus_ms(250)));
        assert_eq!(confirmed(&page), [(true, 250)], "the row was lost");
    }

    #[test]
    fn a_full_page_forgets_the_oldest() {
        let mut page = AdaptersPage::default();
        for adapter in 0..SENDINGS_MAX as u32 + 10 {
            page.note(AdapterHash(adapter), WorkerId(0), 0, NOW.plus_ms(adapter.into()));
        }
        let told = told(&page);
        assert_eq!((told.len(), told[0].0), (SENDINGS_MAX, 10));
    }

    #[test]
    fn a_newer_page_is_left_alone_and_any_bytes_open_without_a_panic() {
        let newer = Header { preamble: Preamble::new(*b"WRAD", 2), sendings: U16::ZERO };
        assert!(AdaptersPage::open(Some(newer.as_bytes().to_vec())).is_err());
        let mut kept = AdaptersPage::default();
        (0..5).for_each(|adapter| _ = kept.note(AdapterHash(adapter), WorkerId(0), 0, NOW));
        let kept = kept.into_bytes();
        for seed in 0..5_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = kept.clone();
            let at = rng.below(bytes.len() as u32) as usize;
            bytes[at] = rng.next_u64() as u8;
            bytes.truncate(rng.below(bytes.len() as u32 + 40) as usize);
            let Ok(mut page) = AdaptersPage::open(Some(bytes)) else { continue };
            page.note(AdapterHash(9), WorkerId(511), 3, NOW.plus_ms(1));
            assert!(page.sendings().any(|sending| sending.adapter == AdapterHash(9)), "seed {seed}");
            assert!(page.forget(AdapterHash(9), WorkerId(511), NOW.plus_ms(1)), "seed {seed}");
        }
    }
}
