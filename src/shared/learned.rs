//! What the answers have taught: how much each worker's cache keeps, who fails, how many bytes make a token.
//!
//! Every decision (odometers) and every answer changes it; each VM has a copy and writes now and then. Rows are by [`WorkerId`]; a row of an earlier generation
//! tells nothing of the worker that is there now.

mod failures;

pub use failures::FailureRecord;

use zerocopy::little_endian::{F32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};
use crate::config::HealthConfig;
use crate::time::Timestamp;
use crate::worker::{WORKERS_MAX, WorkerId};

const PREAMBLE: Preamble = Preamble::new(*b"WRLN", 2);

/// Bytes of prompt a token before anything was learned: English text has 4 to 5 in the current tokenizers.
pub const BYTES_PER_TOKEN: f32 = 4.0;

/// Bytes a token that are believed, whatever the engines say. What is outside is no text that says anything of others':
/// images that are many tokens, white space that is few.
const BYTES_PER_TOKEN_MIN: f32 = 2.0;
const BYTES_PER_TOKEN_MAX: f32 = 8.0;

/// Weight of a new sample in the averages of this page: they follow a change within some fifty requests.
const SAMPLE_WEIGHT: f32 = 0.02;

/// Range of [`LearnedWorker::capacity_factor`]. Source: the routing study that the default policy is from.
const CAPACITY_FACTOR_MIN: f32 = 0.01;
const CAPACITY_FACTOR_MAX: f32 = 8.0;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    workers: U16,
    bytes_per_token: F32,
    uncached_tokens: F32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Row {
    generation: U32,
    odometer: U32,
    capacity_factor: F32,
    cold_pick_ms: U64,
    failed_ms: U64,
    ejected_ms: U64,
    probed_ms: U64,
    rated_ms: U64,
    failed_share: F32,
    failures_in_a_row: u8,
    ejections: u8,
    is_marked: u8,
    tells_cached: u8,
}

/// What was learned of one worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedWorker {
    /// See [`crate::index::Retention::odometer`].
    pub odometer: u32,
    /// What its cache keeps over what its metrics say it has room for, 0.01 to 8: others' requests, answers and whatever
    /// else takes room make it smaller.
    pub capacity_factor: f32,
    /// The requests that it failed.
    pub failures: FailureRecord,
    /// When it last got a prompt that nobody had any of.
    pub cold_pick_at: Timestamp,
    /// Whether its answers ever told how many tokens were cached: then an answer that does not means none.
    pub tells_cached: bool,
}

impl Default for LearnedWorker {
    /// Nothing is known.
    fn default() -> Self {
        Self {
            odometer: 0,
            capacity_factor: 1.0,
            failures: FailureRecord::default(),
            cold_pick_at: Timestamp::default(),
            tells_cached: false,
        }
    }
}

impl LearnedWorker {
    /// Corrects what its cache keeps to `factor` times what it has room for.
    pub fn set_capacity_factor(&mut self, factor: f32) {
        if !factor.is_nan() {
            self.capacity_factor = factor.clamp(CAPACITY_FACTOR_MIN, CAPACITY_FACTOR_MAX);
        }
    }
}

/// The page, checked: its length fits the rows that its header names.
#[derive(Clone, Debug)]
pub struct LearnedPage {
    bytes: Vec<u8>,
}

impl Default for LearnedPage {
    /// Nothing learned yet.
    fn default() -> Self {
        let header = Header {
            preamble: PREAMBLE,
            workers: U16::ZERO,
            bytes_per_token: F32::new(BYTES_PER_TOKEN),
            uncached_tokens: F32::ZERO,
        };
        Self { bytes: header.as_bytes().to_vec() }
    }
}

impl LearnedPage {
    /// The page in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn open(bytes: Option<Vec<u8>>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if PREAMBLE.matches(&bytes)?
            && let Ok((header, rows)) = Header::ref_from_prefix(&bytes)
            && usize::from(header.workers.get()) <= WORKERS_MAX
            && rows.len() == usize::from(header.workers.get()) * size_of::<Row>()
        {
            return Ok(Self { bytes });
        }
        Ok(Self::default())
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

    /// Bytes of prompt that make a token, on average over the pool's requests.
    #[must_use]
    pub fn bytes_per_token(&self) -> f64 {
        let header = Header::ref_from_prefix(&self.bytes);
        let stored = header.map_or(BYTES_PER_TOKEN, |(header, _)| header.bytes_per_token.get());
        f64::from(if stored.is_nan() {
            BYTES_PER_TOKEN
        } else {
            stored.clamp(BYTES_PER_TOKEN_MIN, BYTES_PER_TOKEN_MAX)
        })
    }

    /// Tokens of a request that were in no cache, on average: what one of others' waiting requests is taken to cost.
    #[must_use]
    pub fn uncached_tokens(&self) -> f64 {
        let header = Header::ref_from_prefix(&self.bytes);
        header.map_or(0.0, |(header, _)| f64::from(header.uncached_tokens.get())).max(0.0)
    }

    /// An engine says that a prompt of so many bytes has so many tokens.
    pub fn learn_bytes_per_token(&mut self, prompt_bytes: u64, prompt_tokens: u32) {
        if prompt_tokens < SAMPLE_TOKENS_MIN {
            return;
        }
        let sample = (prompt_bytes as f32 / prompt_tokens as f32).clamp(BYTES_PER_TOKEN_MIN, BYTES_PER_TOKEN_MAX);
        let average = self.bytes_per_token() as f32;
        if let Ok((header, _)) = Header::mut_from_prefix(&mut self.bytes) {
            header.bytes_per_token = F32::new(average + SAMPLE_WEIGHT * (sample - average));
        }
    }

    /// Sets the average itself: for replays, which know the truth and err on purpose.
    pub fn set_bytes_per_token(&mut self, bytes_per_token: f64) {
        if let Ok((header, _)) = Header::mut_from_prefix(&mut self.bytes) {
            header.bytes_per_token = F32::new(bytes_per_token as f32);
        }
    }

    /// A request was sent of whose prompt so many tokens are taken to be in no cache.
    pub fn learn_uncached_tokens(&mut self, uncached_tokens: f64) {
        if let Ok((header, _)) = Header::mut_from_prefix(&mut self.bytes) {
            let (average, sample) = (header.uncached_tokens.get(), uncached_tokens as f32);
            let next = if average > 0.0 { average + SAMPLE_WEIGHT * (sample - average) } else { sample };
            header.uncached_tokens = F32::new(if next.is_finite() { next } else { 0.0 });
        }
    }

    /// What was learned of the worker in its present generation.
    #[must_use]
    pub fn worker(&self, id: WorkerId, generation: u32) -> LearnedWorker {
        self.rows_by_worker().get(usize::from(id.0), generation)
    }

    /// What was learned of many workers: the page is opened once for all of them.
    #[must_use]
    pub fn rows_by_worker(&self) -> LearnedRows<'_> {
        LearnedRows(self.rows())
    }

    /// Whether any worker is ejected, or was and may be being tried.
    #[must_use]
    pub fn has_failing(&self, now: Timestamp, health: &HealthConfig) -> bool {
        self.rows().iter().any(|row| row.is_marked != 0 && row.failures().is_on_trial(now, health))
    }

    /// Changes what was learned of the worker in one generation: nothing if something is known of a later one.
    pub fn change(&mut self, id: WorkerId, generation: u32, change: impl FnOnce(&mut LearnedWorker)) {
        let index = usize::from(id.0);
        // A VM whose fleet is a tick behind must not wipe out what is known of the worker's next life.
        let is_newer = |row: &Row| row.is_known() && is_later(row.generation.get(), generation);
        if index >= WORKERS_MAX || self.rows().get(index).is_some_and(is_newer) {
            return;
        }
        let mut learned = self.worker(id, generation);
        change(&mut learned);
        self.widen(index + 1);
        if let Ok((_, rows)) = Header::mut_from_prefix(&mut self.bytes)
            && let Ok(rows) = <[Row]>::mut_from_bytes(rows)
            && let Some(row) = rows.get_mut(index)
        {
            *row = Row::of(&learned, generation);
        }
    }

    fn rows(&self) -> &[Row] {
        let rows = Header::ref_from_prefix(&self.bytes).ok().map(|(_, rows)| rows);
        rows.and_then(|rows| <[Row]>::ref_from_bytes(rows).ok()).unwrap_or_default()
    }

    fn widen(&mut self, workers: usize) {
        if self.rows().len() >= workers {
            return;
        }
        let missing = workers - self.rows().len();
        for _ in 0..missing {
            let row = Row { generation: U32::new(NO_GENERATION), ..Row::default() };
            self.bytes.extend_from_slice(row.as_bytes());
        }
        if let Ok((header, _)) = Header::mut_from_prefix(&mut self.bytes) {
            header.workers = U16::new(u16::try_from(workers).unwrap_or(u16::MAX));
        }
    }
}

/// The generation of a row of which nothing is known. Generations begin at 0, and no worker has lived so often.
const NO_GENERATION: u32 = u32::MAX;

/// Whether a worker's life comes after the other one: generations are counted, and wrap.
const fn is_later(generation: u32, than: u32) -> bool {
    let lives = generation.wrapping_sub(than);
    0 < lives && lives <= u32::MAX / 2
}

/// What was learned of each worker.
#[derive(Clone, Copy, Debug)]
pub struct LearnedRows<'p>(&'p [Row]);

impl LearnedRows<'_> {
    /// What was learned of the worker with the number `id` in one generation.
    #[must_use]
    pub fn get(&self, id: usize, generation: u32) -> LearnedWorker {
        let row = self.0.get(id).filter(|row| row.generation.get() == generation);
        row.map(Row::learned).unwrap_or_default()
    }
}

impl Row {
    fn is_known(&self) -> bool {
        self.generation.get() != NO_GENERATION
    }

    fn learned(&self) -> LearnedWorker {
        let mut learned = LearnedWorker {
            odometer: self.odometer.get(),
            capacity_factor: 1.0,
            failures: self.failures(),
            cold_pick_at: Timestamp::from_ms(self.cold_pick_ms.get()),
            tells_cached: self.tells_cached != 0,
        };
        learned.set_capacity_factor(self.capacity_factor.get());
        learned
    }

    fn failures(&self) -> FailureRecord {
        let share = self.failed_share.get();
        FailureRecord {
            in_a_row: self.failures_in_a_row,
            share: if (0.0..=1.0).contains(&share) { share } else { 0.0 },
            rated_at: Timestamp::from_ms(self.rated_ms.get()),
            failed_at: Timestamp::from_ms(self.failed_ms.get()),
            is_marked: self.is_marked != 0,
            ejections: self.ejections,
            ejected_at: Timestamp::from_ms(self.ejected_ms.get()),
            probed_at: Timestamp::from_ms(self.probed_ms.get()),
        }
    }

    fn of(learned: &LearnedWorker, generation: u32) -> Self {
        let ms = |at: Timestamp| U64::new(at.as_ns() / 1_000_000);
        let failures = &learned.failures;
        Self {
            generation: U32::new(generation),
            odometer: U32::new(learned.odometer),
            capacity_factor: F32::new(learned.capacity_factor),
            cold_pick_ms: ms(learned.cold_pick_at),
            failed_ms: ms(failures.failed_at),
            ejected_ms: ms(failures.ejected_at),
            probed_ms: ms(failures.probed_at),
            rated_ms: ms(failures.rated_at),
            failed_share: F32::new(failures.share),
            failures_in_a_row: failures.in_a_row,
            ejections: failures.ejections,
            is_marked: failures.is_marked.into(),
            tells_cached: learned.tells_cached.into(),
        }
    }
}

/// Prompts shorter than this say little of bytes a token: the chat template weighs too much.
const SAMPLE_TOKENS_MIN: u32 = 32;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);
    const WORKER: WorkerId = WorkerId(2);

    fn page() -> LearnedPage {
        LearnedPage::open(None).unwrap()
    }

    #[test]
    fn what_was_learned_comes_back_and_is_of_one_generation() {
        let mut page = page();
        page.change(WORKER, 0, |worker| {
            worker.odometer = 7;
            worker.tells_cached = true;
            worker.set_capacity_factor(0.5);
            (0..2).for_each(|_| _ = worker.failures.fail(NOW, NOW, &HealthConfig::default()));
        });
        page.learn_uncached_tokens(300.0);
        let page = LearnedPage::open(Some(page.into_bytes())).unwrap();
        let worker = page.worker(WORKER, 0);
        assert_eq!((worker.odometer, worker.capacity_factor, worker.tells_cached), (7, 0.5, true));
        assert_eq!(page.worker(WORKER, 1), LearnedWorker::default());
        assert_eq!(page.worker(WorkerId(0), 0), LearnedWorker::default());
        assert_eq!(page.uncached_tokens(), 300.0);
    }

    #[test]
    fn what_is_learned_of_an_earlier_life_changes_nothing_of_a_later_one() {
        for (known, of, is_taken) in [
            (0, 0, true),
            (3, 4, true),
            (4, 3, false),
            (u32::MAX - 1, 0, true),
            (u32::MAX - 1, 3, true),
            (0, u32::MAX - 1, false),
            (3, u32::MAX - 1, false),
        ] {
            let (mut page, mut is_asked) = (page(), false);
            page.change(WORKER, known, |worker| worker.odometer = 7);
            let before = page.as_bytes().to_vec();
            page.change(WORKER, of, |worker| {
                is_asked = true;
                worker.odometer = 8;
            });
            assert_eq!((is_asked, page.as_bytes() != before), (is_taken, is_taken), "{of} after {known}");
        }
        let mut page = page();
        page.change(WORKER, 0, |_| ());
        page.change(WorkerId(0), u32::MAX / 2 + 9, |worker| worker.odometer = 7);
        assert_eq!(
            page.worker(WorkerId(0), u32::MAX / 2 + 9).odometer,
            7,
            "a row of which nothing is known is anybody's"
        );
    }

    #[test]
    fn a_record_of_failures_comes_back_as_it_was() {
        let at = |ms| NOW.plus_ms(ms);
        let record = FailureRecord {
            in_a_row: 4,
            share: 0.25,
            rated_at: at(1),
            failed_at: at(2),
            is_marked: true,
            ejections: 3,
            ejected_at: at(4),
            probed_at: at(5),
        };
        let mut page = page();
        page.change(WORKER, 0, |worker| worker.failures = record);
        let page = LearnedPage::open(Some(page.into_bytes())).unwrap();
        assert_eq!(page.worker(WORKER, 0).failures, record);
        let health = HealthConfig::default();
        assert!(page.has_failing(at(10), &health) && !page.has_failing(at(600_000), &health));
    }

    #[test]
    fn bytes_a_token_follow_what_the_engines_say_within_reason() {
        let mut learned = page();
        assert_eq!(learned.bytes_per_token(), 4.0);
        (0..200).for_each(|_| learned.learn_bytes_per_token(3_000, 1_000));
        assert!((learned.bytes_per_token() - 3.0).abs() < 0.05, "{}", learned.bytes_per_token());
        (0..2_000).for_each(|_| learned.learn_bytes_per_token(u64::MAX, 1_000));
        assert!((7.9..=8.0).contains(&learned.bytes_per_token()));
        let mut page = page();
        (0..200).for_each(|_| page.learn_bytes_per_token(3_000, 10));
        assert_eq!(page.bytes_per_token(), 4.0, "short prompts say nothing");
    }

    #[test]
    fn any_bytes_open_without_a_panic_and_give_numbers_in_range() {
        let mut kept = page();
        let health = HealthConfig::default();
        kept.change(WORKER, 0, |worker| _ = worker.failures.fail(NOW, NOW, &health));
        for seed in 0..5_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = kept.as_bytes().to_vec();
            for _ in 0..3 {
                let at = rng.below(bytes.len() as u32) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u32 + 40) as usize);
            let Ok(mut page) = LearnedPage::open(Some(bytes)) else { continue };
            assert!((2.0..=8.0).contains(&page.bytes_per_token()), "seed {seed}");
            assert!((0.01..=8.0).contains(&page.worker(WORKER, 0).capacity_factor), "seed {seed}");
            page.learn_uncached_tokens(1.0);
            let _ = page.has_failing(NOW, &health);
            page.change(WORKER, 0, |worker| _ = worker.failures.fail(NOW, NOW, &health));
            assert!((0.0..=1.0).contains(&page.worker(WORKER, 0).failures.share), "seed {seed}");
            page.change(WorkerId(511), 3, |worker| worker.odometer = 1);
            assert_eq!(page.worker(WorkerId(511), 3).odometer, 1, "seed {seed}");
        }
    }
}
