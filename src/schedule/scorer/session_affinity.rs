//! `session-affinity-scorer`: the session's home.

use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query, rendezvous_weight};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "session-affinity-scorer",
    doc: "the worker that the client's session hashes to scores 1, the others 0",
    build: |_| Box::new(SessionAffinity {}),
};

/// The candidate that the session hashes to 1, the others 0; all 0 without a session.
///
/// The name is llm-d-router's (`scorer/sessionaffinity`), the way is not. There the answer carries a token that names the
/// worker, and the client sends it back: the session sticks to wherever it began, but only with clients that do so. Here
/// any text that the client keeps will do, nothing is sent back, and the session's worker is the one that its hash picks
/// among the candidates: all gateways agree, but the other scorers have no say in where a session begins, and when a
/// worker comes some of the sessions move to it.
#[derive(Debug)]
struct SessionAffinity {}

impl Scorer for SessionAffinity {
    fn score(&self, query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        let home = query.session.and_then(|session| {
            let weights = candidates.iter().map(|candidate| rendezvous_weight(session, candidate.identity));
            weights.max().map(|highest| (session, highest))
        });
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let is_home =
                home.is_some_and(|(session, highest)| rendezvous_weight(session, candidate.identity) == highest);
            *score = if is_home { 1.0 } else { 0.0 };
        }
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::schedule::scorer::testing::{scored, workers};

    #[test]
    fn a_session_has_one_home_and_sessions_spread() {
        let candidates = workers(4, |_, _| {});
        let mut homes = [0_u32; 4];
        for session in 0..400 {
            let query = Query { session: Some(crate::rng::mix(session)), ..Query::default() };
            let scores = scored(&SessionAffinity {}, &query, &candidates);
            assert_eq!(scores.iter().sum::<f64>(), 1.0, "session {session}: {scores:?}");
            let weight = |&id: &usize| rendezvous_weight(crate::rng::mix(session), candidates[id].identity);
            assert_eq!(scores[(0..4).max_by_key(weight).unwrap()], 1.0, "session {session}: {scores:?}");
            homes[scores.iter().position(|&score| score == 1.0).unwrap()] += 1;
        }
        assert!(homes.iter().all(|&count| (70..130).contains(&count)), "{homes:?}");
        assert_eq!(scored(&SessionAffinity {}, &Query::default(), &candidates), [0.0; 4]);
    }
}
