//! Requests in flight, per VM and worker: what this gateway knows of the load without asking anyone.
//!
//! Layout: a header, then one slot per VM: its owner, its heartbeat, and one row per worker. Each VM holds the truth of
//! its own slot in memory and writes the whole slot, so a write that lost its race is mended by the next one. A reader adds up the slots whose heartbeat is fresh; what a dead VM held thus expires instead of leaking.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};
use crate::time::Timestamp;
use crate::worker::WORKERS_MAX;

const PREAMBLE: Preamble = Preamble::new(*b"WRIN", 1);

/// A slot whose heartbeat is older is a dead VM's: what it held no longer counts, and another VM may take it.
///
/// Heartbeats come every second; ten of them missed means that the thread is gone and not just busy.
pub const SLOT_EXPIRY_MS: u64 = 10_000;

/// VMs with requests in flight, at the most: Envoy's worker threads, twice while a binary is being replaced.
pub const SLOTS_MAX: usize = 128;

/// What is in flight at one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requests sent and not finished.
    pub requests: u32,
    /// Those of them whose first byte has not come yet: still in the queue, or being prefilled.
    pub prefilling: u32,
    /// Prompt tokens of the requests that are `prefilling`, as estimated from their bytes.
    pub prefill_tokens: u32,
    /// Prompt tokens of all `requests`: what their decoding has to attend to.
    pub context_tokens: u32,
}

impl Held {
    /// Adds `other`, field by field; saturates.
    pub fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.prefilling = self.prefilling.saturating_add(other.prefilling);
        self.prefill_tokens = self.prefill_tokens.saturating_add(other.prefill_tokens);
        self.context_tokens = self.context_tokens.saturating_add(other.context_tokens);
    }

    /// Takes `other` away, field by field; stops at 0.
    pub fn subtract(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.prefilling = self.prefilling.saturating_sub(other.prefilling);
        self.prefill_tokens = self.prefill_tokens.saturating_sub(other.prefill_tokens);
        self.context_tokens = self.context_tokens.saturating_sub(other.context_tokens);
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    workers: U16,
    slots: U16,
    /// Decisions made so far, wrapping: the turn of `round-robin`, the same for all threads.
    turn: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SlotHeader {
    owner: U64,
    heartbeat_ns: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Row {
    requests: U16,
    prefilling: U16,
    prefill_tokens: U32,
    context_tokens: U32,
}

impl Row {
    fn of(held: Held) -> Self {
        let narrow = |count: u32| U16::new(u16::try_from(count).unwrap_or(u16::MAX));
        Self {
            requests: narrow(held.requests),
            prefilling: narrow(held.prefilling),
            prefill_tokens: U32::new(held.prefill_tokens),
            context_tokens: U32::new(held.context_tokens),
        }
    }

    fn held(&self) -> Held {
        Held {
            requests: self.requests.get().into(),
            prefilling: self.prefilling.get().into(),
            prefill_tokens: self.prefill_tokens.get(),
            context_tokens: self.context_tokens.get(),
        }
    }
}

const HEADER_BYTES: usize = size_of::<Header>();
const SLOT_HEADER_BYTES: usize = size_of::<SlotHeader>();
const ROW_BYTES: usize = size_of::<Row>();

/// The page, checked: its length fits the slots and rows that its header names.
#[derive(Clone, Debug)]
pub struct InflightPage {
    bytes: Vec<u8>,
    workers: usize,
    slots: usize,
}

impl InflightPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<Vec<u8>>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if PREAMBLE.matches(&bytes)?
            && let Ok((header, _)) = Header::ref_from_prefix(&bytes)
        {
            let (workers, slots) = (usize::from(header.workers.get()), usize::from(header.slots.get()));
            let is_bounded = workers <= WORKERS_MAX && slots <= SLOTS_MAX;
            if is_bounded && bytes.len() == HEADER_BYTES + slots * slot_bytes(workers) {
                return Ok(Self { bytes, workers, slots });
            }
        }
        Ok(Self::empty(0))
    }

    fn empty(workers: usize) -> Self {
        let header = Header {
            preamble: PREAMBLE,
            workers: U16::new(u16::try_from(workers).unwrap_or(u16::MAX)),
            slots: U16::new(0),
            turn: U32::new(0),
        };
        Self { bytes: header.as_bytes().to_vec(), workers, slots: 0 }
    }

    /// Decisions made so far by all threads, wrapping.
    #[must_use]
    pub fn turn(&self) -> u32 {
        Header::ref_from_prefix(&self.bytes).map_or(0, |(header, _)| header.turn.get())
    }

    /// Counts one decision.
    pub fn advance_turn(&mut self) {
        if let Ok((header, _)) = Header::mut_from_prefix(&mut self.bytes) {
            header.turn = U32::new(header.turn.get().wrapping_add(1));
        }
    }

    /// Adds up into `totals`, by worker id, what VM `owner` holds and what the page says of all others whose slots are
    /// live; `totals` keeps its length, ids beyond it are left out. The page may lag behind what `owner` holds.
    pub fn add_up(&self, owner: u64, held: &[Held], now: Timestamp, totals: &mut [Held]) {
        totals.fill(Held::default());
        for (total, held) in totals.iter_mut().zip(held) {
            *total = *held;
        }
        for slot in self.slot_bytes() {
            let Ok((header, rows)) = SlotHeader::ref_from_prefix(slot) else { continue };
            if header.owner.get() != owner
                && is_live(header, now)
                && let Ok(rows) = <[Row]>::ref_from_bytes(rows)
            {
                for (total, row) in totals.iter_mut().zip(rows) {
                    total.add(row.held());
                }
            }
        }
    }

    /// Writes what VM `owner` holds, by worker id, into its slot, and sets its heartbeat to `now`.
    ///
    /// A VM without a slot takes an expired one, else a new one. Returns `false` when there are [`SLOTS_MAX`] live
    /// slots of other VMs: this VM's requests are then unseen by the others, which costs balance and nothing else.
    pub fn write_slot(&mut self, owner: u64, held: &[Held], now: Timestamp) -> bool {
        if held.len() > self.workers {
            self.widen(held.len().min(WORKERS_MAX));
        }
        let Some(index) = self.slot_of(owner, now) else { return false };
        let slot_bytes = slot_bytes(self.workers);
        let start = HEADER_BYTES + index * slot_bytes;
        let Some(slot) = self.bytes.get_mut(start..start + slot_bytes) else { return false };
        let Ok((header, rows)) = SlotHeader::mut_from_prefix(slot) else { return false };
        *header = SlotHeader { owner: U64::new(owner), heartbeat_ns: U64::new(now.as_ns()) };
        if let Ok(rows) = <[Row]>::mut_from_bytes(rows) {
            let mut held = held.iter().copied();
            for row in rows {
                *row = Row::of(held.next().unwrap_or_default());
            }
        }
        true
    }

    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes to store, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn slot_bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(slot_bytes(self.workers))
    }

    /// The slot that `owner` has, or may take; appends one if need be.
    fn slot_of(&mut self, owner: u64, now: Timestamp) -> Option<usize> {
        let headers = || self.slot_bytes().map(|slot| SlotHeader::read_from_prefix(slot).map(|(header, _)| header));
        let own = headers().position(|header| header.is_ok_and(|header| header.owner.get() == owner));
        let expired = || headers().position(|header| header.is_ok_and(|header| !is_live(&header, now)));
        if let Some(index) = own.or_else(expired) {
            return Some(index);
        }
        if self.slots >= SLOTS_MAX {
            return None;
        }
        self.slots += 1;
        self.bytes.resize(HEADER_BYTES + self.slots * slot_bytes(self.workers), 0);
        let slots = u16::try_from(self.slots).ok()?;
        let (header, _) = Header::mut_from_prefix(&mut self.bytes).ok()?;
        header.slots = U16::new(slots);
        Some(self.slots - 1)
    }

    /// Lays the page out anew for `workers` rows a slot; keeps all slots.
    fn widen(&mut self, workers: usize) {
        let mut wider = Self::empty(workers);
        for slot in self.slot_bytes() {
            wider.bytes.extend_from_slice(slot);
            wider.slots += 1;
            wider.bytes.resize(HEADER_BYTES + wider.slots * slot_bytes(workers), 0);
        }
        let turn = self.turn();
        if let Ok((header, _)) = Header::mut_from_prefix(&mut wider.bytes) {
            header.slots = U16::new(u16::try_from(wider.slots).unwrap_or(u16::MAX));
            header.turn = U32::new(turn);
        }
        *self = wider;
    }
}

const fn slot_bytes(workers: usize) -> usize {
    SLOT_HEADER_BYTES + workers * ROW_BYTES
}

fn is_live(header: &SlotHeader, now: Timestamp) -> bool {
    now.ms_between(Timestamp::from_ns(header.heartbeat_ns.get())) < SLOT_EXPIRY_MS
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);

    fn requests(count: u32) -> Held {
        Held { requests: count, prefilling: 1, prefill_tokens: 10, context_tokens: 20 }
    }

    fn totals(page: &InflightPage, workers: usize, now: Timestamp) -> Vec<u32> {
        let mut held = vec![Held::default(); workers];
        page.add_up(u64::MAX, &[], now, &mut held);
        held.iter().map(|held| held.requests).collect()
    }

    fn reopened(page: &InflightPage) -> InflightPage {
        InflightPage::open(Some(page.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn slots_add_up_and_a_rewrite_replaces() {
        let mut page = InflightPage::open(None).unwrap();
        assert!(page.write_slot(7, &[requests(2), requests(0)], NOW));
        assert!(page.write_slot(8, &[requests(1), requests(3)], NOW));
        assert_eq!(totals(&reopened(&page), 2, NOW), [3, 3]);
        assert!(page.write_slot(7, &[requests(0), requests(0)], NOW));
        assert_eq!(totals(&reopened(&page), 2, NOW), [1, 3]);
    }

    #[test]
    fn what_a_vm_itself_holds_counts_in_place_of_its_slot() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(2), requests(9)], NOW);
        page.write_slot(8, &[requests(1), requests(3)], NOW);
        let mut totals = [Held::default(); 3];
        page.add_up(7, &[requests(4), Held::default()], NOW, &mut totals);
        assert_eq!(totals.map(|held| held.requests), [5, 3, 0]);
    }

    #[test]
    fn what_a_dead_vm_held_expires_and_its_slot_is_taken_over() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(5)], NOW);
        let later = NOW.plus_ms(SLOT_EXPIRY_MS);
        assert_eq!(totals(&page, 1, later), [0]);
        page.write_slot(8, &[requests(1)], later);
        assert_eq!((page.slots, totals(&page, 1, later)), (1, vec![1]));
        // The VM was only slow: it finds its slot gone, takes another, and its truth is back.
        page.write_slot(7, &[requests(5)], later);
        assert_eq!(totals(&page, 1, later), [6]);
    }

    #[test]
    fn a_heartbeat_from_before_the_clock_stepped_back_is_no_sign_of_life() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(5)], NOW.plus_ms(3_600_000));
        assert_eq!(totals(&page, 1, NOW), [0]);
    }

    #[test]
    fn a_slot_that_is_taken_over_keeps_nothing_of_the_dead_vm() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(5), requests(6), requests(7)], NOW);
        let later = NOW.plus_ms(SLOT_EXPIRY_MS);
        page.write_slot(8, &[requests(1)], later);
        assert_eq!(totals(&page, 3, later), [1, 0, 0]);
    }

    #[test]
    fn counts_saturate_in_the_page() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(70_000)], NOW);
        assert_eq!(totals(&page, 1, NOW), [65_535]);
    }

    #[test]
    fn a_pool_that_grows_keeps_what_is_in_flight() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(5)], NOW);
        page.advance_turn();
        page.write_slot(8, &[requests(1), requests(2), requests(3)], NOW);
        let page = reopened(&page);
        assert_eq!((totals(&page, 3, NOW), page.turn()), (vec![6, 2, 3], 1));
    }

    #[test]
    fn a_full_page_refuses_a_new_vm_and_keeps_the_others() {
        let mut page = InflightPage::open(None).unwrap();
        for owner in 0..SLOTS_MAX as u64 {
            assert!(page.write_slot(owner, &[requests(1)], NOW));
        }
        assert!(!page.write_slot(999, &[requests(1)], NOW));
        assert_eq!(totals(&page, 1, NOW), [SLOTS_MAX as u32]);
    }

    #[test]
    fn any_bytes_open_without_a_panic() {
        let mut page = InflightPage::open(None).unwrap();
        page.write_slot(7, &[requests(5), requests(1)], NOW);
        for seed in 0..5_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = page.as_bytes().to_vec();
            let at = rng.below(bytes.len() as u32) as usize;
            bytes[at] = rng.next_u64() as u8;
            bytes.truncate(rng.below(bytes.len() as u32 + 20) as usize);
            if let Ok(mut page) = InflightPage::open(Some(bytes)) {
                page.write_slot(1, &[requests(1)], NOW);
                let _ = totals(&page, 4, NOW);
            }
        }
    }
}
