//! `prefix-cache-scorer`: more of the prompt in the worker's cache.

use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "prefix-cache-scorer",
    doc: "more of the prompt in the worker's cache: all of it scores 1",
    build: |section| {
        Box::new(PrefixCache {
            length_weight: section.f64(
                "matchLengthWeight",
                0.0,
                0.0..=1.0,
                "`prefix-cache-scorer`: how much the length of the match counts; the rest is for the matched share of the prompt",
            ),
            length_scale_tokens: f64::from(section.u32(
                "matchLengthScaleTokens",
                8_192,
                1..=100_000_000,
                "`prefix-cache-scorer`: a match of so many tokens is as good as any longer one",
            )),
        })
    },
};

/// `w * min(1, matched / scale)^2 + (1 - w) * matched / prompt`; 0 without a prompt.
///
/// Source: llm-d-router 0.10 `scorer/prefix/plugin.go`, with its defaults. There a match need not be contiguous and counts
/// whole blocks; here it is, in tokens.
#[derive(Debug)]
struct PrefixCache {
    /// Share of the score that the length of the match decides, 0.0 to 1.0.
    length_weight: f64,
    length_scale_tokens: f64,
}

impl Scorer for PrefixCache {
    fn score(&self, query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let share = super::matched_share(query, candidate);
            let length = (candidate.matched_tokens / self.length_scale_tokens).clamp(0.0, 1.0).powi(2);
            *score = match query.prompt_tokens > 0.0 {
                true => self.length_weight * length + (1.0 - self.length_weight) * share,
                false => 0.0,
            };
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
    fn longer_matches_score_higher_by_share_and_by_length() {
        struct Case {
            name: &'static str,
            length_weight: f64,
            prompt_tokens: f64,
            scores: [f64; 4],
        }
        const CASES: &[Case] = &[
            Case { name: "share", length_weight: 0.0, prompt_tokens: 4_000.0, scores: [0.0, 0.25, 0.5, 1.0] },
            Case { name: "length, squared", length_weight: 1.0, prompt_tokens: 4_000.0, scores: [0.0, 0.25, 1.0, 1.0] },
            Case { name: "half and half", length_weight: 0.5, prompt_tokens: 4_000.0, scores: [0.0, 0.25, 0.75, 1.0] },
            Case { name: "no prompt", length_weight: 0.5, prompt_tokens: 0.0, scores: [0.0; 4] },
        ];
        let candidates = workers(4, |id, worker| worker.matched_tokens = [0.0, 1_000.0, 2_000.0, 4_000.0][id]);
        for case in CASES {
            let scorer = PrefixCache { length_weight: case.length_weight, length_scale_tokens: 2_000.0 };
            let query = Query { prompt_tokens: case.prompt_tokens, ..Query::default() };
            assert_eq!(scored(&scorer, &query, &candidates), case.scores, "{}", case.name);
        }
    }
}
