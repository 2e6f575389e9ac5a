//! `running-requests-size-scorer`: fewer requests in the engine's running batch.

use super::signal::score_lowest_best;
use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "running-requests-size-scorer",
    doc: "fewer requests in the engine's running batch: the smallest scores 1, the largest 0",
    build: |_| Box::new(RunningRequests {}),
};

/// `(max - running) / (max - min)` over the candidates; all equal 1.
///
/// Source: llm-d-router 0.10 `scorer/runningrequests/runningrequest.go`. There a worker that was never scraped counts as
/// idle and scores 1; here it scores as the largest batch known.
#[derive(Debug)]
struct RunningRequests {}

impl Scorer for RunningRequests {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        score_lowest_best(candidates, scores, |candidate| candidate.running);
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
    fn smaller_batches_score_higher_whatever_the_queue() {
        let candidates = workers(4, |id, worker| {
            worker.running = [Some(4.0), Some(6.0), Some(8.0), None][id];
            worker.waiting = Some(10.0 - id as f64);
        });
        assert_eq!(scored(&RunningRequests {}, &Query::default(), &candidates), [1.0, 0.5, 0.0, 0.0]);
    }
}
