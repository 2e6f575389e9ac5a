//! One model server, and what it says of its load.

use xxhash_rust::xxh3::xxh3_64;

use crate::time::Timestamp;

/// A worker's stable small number within its pool: its row in the fleet and in-flight pages.
///
/// The same in all worker threads; kept for as long as the worker stays in the fleet page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// Workers of one pool, at the most: bounds the pages and every loop over workers.
///
/// 512 is the largest pool that the marks of the project speak of.
pub const WORKERS_MAX: usize = 512;

/// What a worker said of itself in one scrape. `None` = the page did not say, or said something that is no number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests in the engine's queue.
    pub waiting: Option<f64>,
    /// Requests in the engine's running batch.
    pub running: Option<f64>,
    /// Share of the KV-cache blocks in use, 0.0 (empty) to 1.0 (full; the engine starts to preempt).
    pub kv_usage: Option<f64>,
    /// Tokens in one KV-cache block.
    pub block_tokens: Option<f64>,
    /// KV-cache blocks in all.
    pub kv_blocks: Option<f64>,
    /// When the engine's process started, seconds since the Unix epoch. A change means that its cache is empty.
    pub started_at_s: Option<f64>,
    /// The LoRA adapters that its requests use.
    pub adapters: Adapters,
    /// The base models that it serves, hashed as adapters are, for requests call both "model". Empty = untold.
    pub models: AdapterList,
}

impl LoadReport {
    /// Of a worker that tells nothing.
    pub const UNKNOWN: Self = Self {
        waiting: None,
        running: None,
        kv_usage: None,
        block_tokens: None,
        kv_blocks: None,
        started_at_s: None,
        adapters: Adapters::UNTOLD,
        models: AdapterList::EMPTY,
    };

    /// Requests at the worker, in queue and batch; one of the two unknown counts as 0, `None` if both are.
    #[must_use]
    pub fn requests(&self) -> Option<f64> {
        match (self.waiting, self.running) {
            (None, None) => None,
            (waiting, running) => Some(waiting.unwrap_or_default() + running.unwrap_or_default()),
        }
    }

    /// Tokens that the KV cache holds, above 0; `None` if the report lacks the blocks or their size.
    #[must_use]
    pub fn kv_tokens(&self) -> Option<f64> {
        Some(self.kv_blocks? * self.block_tokens?)
    }
}

/// A LoRA adapter, by a hash of its name: half of XXH3-64.
///
/// Names have no bound and pages do. Two adapters of one worker that share a hash would only be taken for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterHash(pub u32);

impl AdapterHash {
    /// The adapter that requests and metrics call `name`.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let [a, b, c, d, ..] = xxh3_64(name).to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }
}

/// Adapters of one list that are kept by name; further ones are only counted.
///
/// vLLM's `--max-loras` is 1 unless set (vLLM `vllm/config/lora.py`), and each place costs GPU memory: 16 is plenty.
pub const ADAPTERS_LISTED_MAX: usize = 16;

/// Some LoRA adapters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterList {
    count: u16,
    /// The first of them; those beyond `count` are zero, so that equal lists are equal bytes.
    hashes: [AdapterHash; ADAPTERS_LISTED_MAX],
}

impl AdapterList {
    /// No adapters.
    pub const EMPTY: Self = Self { count: 0, hashes: [AdapterHash(0); ADAPTERS_LISTED_MAX] };

    /// A list of `count` adapters, of which `hashes` tells the first: what [`Self::count`] and [`Self::listed`] gave.
    #[must_use]
    pub fn from_parts(count: u16, hashes: impl IntoIterator<Item = AdapterHash>) -> Self {
        let mut list = Self { count, ..Self::EMPTY };
        for (slot, hash) in list.hashes.iter_mut().zip(hashes).take(usize::from(count)) {
            *slot = hash;
        }
        list
    }

    /// Adapters in the list, listed or not; saturates at 65,535.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// The adapters that are kept by name, [`ADAPTERS_LISTED_MAX`] at the most.
    #[must_use]
    pub fn listed(&self) -> &[AdapterHash] {
        self.hashes.get(..usize::from(self.count)).unwrap_or(&self.hashes)
    }

    /// Whether the adapter is among those kept by name.
    #[must_use]
    pub fn contains(&self, adapter: AdapterHash) -> bool {
        self.listed().contains(&adapter)
    }

    /// Whether there are more adapters than are kept by name: that one is not found then means nothing.
    const fn is_cut(&self) -> bool {
        self.count as usize > ADAPTERS_LISTED_MAX
    }
}

impl FromIterator<AdapterHash> for AdapterList {
    fn from_iter<I: IntoIterator<Item = AdapterHash>>(adapters: I) -> Self {
        let mut list = Self::EMPTY;
        for adapter in adapters {
            if let Some(slot) = list.hashes.get_mut(usize::from(list.count)) {
                *slot = adapter;
            }
            list.count = list.count.saturating_add(1);
        }
        list
    }
}

/// The LoRA adapters that a worker's requests use. The default is a worker that told nothing of them.
///
/// Of activity, not of residency: an adapter that no request uses may still be in the worker's memory.
///
/// Source: the LoRA part of the model server protocol (Gateway API Inference Extension, proposal 003).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    /// Different adapters in one batch, at the most; above 0.
    pub max: Option<u16>,
    /// Adapters of requests in the running batch.
    pub running: AdapterList,
    /// Adapters of requests in the queue; often some that are running too.
    pub waiting: AdapterList,
}

/// How well a worker's adapters suit a request, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterFit {
    /// The running batch uses the request's adapter.
    Running,
    /// One more adapter has a place in the batch.
    Room,
    /// There is no place, but the adapter is waited for already.
    Waiting,
    /// There is no place: the request waits until another adapter has no more requests.
    Full,
    /// The worker did not tell.
    Unknown,
}

impl AdapterFit {
    /// All of them, best first.
    pub const ALL: [Self; 5] = [Self::Running, Self::Room, Self::Waiting, Self::Full, Self::Unknown];
}

impl Adapters {
    /// Nothing told.
    pub const UNTOLD: Self = Self { max: None, running: AdapterList::EMPTY, waiting: AdapterList::EMPTY };

    /// Whether the worker said anything of adapters.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.max.is_some() || self.running.count > 0 || self.waiting.count > 0
    }

    /// How well the worker suits a request for `adapter`.
    ///
    /// Source: the tiers of lora-affinity-scorer (llm-d-router, `scorer/loraaffinity/lora_affinity.go`), but for an
    /// adapter that runs and waits, which takes one place and counts as two there. vLLM's pages are full of those.
    #[must_use]
    pub fn fit(&self, adapter: AdapterHash) -> AdapterFit {
        if self.running.contains(adapter) {
            return AdapterFit::Running;
        }
        if self.max.is_some_and(|max| self.places_taken() < usize::from(max)) {
            return AdapterFit::Room;
        }
        // Where not all are listed it may run or wait all the same.
        let is_sure = self.max.is_some() && !self.running.is_cut();
        match self.waiting.contains(adapter) {
            true if is_sure => AdapterFit::Waiting,
            false if is_sure && !self.waiting.is_cut() => AdapterFit::Full,
            _ => AdapterFit::Unknown,
        }
    }

    /// Different adapters that run or wait; rather too many where not all are listed.
    fn places_taken(&self) -> usize {
        let both = self.waiting.listed().iter().filter(|&&adapter| self.running.contains(adapter)).count();
        usize::from(self.running.count) + usize::from(self.waiting.count) - both
    }
}

/// A report and when it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DatedReport {
    /// When the scrape was answered.
    pub taken_at: Timestamp,
    /// What it said.
    pub report: LoadReport,
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    fn list(names: &str) -> AdapterList {
        names.split_terminator(',').map(|name| AdapterHash::of(name.as_bytes())).collect()
    }

    fn many(count: u32) -> AdapterList {
        (0..count).map(AdapterHash).collect()
    }

    #[test]
    fn a_running_adapter_fits_best_and_a_full_batch_worst() {
        type Case = (&'static str, Option<u16>, &'static str, &'static str, AdapterFit);
        const CASES: &[Case] = &[
            ("running", Some(1), "x", "", AdapterFit::Running),
            ("running beats room", Some(4), "a,x", "", AdapterFit::Running),
            ("running beats waiting", Some(1), "x", "x", AdapterFit::Running),
            ("nothing runs", Some(1), "", "", AdapterFit::Room),
            ("room beats waiting", Some(3), "a", "x", AdapterFit::Room),
            ("one place left", Some(3), "a", "b", AdapterFit::Room),
            ("who runs and waits takes one place", Some(2), "a", "a", AdapterFit::Room),
            ("the last place is waited for", Some(2), "a", "b", AdapterFit::Full),
            ("waiting", Some(2), "a", "b,x", AdapterFit::Waiting),
            ("full", Some(2), "a,b", "", AdapterFit::Full),
            ("nothing told", None, "", "", AdapterFit::Unknown),
            ("running, places untold", None, "x", "", AdapterFit::Running),
            ("waiting, places untold", None, "a", "x", AdapterFit::Unknown),
            ("others only, places untold", None, "a", "", AdapterFit::Unknown),
        ];
        for (name, max, running, waiting, fit) in CASES {
            let adapters = Adapters { max: *max, running: list(running), waiting: list(waiting) };
            assert_eq!(adapters.fit(AdapterHash::of(b"x")), *fit, "{name}");
        }
    }

    #[test]
    fn adapters_beyond_the_list_are_counted_and_what_is_not_listed_may_be_among_them() {
        let (cut, whole) = (many(17), many(16));
        assert_eq!((cut.count(), cut.listed().len(), whole.count()), (17, ADAPTERS_LISTED_MAX, 16));
        assert!(cut.contains(AdapterHash(15)) && !cut.contains(AdapterHash(16)));
        let fit =
            |max, running, waiting, adapter| Adapters { max: Some(max), running, waiting }.fit(AdapterHash(adapter));
        assert_eq!(fit(17, cut, many(0), 3), AdapterFit::Running);
        assert_eq!(fit(18, cut, many(0), 99), AdapterFit::Room);
        assert_eq!(fit(17, cut, many(0), 99), AdapterFit::Unknown);
        assert_eq!(fit(1, many(0), cut, 3), AdapterFit::Waiting);
        assert_eq!(fit(1, many(0), cut, 99), AdapterFit::Unknown);
        assert_eq!(fit(16, whole, many(0), 99), AdapterFit::Full);
        assert_eq!(many(70_000).count(), u16::MAX);
    }

    #[test]
    fn a_list_comes_back_from_its_parts_and_forgets_what_is_beyond_its_count() {
        for list in [many(0), many(1), many(16), many(17)] {
            assert_eq!(AdapterList::from_parts(list.count(), list.listed().iter().copied()), list);
        }
        assert_eq!(AdapterList::from_parts(1, [AdapterHash(0), AdapterHash(9)]), many(1));
    }

    #[test]
    fn a_worker_told_of_adapters_if_it_gave_places_or_names() {
        assert!(!Adapters::UNTOLD.is_told() && Adapters::UNTOLD == Adapters::default());
        assert!(Adapters { max: Some(1), ..Adapters::UNTOLD }.is_told());
        assert!(Adapters { waiting: many(1), ..Adapters::UNTOLD }.is_told());
    }

    #[test]
    fn the_cache_holds_its_blocks_times_their_tokens() {
        let report = LoadReport { kv_blocks: Some(1_000.0), block_tokens: Some(16.0), ..LoadReport::default() };
        assert_eq!(report.kv_tokens(), Some(16_000.0));
        assert_eq!(LoadReport { kv_blocks: None, ..report }.kv_tokens(), None);
        assert_eq!(LoadReport { block_tokens: None, ..report }.kv_tokens(), None);
    }
}
