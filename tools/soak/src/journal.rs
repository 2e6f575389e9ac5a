//! What was done to whom and when, and what went wrong: the run's memory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::time::Instant;

use crate::fault::Fault;

/// Most violations of which the text is kept; a run that goes wrong goes wrong in the same way again and again.
const VIOLATIONS_MAX: usize = 50;

/// Something that must not happen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Violation {
    /// Seconds since the start.
    pub at_s: f64,
    /// What happened.
    pub what: String,
    /// The faults that were going on, or had ended in the stretch.
    pub faults: Vec<String>,
}

/// How often a kind of fault was injected, and how often it ended and nothing was violated until the next lull was over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Done.
    pub injected: u64,
    /// Done, healed, and nothing violated from then to the end of the lull that followed.
    pub survived: u64,
}

/// The journal of a run; all tasks write into it.
#[derive(Debug)]
pub struct Journal {
    start: Instant,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Of this stretch.
    entries: Vec<Entry>,
    counts: BTreeMap<&'static str, Count>,
    violations: Vec<Violation>,
    violations_total: u64,
    /// How many there were when the stretch began.
    violations_before: u64,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    worker: Option<SocketAddr>,
    is_breaking: bool,
    from: Instant,
    /// `None`: going on.
    to: Option<Instant>,
    violations_before: u64,
}

/// Names an entry of the stretch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryId(usize);

impl Journal {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), pages: Mutex::default() }
    }

    /// Seconds since the start.
    pub(crate) fn now_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// A fault begins.
    pub(crate) fn injected(&self, fault: &Fault, worker: Option<SocketAddr>) -> EntryId {
        let mut pages = self.pages();
        pages.counts.entry(fault.name).or_default().injected += 1;
        let violations_before = pages.violations_total;
        let (name, is_breaking) = (fault.name, fault.is_breaking);
        pages.entries.push(Entry { name, worker, is_breaking, from: Instant::now(), to: None, violations_before });
        EntryId(pages.entries.len() - 1)
    }

    /// It has ended.
    pub(crate) fn healed(&self, id: EntryId) {
        if let Some(entry) = self.pages().entries.get_mut(id.0) {
            entry.to = Some(Instant::now());
        }
    }

    /// Whether the worker was down or hanging at some time since `since`: then what it was answering may have been cut.
    pub(crate) fn was_broken(&self, worker: SocketAddr, since: Instant) -> bool {
        let is_so = |entry: &Entry| {
            entry.is_breaking && entry.worker == Some(worker) && entry.to.is_none_or(|healed| healed >= since)
        };
        self.pages().entries.iter().any(is_so)
    }

    /// Something that must not happen has happened.
    pub(crate) fn violated(&self, what: String) {
        let at_s = self.now_s();
        let mut pages = self.pages();
        pages.violations_total += 1;
        if pages.violations.len() < VIOLATIONS_MAX {
            let faults = pages.entries.iter().map(|entry| entry.told(self.start)).collect();
            pages.violations.push(Violation { at_s, what, faults });
        }
    }

    /// A lull is over: what has ended in the stretch before it has been survived, if nothing was violated since.
    pub(crate) fn end_stretch(&self) {
        let mut pages = self.pages();
        let pages = &mut *pages;
        for entry in pages.entries.drain(..) {
            if entry.to.is_some() && entry.violations_before == pages.violations_total {
                pages.counts.entry(entry.name).or_default().survived += 1;
            }
        }
        pages.violations_before = pages.violations_total;
    }

    /// Whether something was violated since the last call of [`Journal::end_stretch`].
    pub(crate) fn is_stretch_clean(&self) -> bool {
        let pages = self.pages();
        pages.violations_total == pages.violations_before
    }

    /// Faults that are going on now.
    pub(crate) fn going_on(&self) -> usize {
        self.pages().entries.iter().filter(|entry| entry.to.is_none()).count()
    }

    /// All faults so far, those of the stretch included.
    pub(crate) fn injected_total(&self) -> u64 {
        self.pages().counts.values().map(|count| count.injected).sum()
    }

    pub(crate) fn count(&self, name: &str) -> Count {
        self.pages().counts.get(name).copied().unwrap_or_default()
    }

    /// How many, and the first ones.
    pub(crate) fn violations(&self) -> (u64, Vec<Violation>) {
        let pages = self.pages();
        (pages.violations_total, pages.violations.clone())
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn told(&self, start: Instant) -> String {
        let at_s = |instant: Instant| instant.duration_since(start).as_secs_f64();
        let whom = self.worker.map_or_else(String::new, |worker| format!(" of {worker}"));
        let until = self.to.map_or_else(|| "going on".to_owned(), |to| format!("to {:.1} s", at_s(to)));
        format!("{}{whom} from {:.1} s, {until}", self.name, at_s(self.from))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fault::FAULTS;

    const KILL: &Fault = &FAULTS[0];

    #[test]
    fn a_fault_is_survived_only_if_it_ended_and_nothing_was_violated_since() {
        let journal = Journal::new();
        let violated_after = journal.injected(KILL, None);
        journal.healed(violated_after);
        journal.violated("lost".into());
        let clean = journal.injected(KILL, None);
        journal.healed(clean);
        journal.injected(KILL, None);
        assert!(!journal.is_stretch_clean());
        assert_eq!(journal.going_on(), 1);
        journal.end_stretch();
        assert!(journal.is_stretch_clean());
        assert_eq!(journal.count(KILL.name), Count { injected: 3, survived: 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_was_broken_only_from_its_fault_to_its_healing() {
        let (journal, worker, other) = (Journal::new(), SocketAddr::from(([127, 0, 0, 1], 1)), [127, 0, 0, 1]);
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        assert!(!journal.was_broken(worker, start));
        let id = journal.injected(KILL, Some(worker));
        assert!(journal.was_broken(worker, start + second) && !journal.was_broken((other, 2).into(), start));
        tokio::time::advance(2 * second).await;
        journal.healed(id);
        assert!(journal.was_broken(worker, start + second) && !journal.was_broken(worker, start + 3 * second));
    }

    #[test]
    fn a_flood_of_violations_is_counted_and_its_first_ones_are_told() {
        let journal = Journal::new();
        journal.injected(KILL, None);
        (0..200).for_each(|number| journal.violated(format!("number {number}")));
        let (total, first) = journal.violations();
        assert_eq!((total, first.len(), first[0].what.as_str()), (200, VIOLATIONS_MAX, "number 0"));
        assert!(first[0].faults[0].starts_with("kill from 0.0 s, going on"), "{:?}", first[0].faults);
    }
}
