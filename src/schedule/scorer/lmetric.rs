//! `lmetric-scorer`: the lowest product of tokens to prefill and requests in the batch.

use super::signal::score_lowest_best;
use super::{Scorer, ScorerRegistration, uncached_tokens};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "lmetric-scorer",
    doc: "uncached prompt tokens times requests there, this one included: the lowest product scores 1, the highest 0",
    build: |_| Box::new(Lmetric {}),
};

/// `(max - cost) / (max - min)` over the candidates, `cost = uncached tokens * (requests + 1)`; 0 without a prompt.
///
/// Source: the LMetric paper (arXiv 2603.15202) and the scorer proposed to llm-d-router (pull request 2351). There the
/// requests are the picker's own; here others' count too, by the worker's report, for several gateways share the workers.
#[derive(Debug)]
struct Lmetric {}

impl Scorer for Lmetric {
    fn score(&self, query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        score_lowest_best(candidates, scores, |candidate| {
            (query.prompt_tokens > 0.0).then(|| uncached_tokens(query, candidate) * (candidate.load_requests + 1.0))
        });
    }

    fn needs(&self) -> Needs {
        Needs::Match
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::schedule::scorer::testing::{scored, workers};

    #[test]
    fn a_warm_worker_may_have_more_requests_by_as_much_as_it_saves() {
        let query = Query { prompt_tokens: 1_000.0, ..Query::default() };
        // Costs 1,000, 1,000, 3,000 and 5,000.
        let candidates = workers(4, |id, worker| {
            worker.matched_tokens = [0.0, 750.0, 0.0, 500.0][id];
            worker.load_requests = [0.0, 3.0, 2.0, 9.0][id];
        });
        assert_eq!(scored(&Lmetric {}, &query, &candidates), [1.0, 1.0, 0.5, 0.0]);
        assert_eq!(scored(&Lmetric {}, &Query::default(), &candidates), [0.0; 4]);
    }
}
