//! `no-hit-lru-scorer`: a prompt that nobody has goes to the worker that got such a one the longest ago.

use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};
use crate::time::Timestamp;
use crate::worker::WORKERS_MAX;

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "no-hit-lru-scorer",
    doc: "spreads prompts that nobody has any of: the longer ago a worker got one, the higher; all 0.5 if anybody has some of it",
    build: |_| Box::new(NoHitLru {}),
};

/// `1 - rank / (workers - 1)`, the rank being how many of the candidates got a cold prompt longer ago.
///
/// Source: llm-d-router 0.10 `scorer/nohitlru/no_hit_lru.go`. There workers that never got one are ranked by their place
/// in the list, so that a gateway's first cold prompts all go down the list; here they are equals. There the last 1,024
/// workers are remembered, here all.
#[derive(Debug)]
struct NoHitLru {}

impl Scorer for NoHitLru {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        if candidates.iter().any(|candidate| candidate.matched_tokens > 0.0) {
            scores.fill(0.5);
            return;
        }
        let mut times = [Timestamp::default(); WORKERS_MAX];
        let times = times.get_mut(..candidates.len()).unwrap_or_default();
        for (time, candidate) in times.iter_mut().zip(candidates) {
            *time = candidate.cold_pick_at;
        }
        times.sort_unstable();
        let last_rank = candidates.len().saturating_sub(1).max(1) as f64;
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let rank = times.partition_point(|time| *time < candidate.cold_pick_at);
            *score = 1.0 - rank as f64 / last_rank;
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
    fn cold_prompts_prefer_who_got_one_the_longest_ago() {
        struct Case {
            name: &'static str,
            cold_pick_at_ms: &'static [u64],
            matched_tokens: f64,
            scores: &'static [f64],
        }
        const CASES: &[Case] = &[
            Case { name: "by age", cold_pick_at_ms: &[30, 10, 20], matched_tokens: 0.0, scores: &[0.0, 1.0, 0.5] },
            Case {
                name: "never is oldest",
                cold_pick_at_ms: &[5, 0, 0],
                matched_tokens: 0.0,
                scores: &[0.0, 1.0, 1.0],
            },
            Case { name: "nobody ever", cold_pick_at_ms: &[0, 0], matched_tokens: 0.0, scores: &[1.0, 1.0] },
            Case { name: "one worker", cold_pick_at_ms: &[30], matched_tokens: 0.0, scores: &[1.0] },
            Case { name: "a hit", cold_pick_at_ms: &[30, 10, 20], matched_tokens: 1.0, scores: &[0.5, 0.5, 0.5] },
        ];
        for case in CASES {
            let candidates = workers(case.cold_pick_at_ms.len(), |id, worker| {
                worker.cold_pick_at = Timestamp::from_ms(case.cold_pick_at_ms[id]);
                worker.matched_tokens = if id == 0 { case.matched_tokens } else { 0.0 };
            });
            assert_eq!(scored(&NoHitLru {}, &Query::default(), &candidates), case.scores, "{}", case.name);
        }
    }
}
