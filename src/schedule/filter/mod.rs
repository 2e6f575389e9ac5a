//! The filters of the `weighted` policy, one file each. To add one: write its file, add its two lines here.

mod lora_affinity;
mod prefix_cache_affinity;
mod utilization;

use std::fmt;

use super::policy::Needs;
use super::{Candidate, Query};
use crate::config::reader::Section;
use crate::worker::WORKERS_MAX;

/// Takes candidates away before the others are scored.
pub trait Filter: fmt::Debug {
    /// Sets to `false` whom it takes away. `kept` has a place for each candidate; at those that an earlier filter took
    /// away it is `false` already, and they are not to be looked at.
    ///
    /// Where it takes away all that were left, it counts as if it had taken away none.
    fn keep(&self, query: &Query, candidates: &[Candidate], kept: &mut [bool]);

    /// What it has to know of the request.
    fn needs(&self) -> Needs;
}

/// A filter's entry in [`FILTERS`].
#[derive(Debug)]
pub struct FilterRegistration {
    /// Its `type` in the configuration.
    pub name: &'static str,
    /// Whom it keeps, one line for the reference page.
    pub doc: &'static str,
    /// Builds it from its part of the configuration, reading (and so documenting) all keys that it has.
    pub build: fn(&mut Section<'_>) -> Box<dyn Filter>,
}

/// Every filter, by name. Configuration, reference page and the laws below find them here.
pub const FILTERS: &[FilterRegistration] =
    &[lora_affinity::REGISTRATION, prefix_cache_affinity::REGISTRATION, utilization::REGISTRATION];

/// The filter that a section's `type` names; `None` if it names none, which is then an error of the configuration.
pub(super) fn read_filter(section: &mut Section<'_>) -> Option<Box<dyn Filter>> {
    let names: Vec<&'static str> = FILTERS.iter().map(|registration| registration.name).collect();
    let name = section.required_one_of("type", &names, "the filter; its own keys stand beside its type");
    if section.is_describing() {
        for registration in FILTERS {
            (registration.build)(section);
        }
    }
    let chosen = FILTERS.iter().find(|registration| Some(registration.name) == name)?;
    Some((chosen.build)(section))
}

/// Sends the candidates through `filters`, one after the other. Each sees whom those before have kept, and one that would
/// keep nobody is passed over: there is always somebody to decide over, and nobody who was taken away comes back.
pub(super) fn keep_through(filters: &[Box<dyn Filter>], query: &Query, candidates: &[Candidate], kept: &mut [bool]) {
    let mut before = [false; WORKERS_MAX];
    let Some(before) = before.get_mut(..kept.len()) else {
        return;
    };
    for filter in filters {
        before.copy_from_slice(kept);
        filter.keep(query, candidates, kept);
        for (is_kept, was_kept) in kept.iter_mut().zip(&*before) {
            *is_kept &= was_kept;
        }
        if !kept.contains(&true) {
            kept.copy_from_slice(before);
        }
    }
}

/// The candidates that are still kept.
fn still_kept<'c>(candidates: &'c [Candidate], kept: &[bool]) -> impl Iterator<Item = &'c Candidate> {
    candidates.iter().zip(kept).filter(|(_, is_kept)| **is_kept).map(|(candidate, _)| candidate)
}

#[cfg(test)]
mod testing {
    //! Who is kept, in the shortest form.

    use super::*;

    /// The ids that are left.
    pub(super) fn kept_ids(filter: impl Filter + 'static, query: &Query, candidates: &[Candidate]) -> Vec<u16> {
        let mut kept = vec![true; candidates.len()];
        keep_through(&[Box::new(filter) as Box<dyn Filter>], query, candidates, &mut kept);
        still_kept(candidates, &kept).map(|candidate| candidate.worker.0).collect()
    }
}

#[cfg(test)]
mod laws {
    //! What must hold for every registered filter, whatever the candidates.

    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;
    use crate::schedule::policy::laws::random_case;

    fn each(law: impl Fn(&'static str, Box<dyn Filter>, u64)) {
        for registration in FILTERS {
            for seed in 0..300 {
                let build = |section: &mut Section<'_>| (registration.build)(section);
                law(registration.name, crate::config::reader::read(&serde_json::json!({}), build).unwrap(), seed);
            }
        }
    }

    #[test]
    fn somebody_is_left_and_nobody_comes_back() {
        each(|name, filter, seed| {
            let (query, candidates) = random_case(seed);
            let mut rng = Rng::new(seed);
            let before: Vec<bool> = candidates.iter().map(|_| rng.below(2) > 0).collect();
            let mut kept = before.clone();
            keep_through(&[filter], &query, &candidates, &mut kept);
            assert_eq!(kept.contains(&true), before.contains(&true), "{name} seed {seed}");
            let has_come_back = kept.iter().zip(&before).any(|(is_kept, was_kept)| *is_kept && !was_kept);
            assert!(!has_come_back, "{name} seed {seed}: {before:?} became {kept:?}");
        });
    }

    #[test]
    fn who_was_taken_away_is_not_looked_at() {
        each(|name, filter, seed| {
            let (query, mut candidates) = random_case(seed);
            let mut rng = Rng::new(seed);
            let before: Vec<bool> = candidates.iter().map(|_| rng.below(2) > 0).collect();
            let filters = [filter];
            let mut kept = before.clone();
            keep_through(&filters, &query, &candidates, &mut kept);
            for (candidate, _) in candidates.iter_mut().zip(&before).filter(|(_, was_kept)| !**was_kept) {
                candidate.matched_tokens = query.prompt_tokens;
                candidate.backlog_tokens = 0.0;
                candidate.waiting = Some(1e6);
                candidate.kv_usage = Some(1.0);
            }
            let mut again = before;
            keep_through(&filters, &query, &candidates, &mut again);
            assert_eq!(kept, again, "{name} seed {seed}");
        });
    }

    #[test]
    fn a_filter_that_would_keep_nobody_is_passed_over_and_one_that_brings_back_is_not_heard() {
        /// Sets every place to this.
        #[derive(Debug)]
        struct All(bool);
        impl Filter for All {
            fn keep(&self, _query: &Query, _candidates: &[Candidate], kept: &mut [bool]) {
                kept.fill(self.0);
            }

            fn needs(&self) -> Needs {
                Needs::Nothing
            }
        }
        let candidates = crate::schedule::policy::testing::candidates(&[0.0; 3]);
        for answer in [false, true] {
            let mut kept = [true, false, true];
            keep_through(&[Box::new(All(answer)) as Box<dyn Filter>], &Query::default(), &candidates, &mut kept);
            assert_eq!(kept, [true, false, true], "all set to {answer}");
        }
    }
}
