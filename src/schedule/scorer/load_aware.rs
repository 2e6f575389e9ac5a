//! `load-aware-scorer`: a queue that is short by itself, not against the others'.

use super::signal::{known, worst};
use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "load-aware-scorer",
    doc: "a short queue by itself: an empty one scores 0.5, one of `threshold` requests 0",
    build: |section| {
        Box::new(LoadAware {
            threshold: f64::from(section.u32(
                "threshold",
                128,
                1..=1_000_000,
                "`load-aware-scorer`: a queue of so many requests scores 0",
            )),
        })
    },
};

/// `0.5 * (1 - min(queue, threshold) / threshold)`: 0.5 at the most, so that it weighs half of what its weight says.
///
/// Source: llm-d-router 0.10 `scorer/loadaware/load_aware.go`, with its default. There a worker that was never scraped
/// scores 0.5; here as the longest queue known, and 0 if nobody tells.
#[derive(Debug)]
struct LoadAware {
    threshold: f64,
}

impl Scorer for LoadAware {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        let longest = worst(candidates, |candidate| candidate.waiting).unwrap_or(self.threshold);
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let queue = known(candidate.waiting).unwrap_or(longest);
            *score = 0.5 * (1.0 - queue.min(self.threshold) / self.threshold);
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
    fn an_empty_queue_scores_a_half_and_one_at_the_threshold_nothing() {
        let scorer = LoadAware { threshold: 128.0 };
        let waiting = [Some(0.0), Some(32.0), Some(128.0), Some(500.0), None];
        let candidates = workers(5, |id, worker| worker.waiting = waiting[id]);
        assert_eq!(scored(&scorer, &Query::default(), &candidates), [0.5, 0.375, 0.0, 0.0, 0.0]);
        let short = workers(2, |id, worker| worker.waiting = [Some(64.0), None][id]);
        assert_eq!(scored(&scorer, &Query::default(), &short), [0.25, 0.25]);
        assert_eq!(scored(&scorer, &Query::default(), &workers(1, |_, _| {})), [0.0]);
    }
}
