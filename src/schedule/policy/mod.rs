//! The policies, one file each. To add one: write its file, add its two lines here.

mod bounded;
mod hybrid;
mod kv_utilization;
mod least_load;
mod prefix_cache;
mod prefix_hash;
mod random;
mod round_robin;
mod session;
mod tie_break;
mod weighted;

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

    /// What it has to know of the request.
    fn needs(&self) -> Needs;
}

/// What a policy has to know of a request, each more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Nothing: the body is neither awaited nor read.
    Nothing,
    /// The hash by which its prompt is known: [`Query::prefix`].
    Prefix,
    /// Also which worker holds how much of it: [`Candidate::matched_tokens`].
    Match,
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
pub const POLICIES: &[PolicyRegistration] = &[
    hybrid::REGISTRATION,
    kv_utilization::REGISTRATION,
    least_load::REGISTRATION,
    prefix_cache::REGISTRATION,
    prefix_hash::REGISTRATION,
    random::REGISTRATION,
    round_robin::REGISTRATION,
    session::REGISTRATION,
    weighted::REGISTRATION,
];

/// The registration of `least-load`, which needs no prompt, no report and no keys.
pub(crate) const LEAST_LOAD: PolicyRegistration = least_load::REGISTRATION;

/// What every policy falls back to: the least loaded first, equals in random order.
pub(super) fn pick_least_load(query: &Query, candidates: &[Candidate], picks: &mut Picks) {
    let mut ranking = super::Ranking::default();
    for candidate in candidates {
        let tie_break = || crate::rng::mix(query.random ^ candidate.identity);
        ranking.offer(candidate.load_requests, tie_break, candidate.worker);
    }
    ranking.append_to(picks);
}

#[cfg(test)]
pub(crate) mod testing {
    //! Candidates and picks in the shortest form, for the policies' tests.

    use super::*;
    use crate::time::Timestamp;
    use crate::worker::WorkerId;

    /// The policy as an empty configuration has it.
    pub(crate) fn default_policy(registration: &PolicyRegistration) -> Box<dyn Policy> {
        crate::config::reader::read(&serde_json::json!({}), |section| (registration.build)(section)).unwrap()
    }

    /// Workers 0, 1, 2 … with these loads.
    pub(crate) fn candidates(loads: &[f64]) -> Vec<Candidate> {
        loads.iter().enumerate().map(|(id, &load)| candidate(id as u16, load)).collect()
    }

    /// Worker `id` with so many requests, nothing else known.
    pub(crate) fn candidate(id: u16, load_requests: f64) -> Candidate {
        Candidate {
            worker: WorkerId(id),
            identity: crate::rng::mix(u64::from(id) + 1),
            load_requests,
            own_requests: load_requests as u32,
            backlog_tokens: 0.0,
            matched_tokens: 0.0,
            is_known: true,
            waiting: None,
            running: None,
            kv_usage: None,
            adapter: None,
            cold_pick_at: Timestamp::default(),
        }
    }

    /// The ids picked, and why.
    pub(crate) fn picked(policy: &dyn Policy, query: &Query, candidates: &[Candidate]) -> (Vec<u16>, Branch) {
        let mut picks = Picks::default();
        let branch = policy.pick(query, candidates, &mut picks);
        (picks.as_slice().iter().map(|worker| worker.0).collect(), branch)
    }
}

#[cfg(test)]
pub(crate) mod laws {
    //! What must hold for every registered policy, whatever the candidates.

    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::testing::{candidate, picked};
    use super::*;
    use crate::rng::Rng;
    use crate::schedule::PICKS_MAX;
    use crate::worker::AdapterFit;

    fn each(law: impl Fn(&'static str, &dyn Policy, u64)) {
        for registration in POLICIES {
            let policy = testing::default_policy(registration);
            for seed in 0..500 {
                law(registration.name, policy.as_ref(), seed);
            }
        }
    }

    pub(crate) fn random_case(seed: u64) -> (Query, Vec<Candidate>) {
        let mut rng = Rng::new(seed);
        let extremes = [0.0, 1.0, f64::MAX, f64::INFINITY, f64::NAN, -1.0];
        let number = |rng: &mut Rng| match rng.below(12) {
            special @ 0..6 => extremes[special as usize],
            _ => f64::from(rng.below(100)),
        };
        let mut candidates: Vec<Candidate> =
            (0..rng.below(20) as u16).map(|id| candidate(id, number(&mut rng))).collect();
        for candidate in &mut candidates {
            candidate.own_requests = rng.below(50);
            candidate.backlog_tokens = number(&mut rng) * 1_000.0;
            candidate.matched_tokens = number(&mut rng) * 100.0;
            candidate.waiting = (rng.below(3) > 0).then(|| number(&mut rng));
            candidate.running = (rng.below(3) > 0).then(|| number(&mut rng));
            candidate.kv_usage = (rng.below(3) > 0).then(|| number(&mut rng) / 50.0);
            candidate.adapter = AdapterFit::ALL.get(rng.below(AdapterFit::ALL.len() as u32 + 1) as usize).copied();
        }
        let query = Query {
            prefix: (rng.below(3) > 0).then(|| rng.next_u64()),
            session: (rng.below(3) == 0).then(|| rng.next_u64()),
            response_holder: None,
            is_blind: false,
            prompt_tokens: number(&mut rng) * 100.0,
            foreign_share: number(&mut rng) / 100.0,
            turn: rng.next_u64() as u32,
            random: rng.next_u64(),
        };
        (query, candidates)
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
