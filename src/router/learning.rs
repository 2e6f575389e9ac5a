//! What this VM knows of one pool's page of what was learned: as it was read last, with all that happened here since.
//!
//! Every request and every answer teaches something, and all of it is averages and counts that need not be exact to the
//! millisecond. So the page is read and written when the copy is older than [`SYNC_INTERVAL_MS`], and by the tick: under
//! load once for many requests, and not twice for each.

use super::lesson::{Event, Lesson};
use crate::config::HealthConfig;
use crate::shared::PageError;
use crate::shared::learned::{FailureRecord, LearnedPage};
use crate::shared::store::{Store, update};
use crate::time::Timestamp;
use crate::worker::WorkerId;

/// What other VMs learned is seen so much later, at the most.
const SYNC_INTERVAL_MS: u64 = 5;

/// Lessons that wait, at the most.
const LESSONS_MAX: usize = 128;

/// A copy of the page, and what it has that the page in the store has not.
#[derive(Debug, Default)]
pub(super) struct Learning {
    /// `None` before the first sync.
    page: Option<LearnedPage>,
    synced_at: Timestamp,
    /// Whether a worker is ejected: whoever tries it again must know what others tried.
    has_failing: bool,
    /// Workers ejected by what was written from here, until somebody counts them.
    ejections: u32,
    lessons: Vec<Lesson>,
}

impl Learning {
    /// The copy, brought up to date if it is old. Tells besides how a write went, if there was one.
    pub(super) fn page(
        &mut self,
        store: &mut impl Store,
        key: &str,
        health: &HealthConfig,
        now: Timestamp,
    ) -> (&LearnedPage, Outcome) {
        let is_old = self.page.is_none() || self.has_failing || now.ms_between(self.synced_at) >= SYNC_INTERVAL_MS;
        let outcome = if is_old { self.sync(store, key, health, now) } else { Ok(true) };
        (self.page.get_or_insert_default(), outcome)
    }

    /// Takes a lesson into the copy, and keeps it for the page. Returns whether so many wait that they have to be written.
    pub(super) fn note(&mut self, lesson: Lesson, health: &HealthConfig) -> bool {
        let page = self.page.get_or_insert_default();
        lesson.apply(page, health);
        if let Event::Failed { now, .. } = lesson.event {
            self.has_failing = page.has_failing(now, health);
        }
        self.lessons.push(lesson);
        self.lessons.len() >= LESSONS_MAX
    }

    /// Whether the copy has what the page has not.
    pub(super) const fn is_ahead(&self) -> bool {
        !self.lessons.is_empty()
    }

    /// What the copy says of a worker's failures.
    pub(super) fn failures(&self, worker: WorkerId, generation: u32) -> FailureRecord {
        self.page.as_ref().map(|page| page.worker(worker, generation).failures).unwrap_or_default()
    }

    /// How often a worker was ejected by what was written from here, since the last call. What other VMs write counts there:
    /// each ejection is in one write only, however many saw the failures.
    pub(super) const fn take_ejections(&mut self) -> u32 {
        std::mem::replace(&mut self.ejections, 0)
    }

    /// Reads the page, and writes into it what was learned here since. What loses its race again and again is given up, for the
    /// averages hardly miss it; but who failed and who served is written with the next sync.
    pub(super) fn sync(&mut self, store: &mut impl Store, key: &str, health: &HealthConfig, now: Timestamp) -> Outcome {
        self.synced_at = now;
        let mut lessons = std::mem::take(&mut self.lessons);
        let updated = update(store, key, |bytes| {
            let mut page = LearnedPage::open(bytes)?;
            let ejected = lessons.iter().filter(|lesson| lesson.apply(&mut page, health)).count();
            Ok(((!lessons.is_empty()).then(|| page.as_bytes().to_vec()), (page, ejected)))
        });
        match updated {
            Ok(((page, ejected), is_stored)) => {
                self.has_failing = page.has_failing(now, health);
                if is_stored {
                    self.ejections = self.ejections.saturating_add(u32::try_from(ejected).unwrap_or(u32::MAX));
                } else {
                    lessons.retain(|lesson| lesson.is_of_conduct(&page));
                    let oldest = lessons.len().saturating_sub(LESSONS_MAX);
                    lessons.drain(..oldest);
                    self.lessons = lessons;
                }
                self.page = Some(page);
                Ok(is_stored)
            }
            // On our own: what was learned here is in the copy, and nothing of others ever will be.
            Err(error) => Err(error),
        }
    }
}

/// Whether what was to be written is stored.
pub(super) type Outcome = Result<bool, PageError>;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::shared::store::{MemoryStore, Version};

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);
    const WORKER: WorkerId = WorkerId(1);

    /// A store whose writes lose so many races.
    struct Contended {
        inner: MemoryStore,
        races: usize,
    }

    impl Store for Contended {
        fn get(&mut self, key: &str) -> (Option<Vec<u8>>, Version) {
            self.inner.get(key)
        }

        fn set(&mut self, key: &str, bytes: &[u8], version: Version) -> bool {
            if self.races > 0 {
                self.races -= 1;
                return false;
            }
            self.inner.set(key, bytes, version)
        }
    }

    fn lesson(event: Event) -> Lesson {
        Lesson { worker: WORKER, generation: 0, event }
    }

    const fn failed(ms: u64) -> Event {
        Event::Failed { sent_at: NOW.plus_ms(ms), now: NOW.plus_ms(ms), was_begun: false }
    }

    const fn sent(ms: u64) -> Event {
        Event::Sent { spans: 1, uncached_tokens: None, is_cold: false, now: NOW.plus_ms(ms) }
    }

    fn stored(store: &mut Contended) -> FailureRecord {
        LearnedPage::open(store.get("page").0).unwrap().worker(WORKER, 0).failures
    }

    #[test]
    fn who_failed_is_written_later_where_a_write_loses_all_its_races() {
        let health = HealthConfig::default();
        let (mut learning, mut store) = (Learning::default(), Contended { inner: MemoryStore::default(), races: 4 });
        (0..3).for_each(|_| _ = learning.note(lesson(failed(0)), &health));
        assert_eq!(learning.sync(&mut store, "page", &health, NOW), Ok(false));
        assert!(learning.is_ahead(), "the next tick takes it along");
        assert_eq!((stored(&mut store).in_a_row, learning.failures(WORKER, 0).in_a_row), (0, 3));
        assert_eq!(learning.take_ejections(), 0);
        assert_eq!(learning.sync(&mut store, "page", &health, NOW), Ok(true));
        assert_eq!(
            (stored(&mut store).in_a_row, stored(&mut store).is_marked, learning.take_ejections()),
            (3, true, 1)
        );
        assert!(!learning.is_ahead());
        // Nor is the probe lost, nor that it served.
        store.races = 4;
        learning.note(lesson(sent(1_000)), &health);
        _ = learning.sync(&mut store, "page", &health, NOW.plus_ms(1_000));
        _ = learning.sync(&mut store, "page", &health, NOW.plus_ms(1_000));
        assert_eq!(stored(&mut store).probed_at, NOW.plus_ms(1_000));
        store.races = 4;
        learning.note(lesson(Event::Served { sent_at: NOW.plus_ms(1_000), now: NOW.plus_ms(1_001) }), &health);
        _ = learning.sync(&mut store, "page", &health, NOW.plus_ms(1_001));
        _ = learning.sync(&mut store, "page", &health, NOW.plus_ms(1_001));
        assert!(!stored(&mut store).is_marked);
    }

    #[test]
    fn what_waits_because_no_write_succeeds_is_bounded_and_averages_do_not_wait() {
        let health = HealthConfig::default();
        let (mut learning, mut store) =
            (Learning::default(), Contended { inner: MemoryStore::default(), races: usize::MAX });
        learning.note(lesson(sent(0)), &health);
        assert_eq!(learning.sync(&mut store, "page", &health, NOW), Ok(false));
        assert!(!learning.is_ahead(), "of a worker in good standing");
        for ms in 0..1_000 {
            learning.note(lesson(failed(ms)), &health);
            _ = learning.sync(&mut store, "page", &health, NOW.plus_ms(ms));
            assert!(learning.lessons.len() <= LESSONS_MAX);
        }
    }
}
