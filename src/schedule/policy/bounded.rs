//! A key's home among the workers, as long as it is not too loaded: what `prefix-hash` and `session` share.

use super::pick_least_load;
use crate::config::reader::Section;
use crate::schedule::{Candidate, Picks, Query, Ranking, rendezvous_weight};

/// Rendezvous hashing with bounded loads.
///
/// A worker is within its bound when its requests, this one included, are at most
/// `max(loadFloorRequests, ceil(loadFactor * (requests of the pool + 1) / workers))`.
///
/// Source of the bound: Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads" (SODA 2018). The floor is
/// ours: with few requests in flight the mean is below one, and a bound near it would scatter what belongs together over
/// an idle pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundedHome {
    /// A worker may have this times the pool's mean; at least 1.
    pub(super) load_factor: f64,
    /// A worker may always have so many requests.
    pub(super) load_floor_requests: f64,
}

impl BoundedHome {
    /// Reads both keys; these defaults, and these words for the reference page.
    pub(super) fn read(section: &mut Section<'_>, default: Self, docs: [&'static str; 2]) -> Self {
        let floor = default.load_floor_requests as u32;
        Self {
            load_factor: section.f64("loadFactor", default.load_factor, 1.0..=100.0, docs[0]),
            load_floor_requests: f64::from(section.u32("loadFloorRequests", floor, 0..=100_000, docs[1])),
        }
    }

    /// Fills `picks`: the workers within their bound in the key's order, then the least loaded. Tells whether the key's
    /// home came first.
    pub(super) fn pick(&self, key: u64, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> bool {
        let bound_requests = self.bound_requests(candidates);
        let (mut within_bound, mut all) = (Ranking::default(), Ranking::default());
        for candidate in candidates {
            // `Ranking` wants the lowest: the complement of the weight is the tie-break of equal costs.
            let order = !rendezvous_weight(key, candidate.identity);
            all.offer(0.0, || order, candidate.worker);
            if candidate.load_requests + 1.0 <= bound_requests {
                within_bound.offer(0.0, || order, candidate.worker);
            }
        }
        within_bound.append_to(picks);
        // Over the bound is for retries only: the mean guarantees that somebody is within it.
        pick_least_load(query, candidates, picks);
        picks.first() == all.first()
    }

    fn bound_requests(&self, candidates: &[Candidate]) -> f64 {
        let requests: f64 = candidates.iter().map(|candidate| candidate.load_requests).sum();
        let mean = (requests + 1.0) / candidates.len() as f64;
        (self.load_factor * mean).ceil().max(self.load_floor_requests)
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::{Rng, mix};
    use crate::schedule::policy::testing::candidates;

    const BOUNDED: BoundedHome = BoundedHome { load_factor: 1.25, load_floor_requests: 4.0 };

    /// The ids picked, and whether the home came first.
    fn picked(key: u64, candidates: &[Candidate]) -> (Vec<u16>, bool) {
        let mut picks = Picks::default();
        let is_home = BOUNDED.pick(mix(key), &Query { random: 1, ..Query::default() }, candidates, &mut picks);
        (picks.as_slice().iter().map(|worker| worker.0).collect(), is_home)
    }

    #[test]
    fn a_key_keeps_its_home_up_to_the_bound_and_then_goes_to_the_next_in_its_order() {
        struct Case {
            name: &'static str,
            home_load: f64,
            other_load: f64,
            is_home: bool,
        }
        const CASES: &[Case] = &[
            Case { name: "idle pool", home_load: 0.0, other_load: 0.0, is_home: true },
            Case { name: "up to the floor", home_load: 3.0, other_load: 0.0, is_home: true },
            Case { name: "over the floor", home_load: 4.0, other_load: 0.0, is_home: false },
            Case { name: "all equally busy", home_load: 40.0, other_load: 40.0, is_home: true },
            Case { name: "within the factor", home_load: 48.0, other_load: 40.0, is_home: true },
            Case { name: "over the factor", home_load: 60.0, other_load: 40.0, is_home: false },
        ];
        for case in CASES {
            for key in 0..50 {
                let (order, _) = picked(key, &candidates(&[0.0; 4]));
                let mut loads = [case.other_load; 4];
                loads[order[0] as usize] = case.home_load;
                let (picks, is_home) = picked(key, &candidates(&loads));
                assert_eq!(is_home, case.is_home, "{} key {key}", case.name);
                assert_eq!(picks[0], if is_home { order[0] } else { order[1] }, "{} key {key}", case.name);
            }
        }
    }

    #[test]
    fn the_home_is_the_worker_that_the_key_draws_to_most() {
        let all = candidates(&[0.0; 5]);
        for key in 0..50 {
            let weight = |candidate: &&Candidate| rendezvous_weight(mix(key), candidate.identity);
            let home = all.iter().max_by_key(weight).unwrap().worker.0;
            assert_eq!(picked(key, &all).0[0], home, "key {key}");
        }
    }

    #[test]
    fn somebody_is_always_within_the_bound() {
        let strict = BoundedHome { load_factor: 1.0, load_floor_requests: 0.0 };
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let loads: Vec<f64> = (0..=rng.below(9)).map(|_| f64::from(rng.below(50))).collect();
            let candidates = candidates(&loads);
            let bound = strict.bound_requests(&candidates);
            assert!(loads.iter().any(|load| load + 1.0 <= bound), "seed {seed}: {loads:?}, bound {bound}");
        }
    }

    #[test]
    fn homes_do_not_depend_on_the_order_of_the_list() {
        let forward = candidates(&[0.0; 5]);
        let backward: Vec<Candidate> = forward.iter().rev().copied().collect();
        for key in 0..200 {
            assert_eq!(picked(key, &forward).0[0], picked(key, &backward).0[0]);
        }
    }

    #[test]
    fn a_worker_that_leaves_moves_only_its_own_keys_each_to_the_next_in_its_order() {
        let all = candidates(&[0.0; 5]);
        for key in 0..200 {
            let (before, _) = picked(key, &all);
            let (after, _) = picked(key, &all[1..]);
            assert_eq!(after[0], if before[0] == 0 { before[1] } else { before[0] }, "key {key}");
        }
    }
}
