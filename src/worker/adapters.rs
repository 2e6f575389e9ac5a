//! A worker's LoRA adapters, and how well they suit a request.

use xxhash_rust::xxh3::xxh3_64;

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

/// What a request says of the adapter that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedAdapter {
    /// It names one apart from the model.
    Named(AdapterHash),
    /// It names a model, which may be an adapter that is served under a name like a model's.
    Model(AdapterHash),
}

/// Adapters of one list that are kept by name; further ones are only counted.
///
/// vLLM's `--max-loras` is 1 unless set (vLLM `vllm/config/lora.py`), and each place costs GPU memory: 16 is plenty.
pub const ADAPTERS_LISTED_MAX: usize = 16;

/// Some LoRA adapters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterList {
    count: u16,
    /// How many of them are kept by name.
    named: u16,
    /// Those; what is beyond `named` is zero, so that equal lists are equal bytes.
    hashes: [AdapterHash; ADAPTERS_LISTED_MAX],
}

impl AdapterList {
    /// No adapters.
    pub const EMPTY: Self = Self { count: 0, named: 0, hashes: [AdapterHash(0); ADAPTERS_LISTED_MAX] };

    /// A list of `count` adapters, of which `hashes` tells the first, or none: what [`Self::count`] and [`Self::listed`]
    /// gave.
    #[must_use]
    pub fn from_parts(count: u16, hashes: impl IntoIterator<Item = AdapterHash>) -> Self {
        let mut list = Self { count, ..Self::EMPTY };
        for (slot, hash) in list.hashes.iter_mut().zip(hashes).take(usize::from(count)) {
            *slot = hash;
            list.named += 1;
        }
        list
    }

    /// The list as one that names only some: that a name is not found means nothing then.
    #[must_use]
    pub const fn cut(self) -> Self {
        Self { count: u16::MAX, ..self }
    }

    /// Adapters in the list, listed or not; saturates at 65,535.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// The adapters that are kept by name, [`ADAPTERS_LISTED_MAX`] at the most.
    #[must_use]
    pub fn listed(&self) -> &[AdapterHash] {
        self.hashes.get(..usize::from(self.named)).unwrap_or(&self.hashes)
    }

    /// Whether the adapter is among those kept by name.
    #[must_use]
    pub fn contains(&self, adapter: AdapterHash) -> bool {
        self.listed().contains(&adapter)
    }

    /// Whether there are more adapters than are kept by name: that one is not found means nothing then.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.count > self.named
    }

    /// Takes in what `other` has and this one has not.
    pub fn merge(&mut self, other: &Self) {
        let mut missing = other.count;
        for adapter in other.listed() {
            missing = missing.saturating_sub(1);
            if !self.contains(*adapter) {
                self.push(*adapter);
            }
        }
        self.count = self.count.saturating_add(missing);
    }

    /// Puts the adapter first, as the one that was used last; then only the first `count_max` stay, and no more than are
    /// kept by name.
    pub fn put_first(&mut self, adapter: AdapterHash, count_max: u16) {
        let place = self.listed().iter().position(|listed| *listed == adapter);
        let kept_max = usize::from(count_max).clamp(1, ADAPTERS_LISTED_MAX);
        let count = (self.listed().len() + usize::from(place.is_none())).min(kept_max);
        // All up to its old place move one back; without one, all do and the last falls off the end.
        let moved = place.map_or(ADAPTERS_LISTED_MAX, |place| place + 1);
        if let Some(moved) = self.hashes.get_mut(..moved) {
            moved.rotate_right(1);
        }
        if let Some(first) = self.hashes.first_mut() {
            *first = adapter;
        }
        self.hashes.iter_mut().skip(count).for_each(|beyond| *beyond = AdapterHash(0));
        self.count = u16::try_from(count).unwrap_or(u16::MAX);
        self.named = self.count;
    }

    fn push(&mut self, adapter: AdapterHash) {
        if let Some(slot) = self.hashes.get_mut(usize::from(self.named)) {
            *slot = adapter;
            self.named += 1;
        }
        self.count = self.count.saturating_add(1);
    }
}

impl FromIterator<AdapterHash> for AdapterList {
    fn from_iter<I: IntoIterator<Item = AdapterHash>>(adapters: I) -> Self {
        let mut list = Self::EMPTY;
        adapters.into_iter().for_each(|adapter| list.push(adapter));
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
    /// Different adapters in one batch, at the most; above 0. The engine keeps as many in its GPU's memory.
    pub max: Option<u16>,
    /// Adapters of requests in the running batch.
    pub running: AdapterList,
    /// Adapters of requests in the queue; often some that are running too.
    pub waiting: AdapterList,
}

/// What this gateway sent a worker since its last report, as far as one adapter goes: the report cannot know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentSince {
    /// Whether requests for this adapter were sent.
    pub is_sent: bool,
    /// Other adapters of which a request was sent after the last one for this: they push it out.
    pub later: u16,
    /// Other adapters of which requests were sent and that the worker was not known to have: each needs a place.
    pub new: u16,
}

/// How well a worker's adapters suit a request, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterFit {
    /// The running batch uses the request's adapter.
    Running,
    /// It is in the worker's memory, or on its way there: it was used lately, or just sent there.
    Loaded,
    /// There is a place that no adapter has.
    Room,
    /// There is a place in the batch, but an adapter that is idle has to go.
    Replace,
    /// There is no place, but the adapter is waited for already.
    Waiting,
    /// There is no place: the request waits until another adapter has no more requests.
    Full,
    /// The worker did not tell.
    Unknown,
}

impl AdapterFit {
    /// All of them, best first.
    pub const ALL: [Self; 7] =
        [Self::Running, Self::Loaded, Self::Room, Self::Replace, Self::Waiting, Self::Full, Self::Unknown];
}

impl Adapters {
    /// Nothing told.
    pub const UNTOLD: Self = Self { max: None, running: AdapterList::EMPTY, waiting: AdapterList::EMPTY };

    /// Whether the worker said anything of adapters.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.max.is_some() || self.running.count > 0 || self.waiting.count > 0
    }

    /// How well the worker suits a request for `adapter`, by what it told alone.
    #[must_use]
    pub fn fit(&self, adapter: AdapterHash) -> AdapterFit {
        self.fit_with(adapter, &AdapterList::EMPTY, SentSince::default())
    }

    /// How well the worker suits a request for `adapter`. `loaded` = what it is believed to have in memory, last used
    /// first, as of the report; `sent` = what it was sent since.
    ///
    /// Source: the tiers of lora-affinity-scorer (llm-d-router, `scorer/loraaffinity/lora_affinity.go`), but for an
    /// adapter that runs and waits, which takes one place and counts as two there (vLLM's pages are full of those), and
    /// for what is idle and loaded, which engines do not tell.
    #[must_use]
    pub fn fit_with(&self, adapter: AdapterHash, loaded: &AdapterList, sent: SentSince) -> AdapterFit {
        if self.running.contains(adapter) {
            return AdapterFit::Running;
        }
        let places = usize::from(self.max.unwrap_or(ADAPTERS_LISTED_MAX as u16));
        let is_crowded = usize::from(self.running.count) >= places;
        if !is_crowded && is_kept(adapter, loaded, sent, places) {
            return AdapterFit::Loaded;
        }
        let new = usize::from(sent.new);
        if self.max.is_some() && self.places_taken() + new < places {
            let wanted = self.waiting.listed().iter().filter(|&&waiting| !loaded.contains(waiting)).count();
            // What runs is loaded, even if nobody has its name.
            let has_free_place = usize::from(loaded.count.max(self.running.count)) + wanted + new < places;
            return if has_free_place { AdapterFit::Room } else { AdapterFit::Replace };
        }
        // Where not all are listed it may run or wait all the same.
        let is_sure = self.max.is_some() && !self.running.is_cut();
        match self.waiting.contains(adapter) || sent.is_sent {
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

/// Whether the adapter is among the `places` that were used last.
///
/// Source: `LRUCacheLoRAModelManager` in `vllm/lora/model_manager.py`, which vLLM uses for what is on the GPU: the least
/// recently used adapter makes place for one that is not there (`LRUCacheWorkerLoRAManager`,
/// `vllm/lora/worker_manager.py`).
fn is_kept(adapter: AdapterHash, loaded: &AdapterList, sent: SentSince, places: usize) -> bool {
    if sent.is_sent {
        return usize::from(sent.later) < places;
    }
    let used_later = loaded.listed().iter().position(|listed| *listed == adapter);
    used_later.is_some_and(|used_later| used_later + usize::from(sent.new) < places)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    const NOT_SENT: SentSince = SentSince { is_sent: false, later: 0, new: 0 };

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
            // What runs was seen running, so it is remembered.
            assert_eq!(adapters.fit_with(AdapterHash::of(b"x"), &adapters.running, NOT_SENT), *fit, "{name}");
        }
    }

    #[test]
    fn what_is_idle_stays_loaded_until_others_push_it_out() {
        struct Case {
            name: &'static str,
            max: Option<u16>,
            running: &'static str,
            /// Last used first.
            loaded: &'static str,
            sent: SentSince,
            fit: AdapterFit,
        }
        const fn sent(is_sent: bool, later: u16, new: u16) -> SentSince {
            SentSince { is_sent, later, new }
        }
        #[rustfmt::skip]
        const CASES: &[Case] = &[
            Case { name: "idle", max: Some(1), running: "", loaded: "x", sent: NOT_SENT, fit: AdapterFit::Loaded },
            Case { name: "idle beside one that runs", max: Some(2), running: "a", loaded: "a,x", sent: NOT_SENT, fit: AdapterFit::Loaded },
            Case { name: "idle, places untold", max: None, running: "a", loaded: "a,x", sent: NOT_SENT, fit: AdapterFit::Loaded },
            Case { name: "pushed out since", max: Some(2), running: "", loaded: "a,x", sent: sent(false, 0, 1), fit: AdapterFit::Replace },
            Case { name: "another is pushed out", max: Some(2), running: "", loaded: "x,a", sent: sent(false, 0, 1), fit: AdapterFit::Loaded },
            Case { name: "just sent", max: Some(1), running: "", loaded: "", sent: sent(true, 0, 0), fit: AdapterFit::Loaded },
            Case { name: "just sent, and another after it", max: Some(1), running: "", loaded: "", sent: sent(true, 1, 1), fit: AdapterFit::Waiting },
            Case { name: "just sent, to a full batch", max: Some(1), running: "a", loaded: "a", sent: sent(true, 0, 0), fit: AdapterFit::Waiting },
            Case { name: "the only place is another's", max: Some(1), running: "", loaded: "a", sent: NOT_SENT, fit: AdapterFit::Replace },
            Case { name: "one place is nobody's", max: Some(2), running: "", loaded: "a", sent: NOT_SENT, fit: AdapterFit::Room },
            Case { name: "it was promised to another", max: Some(2), running: "", loaded: "a", sent: sent(false, 0, 1), fit: AdapterFit::Replace },
            Case { name: "all were promised", max: Some(2), running: "", loaded: "", sent: sent(false, 0, 2), fit: AdapterFit::Full },
            Case { name: "never seen, places untold", max: None, running: "", loaded: "a", sent: NOT_SENT, fit: AdapterFit::Unknown },
        ];
        for case in CASES {
            let adapters = Adapters { max: case.max, running: list(case.running), waiting: list("") };
            let fit = adapters.fit_with(AdapterHash::of(b"x"), &list(case.loaded), case.sent);
            assert_eq!(fit, case.fit, "{}", case.name);
        }
    }

    #[test]
    fn adapters_beyond_the_list_are_counted_and_what_is_not_listed_may_be_among_them() {
        let (cut, whole) = (many(17), many(16));
        assert_eq!((cut.count(), cut.listed().len(), whole.count()), (17, ADAPTERS_LISTED_MAX, 16));
        assert!(cut.contains(AdapterHash(15)) && !cut.contains(AdapterHash(16)));
        let fit = |max, running, waiting, adapter| {
            let adapters = Adapters { max: Some(max), running, waiting };
            adapters.fit(AdapterHash(adapter))
        };
        assert_eq!(fit(17, cut, many(0), 3), AdapterFit::Running);
        assert_eq!(fit(18, cut, many(0), 99), AdapterFit::Room);
        assert_eq!(fit(17, cut, many(0), 99), AdapterFit::Unknown);
        assert_eq!(fit(1, many(0), cut, 3), AdapterFit::Waiting);
        assert_eq!(fit(1, many(0), cut, 99), AdapterFit::Unknown);
        assert_eq!(fit(16, whole, many(0), 99), AdapterFit::Full);
        assert_eq!(many(70_000).count(), u16::MAX);
    }

    #[test]
    fn of_adapters_that_are_only_counted_none_is_known_not_to_run() {
        let fit = |taken, loaded: &str, sent| {
            let running = AdapterList::from_parts(taken, []);
            assert!(
                running.listed().is_empty() && running.is_cut() == (taken > 0) && !running.contains(AdapterHash(0))
            );
            let adapters = Adapters { max: Some(4), running, waiting: list("") };
            adapters.fit_with(AdapterHash::of(b"x"), &list(loaded), sent)
        };
        assert_eq!(fit(0, "", NOT_SENT), AdapterFit::Room);
        assert_eq!(fit(3, "", NOT_SENT), AdapterFit::Room);
        assert_eq!(fit(3, "x", NOT_SENT), AdapterFit::Loaded);
        assert_eq!(fit(3, "", SentSince { new: 1, ..NOT_SENT }), AdapterFit::Unknown);
        for sent in [NOT_SENT, SentSince { is_sent: true, ..NOT_SENT }] {
            assert_eq!(fit(4, "", sent), AdapterFit::Unknown, "full, perhaps of this one");
            assert_eq!(fit(4, "x", sent), AdapterFit::Unknown);
        }
        let mut named = AdapterList::from_parts(2, []);
        named.merge(&list("a"));
        assert!(named.count() == 3 && named.contains(AdapterHash::of(b"a")) && named.is_cut());
        assert!(list("a").cut().is_cut() && list("a").cut().contains(AdapterHash::of(b"a")));
    }

    #[test]
    fn a_list_comes_back_from_its_parts_and_forgets_what_is_beyond_its_count() {
        for list in [many(0), many(1), many(16), many(17)] {
            assert_eq!(AdapterList::from_parts(list.count(), list.listed().iter().copied()), list);
        }
        assert_eq!(AdapterList::from_parts(1, [AdapterHash(0), AdapterHash(9)]), many(1));
    }

    #[test]
    fn what_was_used_last_stands_first_and_the_least_recently_used_falls_off() {
        let mut used = AdapterList::EMPTY;
        for (name, count_max, want) in [
            ("a", 2, "a"),
            ("b", 2, "b,a"),
            ("a", 2, "a,b"),
            ("a", 2, "a,b"),
            ("c", 2, "c,a"),
            ("d", 3, "d,c,a"),
            ("c", 3, "c,d,a"),
            ("a", 1, "a"),
            ("b", 0, "b"),
        ] {
            used.put_first(AdapterHash::of(name.as_bytes()), count_max);
            assert_eq!(used, list(want), "{name} of {count_max}");
        }
        (0..40).for_each(|adapter| used.put_first(AdapterHash(adapter), u16::MAX));
        assert_eq!((used.count(), used.listed()[0], used.listed()[15]), (16, AdapterHash(39), AdapterHash(24)));
    }

    #[test]
    fn lists_merge_without_doubles_and_count_what_they_cannot_name() {
        let mut merged = list("a,b");
        merged.merge(&list("b,c"));
        assert_eq!(merged, list("a,b,c"));
        merged.merge(&many(16));
        assert!(merged.is_cut() && merged.contains(AdapterHash::of(b"a")));
        let mut of_a_cut_one = AdapterList::EMPTY;
        of_a_cut_one.merge(&many(20));
        assert_eq!(of_a_cut_one, many(20));
    }

    #[test]
    fn a_worker_told_of_adapters_if_it_gave_places_or_names() {
        assert!(!Adapters::UNTOLD.is_told() && Adapters::UNTOLD == Adapters::default());
        assert!(Adapters { max: Some(1), ..Adapters::UNTOLD }.is_told());
        assert!(Adapters { waiting: many(1), ..Adapters::UNTOLD }.is_told());
    }
}
