//! `random`: any worker, all alike (S2).

use super::{Needs, Policy, PolicyRegistration};
use crate::rng::Rng;
use crate::schedule::{Branch, Candidate, PICKS_MAX, Picks, Query};

pub(super) const REGISTRATION: PolicyRegistration = PolicyRegistration {
    name: "random",
    doc: "any worker, all with the same chance; for tests and comparisons",
    build: |_| Box::new(Random {}),
};

/// A uniform draw, and others for the retries.
#[derive(Debug)]
struct Random {}

impl Policy for Random {
    fn pick(&self, query: &Query, candidates: &[Candidate], picks: &mut Picks) -> Branch {
        let mut rng = Rng::new(query.random);
        // Repeated draws are dropped by `push`: twice the places nearly always fill the list. Its first place, which is
        // the one that has to be filled, is by the first draw.
        for _ in 0..2 * PICKS_MAX {
            let drawn = rng.below(u32::try_from(candidates.len()).unwrap_or(u32::MAX));
            if let Some(candidate) = usize::try_from(drawn).ok().and_then(|drawn| candidates.get(drawn)) {
                picks.push(candidate.worker);
            }
        }
        Branch::Drawn
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
    fn all_have_the_same_chance_whatever_their_load() {
        let candidates = candidates(&[0.0, 100.0, 1.0, 7.0]);
        let mut firsts = [0_u32; 4];
        for random in 0..8_000 {
            let query = Query { random, ..Query::default() };
            firsts[picked(&Random {}, &query, &candidates).0[0] as usize] += 1;
        }
        assert!(firsts.iter().all(|&count| (1_800..2_200).contains(&count)), "{firsts:?}");
    }
}
