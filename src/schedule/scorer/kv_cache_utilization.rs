//! `kv-cache-utilization-scorer`: more room in the KV cache.

use super::signal::{known, worst};
use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "kv-cache-utilization-scorer",
    doc: "more room in the KV cache: 1 less the share in use",
    build: |_| Box::new(KvCacheUtilization {}),
};

/// `1 - usage`.
///
/// Source: llm-d-router 0.10 `scorer/kvcacheutilization/kvcache_utilization.go`. There a worker that was never scraped
/// counts as empty and scores 1; here it scores as the fullest known, and 0 if nobody tells.
#[derive(Debug)]
struct KvCacheUtilization {}

impl Scorer for KvCacheUtilization {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        let fullest = worst(candidates, |candidate| candidate.kv_usage).unwrap_or(1.0);
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = 1.0 - known(candidate.kv_usage).unwrap_or(fullest);
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
    fn emptier_caches_score_higher_and_unknown_as_the_fullest() {
        let candidates = workers(4, |id, worker| worker.kv_usage = [Some(0.0), Some(0.25), Some(0.75), None][id]);
        assert_eq!(scored(&KvCacheUtilization {}, &Query::default(), &candidates), [1.0, 0.75, 0.25, 0.25]);
        assert_eq!(scored(&KvCacheUtilization {}, &Query::default(), &workers(2, |_, _| {})), [0.0, 0.0]);
    }
}
