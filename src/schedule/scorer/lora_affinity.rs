//! `lora-affinity-scorer`: the request's LoRA adapter is loaded, or has room.

use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};
use crate::worker::AdapterFit;

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "lora-affinity-scorer",
    doc: "the request's LoRA adapter runs 1, has room 0.8, is waited for 0.6, has no room or is not told of 0",
    build: |_| Box::new(LoraAffinity {}),
};

/// Running 1, room 0.8, waiting 0.6, full 0.
///
/// Source: llm-d-router 0.10 `scorer/loraaffinity/lora_affinity.go`. A worker that tells nothing of adapters scores 0: it
/// gains nothing. What runs is what requests use now; engines do not tell which adapters merely stay loaded.
#[derive(Debug)]
struct LoraAffinity {}

impl Scorer for LoraAffinity {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = match candidate.adapter {
                AdapterFit::Running => 1.0,
                AdapterFit::Room => 0.8,
                AdapterFit::Waiting => 0.6,
                AdapterFit::Full | AdapterFit::Unknown => 0.0,
            };
        }
    }

    /// The adapter's name stands in the body, as the model.
    fn needs(&self) -> Needs {
        Needs::Prefix
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::schedule::scorer::testing::{scored, workers};

    #[test]
    fn where_the_adapter_runs_is_best_and_where_it_has_no_room_or_is_unknown_worst() {
        let fits = [AdapterFit::Full, AdapterFit::Waiting, AdapterFit::Room, AdapterFit::Running, AdapterFit::Unknown];
        let candidates = workers(5, |id, worker| worker.adapter = fits[id]);
        assert_eq!(scored(&LoraAffinity {}, &Query::default(), &candidates), [0.0, 0.6, 0.8, 1.0, 0.0]);
    }
}
