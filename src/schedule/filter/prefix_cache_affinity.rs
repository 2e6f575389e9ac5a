//! `prefix-cache-affinity-filter`: only the workers that hold nearly all of the prompt, unless they are far behind.

use super::{Filter, FilterRegistration, still_kept};
use crate::schedule::policy::Needs;
use crate::schedule::scorer::matched_share;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: FilterRegistration = FilterRegistration {
    name: "prefix-cache-affinity-filter",
    doc: "the workers that hold nearly all of the prompt, if there are any, unless they would answer far later than another",
    build: |section| {
        Box::new(PrefixCacheAffinity {
            threshold: section.f64(
                "affinityThreshold",
                0.8,
                0.0..=1.0,
                "`prefix-cache-affinity-filter`: a worker that holds this share of the prompt is kept",
            ),
            penalty_ms_max: section.f64(
                "maxTTFTPenaltyMs",
                18_000.0,
                0.0..=3_600_000.0,
                "`prefix-cache-affinity-filter`: all are kept if the best of the others would answer earlier than the best of these by more than this; 0: never",
            ),
            prefill_tokens_per_s: section.f64(
                "peakPrefillThroughput",
                15_928.0,
                1.0..=1e9,
                "`prefix-cache-affinity-filter`: prompt tokens that a worker prefills in a second; measure it, the default is of one model on one GPU",
            ),
        })
    },
};

/// Keeps the workers with `matched / prompt >= affinityThreshold`. TTFT is estimated as
/// `backlog / peakPrefillThroughput`.
///
/// Source: llm-d-router 0.10 `filter/prefixcacheaffinity/plugin.go`, with its defaults and its source `prefillThroughput`; it
/// has no latency predictor and no exploration here. The backlog of a worker whose queue is not known counts as much as
/// the longest known; there it counts as none.
#[derive(Debug)]
struct PrefixCacheAffinity {
    /// Share of the prompt, 0.0 to 1.0.
    threshold: f64,
    penalty_ms_max: f64,
    prefill_tokens_per_s: f64,
}

impl Filter for PrefixCacheAffinity {
    fn keep(&self, query: &Query, candidates: &[Candidate], kept: &mut [bool]) {
        let is_sticky = |candidate: &Candidate| matched_share(query, candidate) >= self.threshold;
        let best_ttft_ms = |sticky: bool| {
            still_kept(candidates, kept)
                .filter(|candidate| is_sticky(candidate) == sticky)
                .map(|candidate| candidate.backlog_tokens / self.prefill_tokens_per_s * 1_000.0)
                .fold(f64::INFINITY, f64::min)
        };
        if self.penalty_ms_max > 0.0 && best_ttft_ms(true) - best_ttft_ms(false) > self.penalty_ms_max {
            return;
        }
        for (is_kept, candidate) in kept.iter_mut().zip(candidates) {
            *is_kept &= is_sticky(candidate);
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
    use crate::schedule::filter::testing::kept_ids;
    use crate::schedule::scorer::testing::workers;

    #[test]
    fn warm_workers_are_kept_alone_unless_they_are_far_behind() {
        struct Case {
            name: &'static str,
            matched_tokens: [f64; 3],
            backlog_tokens: [f64; 3],
            penalty_ms_max: f64,
            kept: &'static [u16],
        }
        const CASES: &[Case] = &[
            Case {
                name: "from the threshold on",
                matched_tokens: [800.0, 799.0, 1_000.0],
                backlog_tokens: [0.0; 3],
                penalty_ms_max: 18_000.0,
                kept: &[0, 2],
            },
            Case {
                name: "nobody is warm",
                matched_tokens: [0.0, 500.0, 700.0],
                backlog_tokens: [0.0, 1e6, 1e6],
                penalty_ms_max: 18_000.0,
                kept: &[0, 1, 2],
            },
            Case {
                name: "18 s behind is not too far",
                matched_tokens: [1_000.0, 0.0, 0.0],
                backlog_tokens: [18_000.0, 0.0, 0.0],
                penalty_ms_max: 18_000.0,
                kept: &[0],
            },
            Case {
                name: "18.001 s is",
                matched_tokens: [1_000.0, 0.0, 0.0],
                backlog_tokens: [18_001.0, 0.0, 5_000.0],
                penalty_ms_max: 18_000.0,
                kept: &[0, 1, 2],
            },
            Case {
                name: "the best warm one counts",
                matched_tokens: [1_000.0, 0.0, 1_000.0],
                backlog_tokens: [90_000.0, 0.0, 5_000.0],
                penalty_ms_max: 18_000.0,
                kept: &[0, 2],
            },
            Case {
                name: "without the gate",
                matched_tokens: [1_000.0, 0.0, 0.0],
                backlog_tokens: [90_000.0, 0.0, 0.0],
                penalty_ms_max: 0.0,
                kept: &[0],
            },
        ];
        for case in CASES {
            let filter = PrefixCacheAffinity {
                threshold: 0.8,
                penalty_ms_max: case.penalty_ms_max,
                prefill_tokens_per_s: 1_000.0,
            };
            let candidates = workers(3, |id, worker| {
                worker.matched_tokens = case.matched_tokens[id];
                worker.backlog_tokens = case.backlog_tokens[id];
            });
            let query = Query { prompt_tokens: 1_000.0, ..Query::default() };
            assert_eq!(kept_ids(filter, &query, &candidates), case.kept, "{}", case.name);
        }
    }
}
