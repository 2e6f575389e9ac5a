//! The policies, one file each. To add one: write its file, add its two lines here.

mod least_load;
mod prefix_hash;
mod random;
mod round_robin;

use std::fmt;

use super::{Branch, Candidate, Picks, Query};
use crate::config::reader::Section;

/// Orders the candidates for one request.
pub trait Policy: fmt::Debug {
    /// Fills `picks` with up to [`super::PICKS_MAX`] of `candidates`, best first, at least one if there are any;
    /// says why the first came first.
    ///
    /// The same arguments give the same picks: chance comes in as [`Query::random`].
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch;

    /// Whether it uses [`Query::prefix`]; if not, the body is neither awaited nor read.
    fn reads_prompt(&self) -> bool;
}

/// A policy's entry in [`POLICIES`].
#[derive(Debug)]
pub struct PolicyRegistration {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it does, one line for the reference page.
    pub doc: &'static str,
    /// Builds it from its part of the configuration, reading (and so documenting) all keys that it has.
    pub build: fn(&mut Section<'_>) -> Box<dyn Policy>,
}

/// Every policy, by name. Configuration, reference page and the laws below find them here.
pub const POLICIES: &[PolicyRegistration] =
    &[least_load::REGISTRATION, prefix_hash::REGISTRATION, random::REGISTRATION, round_robin::REGISTRATION];

/// The registration of `least-load`, which needs no prompt, no report and no keys.
pub(crate) const LEAST_LOAD: PolicyRegistration = least_load::REGISTRATION;

/// What every policy falls back to: the least loaded first, equals in random order.
pub(super) fn pick_least_load(query: &Query, candidates: &[Candidate], picks: &mut Picks) {
    let mut ranking = super::Ranking::default();
    for candidate in candidates {
        let tie_break = crate::rng::mix(query.random ^ candidate.identity);
        ranking.offer(candidate.load_requests, tie_break, candidate.worker);
    }
    ranking.append_to(picks);
}

#[cfg(test)]
pub(crate) mod testing {
    //! Candidates and picks in the shortest form, for the policies' tests.

    use super::*;
    use crate::worker::WorkerId;

    /// The policy as an empty configuration has it.
    pub(crate) fn default_policy(registration: &PolicyRegistration) -> Box<dyn Policy> {
        crate::config::reader::read(&serde_json::json!({}), |section| (registration.build)(section)).unwrap()
    }

    /// Workers 0, 1, 2 … with these loads.
    pub(super) fn candidates(loads: &[f64]) -> Vec<Candidate> {
        let candidate = |(id, &load_requests): (usize, &f64)| Candidate {
            worker: WorkerId(id as u16),
            identity: crate::rng::mix(id as u64 + 1),
            load_requests,
            is_known: true,
        };
        loads.iter().enumerate().map(candidate).collect()
    }

    /// The ids picked, and why.
    pub(super) fn picked(policy: &dyn Policy, query: &Query, candidates: &[Candidate]) -> (Vec<u16>, Branch) {
        let mut picks = Picks::default();
        let branch = policy.pick(query, candidates, &mut picks);
        (picks.as_slice().iter().map(|worker| worker.0).collect(), branch)
    }
}

#[cfg(test)]
mod laws {
    //! What must hold for every registered policy, whatever the candidates.

    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::testing::{candidates, picked};
    use super::*;
    use crate::rng::Rng;
    use crate::schedule::PICKS_MAX;

    fn each(law: impl Fn(&'static str, &dyn Policy, u64)) {
        for registration in POLICIES {
            let policy = testing::default_policy(registration);
            for seed in 0..500 {
                law(registration.name, policy.as_ref(), seed);
            }
        }
    }

    fn random_case(seed: u64) -> (Query, Vec<Candidate>) {
        let mut rng = Rng::new(seed);
        let extremes = [0.0, 1.0, f64::MAX, f64::INFINITY, f64::NAN];
        let load = |rng: &mut Rng| match rng.below(10) {
            special @ 0..5 => extremes[special as usize],
            _ => f64::from(rng.below(100)),
        };
        let loads: Vec<f64> = (0..rng.below(20)).map(|_| load(&mut rng)).collect();
        let prefix = (rng.below(3) > 0).then(|| rng.next_u64());
        (Query { prefix, turn: rng.next_u64() as u32, random: rng.next_u64() }, candidates(&loads))
    }

    #[test]
    fn one_to_three_different_candidates_are_picked_if_there_are_any() {
        each(|name, policy, seed| {
            let (query, candidates) = random_case(seed);
            let (picks, _) = picked(policy, &query, &candidates);
            assert_eq!(picks.is_empty(), candidates.is_empty(), "{name} seed {seed}");
            assert!(picks.len() <= PICKS_MAX.min(candidates.len()), "{name} seed {seed}: {picks:?}");
            let mut unique = picks.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), picks.len(), "{name} seed {seed}: {picks:?}");
        });
    }

    #[test]
    fn the_same_question_has_the_same_answer() {
        each(|name, policy, seed| {
            let (query, candidates) = random_case(seed);
            assert_eq!(picked(policy, &query, &candidates), picked(policy, &query, &candidates), "{name} seed {seed}");
        });
    }
}
