//! `round-robin`: each worker in its turn (S1).

use super::{Needs, Policy, PolicyRegistration};
use crate::schedule::{Branch, Candidate, PICKS_MAX, Picks, Query};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "round-robin",
    doc: "each worker in its turn, one order for all worker threads; the baseline",
    build: |_| Box::new(RoundRobin {}),
};

/// In the order of the configuration; the turn is shared by all worker threads.
#[derive(Debug)]
struct RoundRobin {}

impl Policy for RoundRobin {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        let turn = usize::try_from(query.turn).unwrap_or_default().checked_rem(candidates.len()).unwrap_or_default();
        for candidate in candidates.iter().cycle().skip(turn).take(PICKS_MAX.min(candidates.len())) {
            picks.push(candidate.worker);
        }
        Branch::Turn
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
    use crate::schedule::policy::testing::{candidates, picked};

    #[test]
    fn every_worker_has_its_turn_and_the_next_are_for_retries() {
        let candidates = candidates(&[0.0, 0.0, 0.0, 0.0]);
        let at = |turn| picked(&RoundRobin {}, &Query { turn, ..Query::default() }, &candidates).0;
        assert_eq!([at(0), at(1), at(3)], [vec![0, 1, 2], vec![1, 2, 3], vec![3, 0, 1]]);
        assert_eq!(at(u32::MAX), [3, 0, 1]);
    }
}
