//! `least-load`: the worker with the fewest requests (S3).

use super::{Needs, Policy, PolicyRegistration, pick_least_load};
use crate::schedule::{Branch, Candidate, Picks, Query};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "least-load",
    doc: "the worker with the fewest requests, own in-flight and reported by the engine, none counted twice",
    build: |_| Box::new(LeastLoad {}),
};

/// Fewest requests first; equals in random order, so that several gateways do not fall on the same one.
#[derive(Debug)]
struct LeastLoad {}

impl Policy for LeastLoad {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        pick_least_load(query, candidates, picks);
        Branch::LeastLoad
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
    fn fewer_requests_come_first() {
        let candidates = candidates(&[3.0, 1.0, 2.0, 9.0]);
        assert_eq!(picked(&LeastLoad {}, &Query::default(), &candidates), (vec![1, 2, 0], Branch::LeastLoad));
    }

    #[test]
    fn equals_share_the_requests() {
        let candidates = candidates(&[1.0, 1.0, 5.0]);
        let mut firsts = [0_u32; 3];
        for random in 0..1_000 {
            let query = Query { random: crate::rng::mix(random), ..Query::default() };
            firsts[picked(&LeastLoad {}, &query, &candidates).0[0] as usize] += 1;
        }
        assert!(firsts[0] > 430 && firsts[1] > 430 && firsts[2] == 0, "{firsts:?}");
    }
}
