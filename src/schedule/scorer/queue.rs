//! `queue-scorer`: fewer requests in the engine's queue.

use super::signal::score_lowest_best;
use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "queue-scorer",
    doc: "fewer requests in the engine's queue: the shortest scores 1, the longest 0",
    build: |_| Box::new(Queue {}),
};

/// `(max - queue) / (max - min)` over the candidates; all equal 1.
///
/// Source: llm-d-router 0.10 `scorer/queuedepth/queue.go`. There a worker that was never scraped counts as one with an
/// empty queue and scores 1; here it scores as the longest queue known.
#[derive(Debug)]
struct Queue {}

impl Scorer for Queue {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        score_lowest_best(candidates, scores, |candidate| candidate.waiting);
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
    fn shorter_queues_score_higher_and_a_worker_never_scraped_as_the_longest() {
        let candidates = workers(4, |id, worker| worker.waiting = [Some(0.0), Some(2.0), Some(8.0), None][id]);
        assert_eq!(scored(&Queue {}, &Query::default(), &candidates), [1.0, 0.75, 0.0, 0.0]);
    }
}
