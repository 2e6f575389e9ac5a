//! `prefix-hash`: the worker that the prompt's prefix hashes to, unless it is too loaded (S7).
//!
//! Consistent hashing with bounded loads. What of the prompt is hashed adapts to the traffic: [`crate::shared::trunk`].

use super::{Policy, PolicyRegistration, pick_least_load};
use crate::schedule::{Branch, Candidate, Picks, Query, Ranking, rendezvous_weight};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "prefix-hash",
    doc: "the worker that the prompt's prefix hashes to, unless it is over its bound; then the next in the prefix's order",
    build: |section| {
        Box::new(PrefixHash {
            load_factor: section.f64(
                "loadFactor",
                1.25,
                1.0..=100.0,
                "a worker takes a prefix's request while its requests stay within this times the pool's mean",
            ),
            load_floor_requests: f64::from(section.u32(
                "loadFloorRequests",
                4,
                0..=100_000,
                "and always while they stay within this many, so that a quiet pool keeps its prefixes in place",
            )),
        })
    },
};

/// Rendezvous hashing with bounded loads.
///
/// A worker is within its bound when its requests, this one included, are at most
/// `max(loadFloorRequests, ceil(loadFactor * (requests of the pool + 1) / workers))`.
///
/// Source of the bound: Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads" (SODA 2018); the
/// factor's default is theirs and KubeAI's (`meanLoadFactor: 125`). The floor is ours: with few requests in flight the
/// mean is below one, and a bound near it would scatter conversations over an idle pool.
#[derive(Debug)]
struct PrefixHash {
    load_factor: f64,
    load_floor_requests: f64,
}

impl PrefixHash {
    fn bound_requests(&self, candidates: &[Candidate]) -> f64 {
        let requests: f64 = candidates.iter().map(|candidate| candidate.load_requests).sum();
        let mean = (requests + 1.0) / candidates.len() as f64;
        (self.load_factor * mean).ceil().max(self.load_floor_requests)
    }
}

impl Policy for PrefixHash {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        let Some(prefix) = query.prefix else {
            pick_least_load(query, candidates, picks);
            return Branch::NoPrefix;
        };
        let bound_requests = self.bound_requests(candidates);
        let (mut within_bound, mut all) = (Ranking::default(), Ranking::default());
        for candidate in candidates {
            // `Ranking` wants the lowest: the complement of the weight is the tie-break of equal costs.
            let order = !rendezvous_weight(prefix, candidate.identity);
            all.offer(0.0, order, candidate.worker);
            if candidate.load_requests + 1.0 <= bound_requests {
                within_bound.offer(0.0, order, candidate.worker);
            }
        }
        within_bound.append_to(picks);
        // Over the bound is for retries only: the mean guarantees that somebody is within it.
        pick_least_load(query, candidates, picks);
        if picks.first() == all.first() { Branch::Home } else { Branch::Spill }
    }

    fn reads_prompt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::{Rng, mix};
    use crate::schedule::policy::testing::{candidates, picked};

    const POLICY: PrefixHash = PrefixHash { load_factor: 1.25, load_floor_requests: 4.0 };

    fn query(prefix: u64) -> Query {
        Query { prefix: Some(mix(prefix)), random: 1, ..Query::default() }
    }

    #[test]
    fn a_prefix_keeps_its_home_up_to_the_bound_and_then_goes_to_the_next_in_its_order() {
        struct Case {
            name: &'static str,
            home_load: f64,
            other_load: f64,
            branch: Branch,
        }
        const CASES: &[Case] = &[
            Case { name: "idle pool", home_load: 0.0, other_load: 0.0, branch: Branch::Home },
            Case { name: "up to the floor", home_load: 3.0, other_load: 0.0, branch: Branch::Home },
            Case { name: "over the floor", home_load: 4.0, other_load: 0.0, branch: Branch::Spill },
            Case { name: "all equally busy", home_load: 40.0, other_load: 40.0, branch: Branch::Home },
            Case { name: "within the factor", home_load: 48.0, other_load: 40.0, branch: Branch::Home },
            Case { name: "over the factor", home_load: 60.0, other_load: 40.0, branch: Branch::Spill },
        ];
        for case in CASES {
            for prefix in 0..50 {
                let (order, _) = picked(&POLICY, &query(prefix), &candidates(&[0.0; 4]));
                let mut loads = [case.other_load; 4];
                loads[order[0] as usize] = case.home_load;
                let (picks, branch) = picked(&POLICY, &query(prefix), &candidates(&loads));
                assert_eq!(branch, case.branch, "{} prefix {prefix}", case.name);
                let want = if branch == Branch::Home { order[0] } else { order[1] };
                assert_eq!(picks[0], want, "{} prefix {prefix}", case.name);
            }
        }
    }

    #[test]
    fn somebody_is_always_within_the_bound() {
        let policy = PrefixHash { load_factor: 1.0, load_floor_requests: 0.0 };
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let loads: Vec<f64> = (0..=rng.below(9)).map(|_| f64::from(rng.below(50))).collect();
            let candidates = candidates(&loads);
            let bound = policy.bound_requests(&candidates);
            assert!(loads.iter().any(|load| load + 1.0 <= bound), "seed {seed}: {loads:?}, bound {bound}");
        }
    }

    #[test]
    fn homes_do_not_depend_on_the_order_of_the_list() {
        let forward = candidates(&[0.0; 5]);
        let backward: Vec<Candidate> = forward.iter().rev().copied().collect();
        for prefix in 0..200 {
            let query = query(prefix);
            assert_eq!(picked(&POLICY, &query, &forward).0[0], picked(&POLICY, &query, &backward).0[0]);
        }
    }

    #[test]
    fn without_a_prefix_the_least_loaded_serves() {
        let (picks, branch) = picked(&POLICY, &Query::default(), &candidates(&[2.0, 1.0]));
        assert_eq!((picks, branch), (vec![1, 0], Branch::NoPrefix));
    }
}
