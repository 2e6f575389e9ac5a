//! `token-load-scorer`: fewer prompt tokens to prefill, this request's included.

use super::{Scorer, ScorerRegistration, uncached_tokens};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "token-load-scorer",
    doc: "fewer prompt tokens to prefill, this request's uncached ones included: none scores 1, `queueThresholdTokens` 0",
    build: |section| {
        Box::new(TokenLoad {
            threshold_tokens: f64::from(section.u32(
                "queueThresholdTokens",
                4_194_304,
                1..=1_000_000_000,
                "`token-load-scorer`: so many prompt tokens to prefill score 0",
            )),
        })
    },
};

/// `1 - min(1, (backlog + uncached tokens of this request) / queueThresholdTokens)`.
///
/// Source: llm-d-router 0.10 `scorer/tokenload/token_load.go`, with its default: 128 requests of 32,768 tokens. The backlog
/// of a worker whose queue is not known counts as much as the longest known, see [`Candidate::backlog_tokens`]; there
/// it counts as none.
#[derive(Debug)]
struct TokenLoad {
    threshold_tokens: f64,
}

impl Scorer for TokenLoad {
    fn score(&self, query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let tokens = candidate.backlog_tokens + uncached_tokens(query, candidate);
            *score = 1.0 - tokens / self.threshold_tokens;
        }
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
    fn fewer_tokens_to_prefill_score_higher_and_cached_ones_do_not_count() {
        let scorer = TokenLoad { threshold_tokens: 1_000.0 };
        let candidates = workers(4, |id, worker| {
            worker.backlog_tokens = [0.0, 0.0, 250.0, 5_000.0][id];
            worker.matched_tokens = [0.0, 250.0, 500.0, 500.0][id];
        });
        let query = Query { prompt_tokens: 500.0, ..Query::default() };
        assert_eq!(scored(&scorer, &query, &candidates), [0.5, 0.75, 0.75, 0.0]);
        assert_eq!(scored(&scorer, &Query::default(), &candidates[..1]), [1.0]);
    }
}
