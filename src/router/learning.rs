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

    /// Reads the page, and writes into it what was learned here since. What loses its race again and again is given up: the
    /// averages hardly miss it.
    pub(super) fn sync(&mut self, store: &mut impl Store, key: &str, health: &HealthConfig, now: Timestamp) -> Outcome {
        self.synced_at = now;
        let lessons = std::mem::take(&mut self.lessons);
        let updated = update(store, key, |bytes| {
            let mut page = LearnedPage::open(bytes)?;
            let ejected = lessons.iter().filter(|lesson| lesson.apply(&mut page, health)).count();
            Ok(((!lessons.is_empty()).then(|| page.as_bytes().to_vec()), (page, ejected)))
        });
        match updated {
            Ok(((page, ejected), is_stored)) => {
                self.has_failing = page.has_failing(now, health);
                self.page = Some(page);
                if is_stored {
                    self.ejections = self.ejections.saturating_add(u32::try_from(ejected).unwrap_or(u32::MAX));
                }
                Ok(is_stored)
            }
            // On our own: what was learned here is in the copy, and nothing of others ever will be.
            Err(error) => Err(error),
        }
    }
}

/// Whether what was to be written is stored.
pub(super) type Outcome = Result<bool, PageError>;
