//! `active-request-scorer`: fewer of this gateway's own requests in flight.

use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "active-request-scorer",
    doc: "fewer of this gateway's own requests in flight: an idle worker scores 1, the busiest 0",
    build: |section| {
        Box::new(ActiveRequest {
            idle_requests: section.u32(
                "idleThreshold",
                0,
                0..=1_000_000,
                "`active-request-scorer`: a worker with at most so many requests is idle",
            ),
            busy_score_max: section.f64(
                "maxBusyScore",
                1.0,
                0.0..=1.0,
                "`active-request-scorer`: what a worker that is not idle scores at the most",
            ),
        })
    },
};

/// Idle 1; else `maxBusyScore * (max - own) / max` over the candidates.
///
/// Source: llm-d-router 0.10 `scorer/activerequest/active_request.go`, with its defaults. Own requests need no scrape: they
/// are known of each worker.
#[derive(Debug)]
struct ActiveRequest {
    idle_requests: u32,
    busy_score_max: f64,
}

impl Scorer for ActiveRequest {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        let most = candidates.iter().map(|candidate| candidate.own_requests).max().unwrap_or_default();
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let own = candidate.own_requests;
            *score = match own <= self.idle_requests {
                true => 1.0,
                false => self.busy_score_max * f64::from(most - own) / f64::from(most),
            };
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
    fn idle_workers_score_best_and_busy_ones_by_their_requests() {
        struct Case {
            name: &'static str,
            idle_requests: u32,
            busy_score_max: f64,
            scores: [f64; 4],
        }
        const CASES: &[Case] = &[
            Case { name: "defaults", idle_requests: 0, busy_score_max: 1.0, scores: [1.0, 0.75, 0.5, 0.0] },
            Case { name: "up to the threshold", idle_requests: 2, busy_score_max: 1.0, scores: [1.0, 1.0, 0.5, 0.0] },
            Case { name: "busy scores less", idle_requests: 0, busy_score_max: 0.5, scores: [1.0, 0.375, 0.25, 0.0] },
        ];
        let candidates = workers(4, |id, worker| worker.own_requests = [0, 2, 4, 8][id]);
        for case in CASES {
            let scorer = ActiveRequest { idle_requests: case.idle_requests, busy_score_max: case.busy_score_max };
            assert_eq!(scored(&scorer, &Query::default(), &candidates), case.scores, "{}", case.name);
        }
    }
}
