//! `lora-affinity-scorer`: the request's LoRA adapter is loaded, or has room.

use super::{Scorer, ScorerRegistration};
use crate::schedule::policy::Needs;
use crate::schedule::{Candidate, Query};
use crate::worker::AdapterFit;

pub(super) const REGISTRATION: ScorerRegistration = ScorerRegistration {
    name: "lora-affinity-scorer",
    doc: "the request's LoRA adapter runs or is loaded 1, has room 0.8, is waited for 0.6, has no room or is not told of 0; without an adapter 0 for all",
    build: |_| Box::new(LoraAffinity {}),
};

/// Running or loaded 1, room 0.8, 0.7 where an idle adapter has to go, waiting 0.6, full 0.
///
/// Source: llm-d-router 0.10 `scorer/loraaffinity/lora_affinity.go`, which knows only what requests use now: there what is
/// loaded and idle is what has room, and so is a worker that has to give up an idle one. A worker that tells nothing of
/// adapters scores 0: it gains nothing. For a request without an adapter the other scorers decide.
#[derive(Debug)]
struct LoraAffinity {}

impl Scorer for LoraAffinity {
    fn score(&self, _query: &Query, candidates: &[Candidate], scores: &mut [f64]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = match candidate.adapter {
                Some(AdapterFit::Running | AdapterFit::Loaded) => 1.0,
                Some(AdapterFit::Room) => 0.8,
                Some(AdapterFit::Replace) => 0.7,
                Some(AdapterFit::Waiting) => 0.6,
                Some(AdapterFit::Full | AdapterFit::Unknown) | None => 0.0,
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
        let candidates = workers(AdapterFit::ALL.len(), |id, worker| worker.adapter = Some(AdapterFit::ALL[id]));
        assert_eq!(scored(&LoraAffinity {}, &Query::default(), &candidates), [1.0, 1.0, 0.8, 0.7, 0.6, 0.0, 0.0]);
        let base_model = workers(2, |_, worker| worker.adapter = None);
        assert_eq!(scored(&LoraAffinity {}, &Query::default(), &base_model), [0.0, 0.0]);
    }
}
